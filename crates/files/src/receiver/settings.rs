//! Settings of a receiver.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use plan::size;
use rdmc::Secret;

use crate::{RemoteContents, RemoteEntry, messages::Offer, switch_control::SwitchControl};

use super::{
    error::ReceiveError, limits::RootLimits, listings::Listings, output::Output,
    placement::Placement, reception::Reception,
};

/// Entries of what a URL names, and what reads them.
pub type FoundAtUrl = (Vec<RemoteEntry>, Arc<dyn RemoteContents>);

/// Opens URLs for a receiver, with what this host has of credentials.
pub trait ReadsUrls: Send + Sync + fmt::Debug {
    /// Finds out what there is. Blocks, with a deadline.
    ///
    /// Errors: nothing, or nothing that can be read here; they name the URL, and say what to do.
    fn open(&self, url: &str, as_hub_cache: bool) -> Result<FoundAtUrl, String>;
}

/// What a receiver fetches from a server ([`crate::Server`]).
#[derive(Clone, Debug)]
pub struct Fetch {
    /// Its path there: in one of the directories that it serves.
    pub path: String,
    /// Where its copy goes here, whatever the server says.
    pub destination: String,
    /// For how long it sends the published copy to others that want it; then until those to which it sends have it.
    pub shares: Option<Duration>,
    /// Each file of the copy is reported as soon as it is verified ([`Reception::take_verified_file`]).
    pub reports_files: bool,
}

/// Settings of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverSettings {
    /// The name of this host; the root compares it with the hosts that it expects.
    pub host: String,
    /// Names of a receiver that listens: a root must have been given one of them. Empty: the root checks that it has reached the
    /// address to which it has connected.
    pub names: Vec<String>,
    /// The token with which its root has started it ([`crate::HostTokens`]).
    pub token: Option<Secret>,
    /// To which address this receiver has connected to join a push of a root that a secret alone authenticates: that root's end of the
    /// connection has to be there. `None`: any peer that has authenticated is the root.
    pub root: Option<SocketAddr>,
    /// It fetches from a server, to which it has connected, and accepts nothing else.
    pub fetch: Option<Fetch>,
    /// Which destinations it accepts.
    pub placement: Placement,
    /// Where a stream goes instead of a file; files are refused then.
    pub output: Option<Output>,
    /// The longest object that it accepts, in bytes, with the holes of its files; checked before files are made.
    pub bytes_max: Option<u64>,
    /// Memory of lists of files, which all sessions of a receiver share.
    pub listings: Arc<Listings>,
    /// Whether switches may copy to this host.
    pub switches: SwitchControl,
    /// What reads a URL for a root that lets its hosts read the source themselves. Roots without this user's rights must have none: they
    /// would reach what only this host can.
    pub urls: Option<Arc<dyn ReadsUrls>>,
    /// What roots may ask of it. `None` for one that its root has started: the root has this user's rights anyway.
    pub limits: Option<RootLimits>,
    /// What other threads see of the session: one for each.
    pub reception: Arc<Reception>,
    /// When set, ends the session within a fraction of a second; the partial copy is kept for a later one.
    pub stop: Arc<AtomicBool>,
}

impl ReceiverSettings {
    /// Those of a receiver that its root has started: without limits, names, a token and an output, and without switches.
    pub fn new(host: String, placement: Placement) -> Self {
        Self {
            host,
            names: Vec::new(),
            token: None,
            root: None,
            fetch: None,
            placement,
            output: None,
            bytes_max: None,
            listings: Arc::default(),
            switches: SwitchControl::default(),
            urls: None,
            limits: None,
            reception: Arc::default(),
            stop: Arc::default(),
        }
    }

    /// For how long it sends its published copy to others.
    pub(super) fn shares(&self) -> Option<Duration> {
        self.fetch.as_ref().and_then(|fetch| fetch.shares)
    }

    /// What it accepts of an offer: of a server only what it has asked for, and where it wants that.
    ///
    /// Errors: it fetches and this is something else, or the other way round.
    pub(super) fn accept(&self, mut offer: Offer) -> Result<Offer, ReceiveError> {
        let refuse = |what: &str| Err(ReceiveError::Refused(what.to_owned()));
        let Some(fetch) = &self.fetch else {
            return match (offer.by_links, &offer.remote, &self.urls) {
                (true, ..) => refuse("the root offers what nobody has asked for: use `rdmc fetch`"),
                (false, Some(_), None) => refuse(self.why_no_urls()),
                (false, ..) => Ok(offer),
            };
        };
        let tree = offer.tree.as_ref();
        let changes_others = tree.is_some_and(|tree| tree.deletion.is_some() || tree.atomic);
        if !offer.by_links || offer.dry_run || changes_others || offer.remote.is_some() {
            return refuse("the server offers something else than what was asked for");
        }
        if let (Some(tree), Some(_)) = (&mut offer.tree, fetch.shares) {
            // Only what was compared is sent to others.
            tree.by_contents = true;
        }
        offer.destination.clone_from(&fetch.destination);
        Ok(offer)
    }

    fn why_no_urls(&self) -> &'static str {
        match self.limits {
            Some(_) => {
                "a receiver that listens or joins reads no URLs for a root: leave out --together, or let the push start the receiver"
            }
            None => {
                "this rdmc was built without the feature remote, by which it reads URLs: leave out --together"
            }
        }
    }

    /// Errors: more than this receiver accepts.
    pub(super) fn check_size(&self, bytes: u64) -> Result<(), ReceiveError> {
        match self.bytes_max {
            Some(most) if bytes > most => Err(ReceiveError::Refused(format!(
                "the root offers {}, but this receiver accepts at most {}; start it with a larger \
                 --max-size",
                size::show(bytes),
                size::show(most)
            ))),
            _ => Ok(()),
        }
    }
}
