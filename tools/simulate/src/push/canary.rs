//! Planted bugs between the decisions at both ends and their effects.

use clap::ValueEnum;

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PushCanary {
    /// Files of earlier sessions are not compared with the source.
    TrustsLeftovers,
    /// A receiver accepts any copy.
    BelievesCopies,
    /// Receivers do not report that a group has failed.
    LosesReports,
    /// A receiver reports that it has everything whenever a group has failed.
    ClaimsAll,
    /// A receiver reports that it has nothing whenever a group has failed.
    ClaimsNothing,
    /// The order to publish is not sent.
    ForgetsPublish,
    /// Hosts are told to publish as soon as they have a verified copy.
    PublishesAlone,
    /// Receivers rename their copies before they sync them.
    SkipsSync,
    /// The root does not look at the source again before copies are published.
    SkipsLook,
    /// The first groups wait for hosts that connect late or never.
    AwaitsAll,
    /// A listing is not sent to hosts that do not get it in a group.
    ForgetsListing,
    /// Receivers do not report to whom they could not connect.
    HidesFirewalls,
    /// Receivers do not report digests of what they have read at a URL.
    ForgetsReads,
}
