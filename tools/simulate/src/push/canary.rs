//! Planted bugs between the decisions at both ends and their effects.

use std::{fmt, str::FromStr};

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
}

impl PushCanary {
    /// All planted bugs.
    pub const ALL: [Self; 11] = [
        Self::TrustsLeftovers,
        Self::BelievesCopies,
        Self::LosesReports,
        Self::ClaimsAll,
        Self::ClaimsNothing,
        Self::ForgetsPublish,
        Self::SkipsSync,
        Self::SkipsLook,
        Self::AwaitsAll,
        Self::ForgetsListing,
        Self::HidesFirewalls,
    ];

    /// Returns the name as it is displayed and parsed.
    pub fn name(self) -> &'static str {
        match self {
            Self::TrustsLeftovers => "trusts-leftovers",
            Self::BelievesCopies => "believes-copies",
            Self::LosesReports => "loses-reports",
            Self::ClaimsAll => "claims-all",
            Self::ClaimsNothing => "claims-nothing",
            Self::ForgetsPublish => "forgets-publish",
            Self::SkipsSync => "skips-sync",
            Self::SkipsLook => "skips-look",
            Self::AwaitsAll => "awaits-all",
            Self::ForgetsListing => "forgets-listing",
            Self::HidesFirewalls => "hides-firewalls",
        }
    }
}

impl fmt::Display for PushCanary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PushCanary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|canary| canary.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|canary| canary.name()).collect();
            format!("{text:?} is no canary of pushes; use one of {}", names.join(", "))
        })
    }
}
