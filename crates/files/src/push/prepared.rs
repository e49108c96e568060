//! The resources of a session: settings, source, listeners, and the context once its fabric is chosen.

use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        mpsc::{self, Receiver},
    },
};

use rdmc::{Context, ContextSettings, Error, Fabric, GroupSettings};

use super::{
    accept::Acceptor,
    descriptors,
    inbox::{Events, Input, PushHandle},
    settings::{HostPlan, PushError, PushSettings},
    stream_settings::StreamSettings,
};
use crate::{
    Source, SourceError,
    messages::{Offer, Start, StreamOffer, Terms, ToReceiver, TreeOffer},
    ports::start_at,
};

/// A part of a listing in one message: each connection that sends one holds that much.
const LISTING_PART_BYTES: usize = 64 << 10;

/// A session that is ready to run and listens for receivers.
pub(super) struct Prepared {
    pub(super) settings: PushSettings,
    /// The file to replicate; none in a stream, or a session of an application.
    pub(super) source: Option<Arc<Source>>,
    /// What hosts do with a stream; a session of an application has neither this nor a file.
    stream: Option<StreamSettings>,
    /// Of the source.
    pub(super) probe: [u8; 32],
    /// Once the fabric is chosen.
    pub(super) context: OnceLock<Arc<Context>>,
    /// Once it is sent.
    listing_digest: OnceLock<[u8; 32]>,
    /// Hosts fetch it; they come through a server ([`super::Server`]).
    pub(super) is_served: bool,
    /// Where receivers connect, or that server listens.
    pub(super) address: SocketAddr,
    /// Not of a session of a server.
    _acceptor: Option<Acceptor>,
    /// For receivers that join.
    pub(super) admission: Option<Acceptor>,
    pub(super) events: Events,
    pub(super) inbox: Receiver<Input>,
}

impl Prepared {
    pub(super) fn listen(
        source: Option<Arc<Source>>,
        settings: PushSettings,
    ) -> Result<Self, PushError> {
        descriptors::check(&settings)?;
        let (events, inbox) = mpsc::channel();
        let names = settings.hosts.iter().map(|host| host.name.clone()).collect();
        let acceptor = Acceptor::for_hosts(
            settings.local_only,
            settings.ports,
            settings.secret.clone(),
            names,
            settings.tokens.clone(),
            events.clone(),
        )?;
        let admission = match (&settings.admission, &settings.credentials) {
            (Some(admission), Some(credentials)) => {
                Some(Acceptor::for_joining(admission.listen, credentials.clone(), events.clone())?)
            }
            _ => None,
        };
        let address = acceptor.address;
        let prepared = Self::new(source, settings, address, events, inbox)?;
        Ok(Self { _acceptor: Some(acceptor), admission, ..prepared })
    }

    /// A session of a server that listens at this address, and passes on the connections of hosts that want this source.
    pub(super) fn served(
        source: Arc<Source>,
        settings: PushSettings,
        address: SocketAddr,
        events: Events,
        inbox: Receiver<Input>,
    ) -> Result<Self, PushError> {
        let prepared = Self::new(Some(source), settings, address, events, inbox)?;
        Ok(Self { is_served: true, ..prepared })
    }

    fn new(
        source: Option<Arc<Source>>,
        settings: PushSettings,
        address: SocketAddr,
        events: Events,
        inbox: Receiver<Input>,
    ) -> Result<Self, PushError> {
        let probe = source.as_ref().map(|source| source.probe()).transpose()?.unwrap_or_default();
        let prepared = Self {
            settings,
            source,
            stream: None,
            probe,
            context: OnceLock::new(),
            listing_digest: OnceLock::new(),
            is_served: false,
            address,
            _acceptor: None,
            admission: None,
            events,
            inbox,
        };
        // Fails before receivers are started if the requested fabric cannot be used.
        if let Some(fabric) = &prepared.settings.fabric {
            prepared.use_fabric(fabric.clone())?;
        }
        Ok(prepared)
    }

    /// The same for a stream, which has no file either.
    pub(super) fn for_stream(self, stream: StreamSettings) -> Self {
        Self { stream: Some(stream), ..self }
    }

