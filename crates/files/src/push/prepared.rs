//! What a push takes before it runs: listeners, settings, and the context once its fabric is chosen.

use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        mpsc::{self, Receiver},
    },
};

use rdmc::{Context, ContextSettings, Error, Fabric};

use super::{
    doorway::Doorway,
    inbox::{Events, Input, PushHandle},
    settings::{HostPlan, PushError, PushSettings},
};
use crate::{
    Source, SourceError,
    messages::{JOIN_TIMEOUT, Offer, Terms, ToReceiver},
};

/// What a push or a bench is carried out with; it listens for receivers.
pub(super) struct Prepared {
    pub(super) settings: PushSettings,
    /// What is replicated; none if it is only measured.
    pub(super) source: Option<Arc<Source>>,
    /// Of the source.
    pub(super) probe: [u8; 32],
    /// Once the fabric is chosen.
    pub(super) context: OnceLock<Arc<Context>>,
    pub(super) doorway: Doorway,
    /// For receivers that join.
    pub(super) admission: Option<Doorway>,
    pub(super) events: Events,
    pub(super) inbox: Receiver<Input>,
}

impl Prepared {
    pub(super) fn listen(
        source: Option<Arc<Source>>,
        settings: PushSettings,
    ) -> Result<Self, PushError> {
        settings.check_descriptors()?;
        let (events, inbox) = mpsc::channel();
        let names = settings.hosts.iter().map(|host| host.name.clone()).collect();
        let doorway =
            Doorway::open(settings.local_only, settings.secret.clone(), names, events.clone())?;
        let admission = match (&settings.admission, &settings.credentials) {
            (Some(admission), Some(credentials)) => {
                Some(Doorway::open_to_all(admission.listen, credentials.clone(), events.clone())?)
            }
            _ => None,
        };
        let context = OnceLock::new();
        let probe = source.as_ref().map(|source| source.probe()).transpose()?.unwrap_or_default();
        let prepared = Self { settings, source, probe, context, doorway, admission, events, inbox };
        // Without the fabric that was asked for, nobody needs to be started.
        if let Some(fabric) = &prepared.settings.fabric {
            prepared.use_fabric(fabric.clone())?;
        }
        Ok(prepared)
    }

    pub(super) fn use_fabric(&self, fabric: Fabric) -> Result<(), Error> {
        // The context listens the way the doorway could.
        let listen = SocketAddr::new(self.doorway.address.ip(), 0);
        let mut settings = ContextSettings::new(listen, self.settings.secret.clone());
        settings.fabric = fabric;
        settings.streams = self.settings.streams;
        settings.completion = self.settings.completion;
        settings.protection = self.settings.protection;
        settings.connect_timeout = JOIN_TIMEOUT;
        settings.tcp.silence_timeout = self.settings.failure_deadline;
        self.settings.switches.apply(&mut settings);
        let _ = self.context.set(Arc::new(Context::start(settings)?));
        Ok(())
    }

    /// The TCP port that receivers call.
    pub(super) fn control_port(&self) -> u16 {
        self.doorway.address.port()
    }

    /// A handle for other threads.
    pub(super) fn handle(&self) -> PushHandle {
        PushHandle { events: self.events.clone() }
    }

    /// What a receiver hears first.
    pub(super) fn first_words(&self, plan: &HostPlan) -> ToReceiver {
        let terms = Terms {
            streams: self.settings.streams,
            completion: self.settings.completion.to_string(),
            protection: self.settings.protection.to_string(),
            failure_deadline_ms: self.settings.failure_deadline.as_millis() as u32,
            secret: self.settings.secret.clone(),
        };
        match &self.source {
            Some(source) => ToReceiver::Offer(Offer {
                manifest: source.manifest().clone(),
                destination: plan.destination.clone(),
                probe: self.probe,
                has_holes: source.has_holes(),
                terms,
            }),
            None => ToReceiver::Bench(terms),
        }
    }

    /// How much there is to replicate.
    pub(super) fn bytes(&self) -> u64 {
        self.source.as_ref().map_or(0, |source| source.manifest().bytes)
    }

    pub(super) fn check_unchanged(&self) -> Result<(), SourceError> {
        self.source.as_ref().map_or(Ok(()), |source| source.check_unchanged())
    }
}