    pub(super) fn use_fabric(&self, fabric: Fabric) -> Result<(), Error> {
        // On the address that was available for the control connections.
        let ip = self.address.ip();
        let listen = SocketAddr::new(ip, 0);
        let mut settings = ContextSettings::new(listen, self.settings.secret.clone());
        settings.fabric = fabric;
        settings.streams = self.settings.streams;
        settings.completion = self.settings.completion;
        settings.protection = self.settings.protection;
        settings.connect_timeout = self.settings.root_join_timeout();
        settings.rate_max = self.settings.rate_max;
        settings.tcp.silence_timeout = self.settings.failure_deadline;
        self.settings.switches.apply(&mut settings);
        let start = |port| {
            settings.listen.set_port(port);
            Context::start(settings.clone())
        };
        let _ = self.context.set(Arc::new(start_at(self.settings.ports, start)?));
        Ok(())
    }

    /// The TCP port that receivers connect to.
    pub(super) fn control_port(&self) -> u16 {
        self.address.port()
    }

    /// A handle for other threads.
    pub(super) fn handle(&self) -> PushHandle {
        PushHandle { events: self.events.clone() }
    }

    /// The first message to a receiver, on a connection whose end here is at `root`. [`Prepared::listing`] follows unless it is
    /// relayed.
    pub(super) fn first_message(
        &self,
        plan: &HostPlan,
        root: SocketAddr,
        relays_listing: bool,
    ) -> ToReceiver {
        let terms = Terms {
            root,
            streams: self.settings.streams,
            completion: self.settings.completion.to_string(),
            protection: self.settings.protection.unwrap_or_default().to_string(),
            failure_deadline_ms: self.settings.failure_deadline.as_millis() as u32,
            rate_max: self.settings.rate_max,
            join_timeout_ms: self.settings.member_join_timeout().as_millis() as u32,
            ports: self.settings.ports,
            secret: self.settings.secret.clone(),
        };
        let Some(source) = &self.source else {
            let destination = plan.destination.clone();
            return match &self.stream {
                Some(StreamSettings { mode, command }) => {
                    let (mode, command) = (*mode, command.clone());
                    ToReceiver::Stream(StreamOffer { destination, mode, command, terms })
                }
                None => ToReceiver::Gather(terms),
            };
        };
        ToReceiver::Offer(Box::new(Offer {
            manifest: source.manifest().clone(),
            tree: source.tree().map(|(offer, listing)| {
                let digest =
                    || *self.listing_digest.get_or_init(|| *blake3::hash(&listing).as_bytes());
                TreeOffer { relayed: relays_listing.then(digest), ..offer }
            }),
            kept: source.kept().cloned(),
            destination: plan.destination.clone(),
            probe: self.probe,
            has_holes: source.has_holes(),
            dry_run: self.settings.dry_run,
            by_links: self.is_served,
            remote: source.remote_offer(),
            terms,
        }))
    }

    /// The listing of a tree; empty without one.
    pub(super) fn encoded_listing(&self) -> Arc<[u8]> {
        let listing = self.source.as_ref().and_then(|source| source.tree());
        listing.map(|(_, listing)| listing).unwrap_or_default()
    }

    /// The listing of a tree in messages, which share it.
    pub(super) fn listing(&self) -> impl Iterator<Item = ToReceiver> + Send + use<> {
        let listing = self.encoded_listing();
        (0..listing.len()).step_by(LISTING_PART_BYTES).map(move |start| {
            let end = listing.len().min(start + LISTING_PART_BYTES);
            ToReceiver::Listing { part: listing[start..end].to_vec() }
        })
    }

    /// The settings of a group at the root. Errors: terms that make no group.
    pub(super) fn group_settings(&self, start: &Start) -> Result<GroupSettings, Error> {
        match self.stream {
            Some(_) => start.stream_settings(),
            None if self.is_served => start.link_settings(),
            None => start.group.settings(),
        }
    }

    /// Whether this is a session of an application, whose hosts cannot come later.
    pub(super) fn is_application(&self) -> bool {
        self.source.is_none() && self.stream.is_none()
    }

    /// Whether this is a push of a stream.
    pub(super) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether the source is a tree.
    pub(super) fn is_tree(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is_tree())
    }

    /// Length of the source; 0 without one.
    pub(super) fn bytes(&self) -> u64 {
        self.source.as_ref().map_or(0, |source| source.manifest().bytes)
    }

    pub(super) fn check_unchanged(&self) -> Result<(), SourceError> {
        self.source.as_ref().map_or(Ok(()), |source| source.check_unchanged())
    }
}
