//! For tests: roots and servers that break rules, and the receivers that they have connected to.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use rdmc::Secret;
use session::{Channel, Deadline};

use super::{
    error::ReceiveError, limits::RootLimits, placement::Placement, reception::Reception,
    serve::serve, settings::ReceiverSettings,
};
use crate::{
    Manifest,
    messages::{Offer, Terms, ToReceiver, ToRoot},
};

pub(super) const TIMEOUT: Duration = Duration::from_secs(50);
pub(super) type Outcome = Result<Option<PathBuf>, ReceiveError>;

pub(super) fn settings(directory: &Path) -> ReceiverSettings {
    ReceiverSettings {
        limits: Some(RootLimits::default()),
        ..ReceiverSettings::new("host".into(), Placement::Below(directory.to_owned()))
    }
}

/// Both ends of a control connection: the receiver's, and the root's.
pub(super) fn pair() -> (Channel, Channel) {
    let (secret, deadline) = (Secret::from_bytes([1; 32]), Deadline::after(TIMEOUT));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let root = scope.spawn(|| Channel::connect(address, &secret, deadline).unwrap());
        let receiver = Channel::accept(listener.accept().unwrap().0, &secret, deadline);
        (receiver.unwrap(), root.join().unwrap())
    })
}

/// A root, and the receiver that it has connected to.
pub(super) struct Evil {
    pub(super) root: Channel,
    pub(super) receiver: JoinHandle<Outcome>,
    pub(super) reception: Arc<Reception>,
    pub(super) directory: tempfile::TempDir,
}

impl Evil {
    pub(super) fn connect() -> Self {
        Self::connect_to(|_| {})
    }

    /// To a receiver with other settings.
    pub(super) fn connect_to(change: impl FnOnce(&mut ReceiverSettings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (mut settings, (own, root)) = (settings(directory.path()), pair());
        change(&mut settings);
        let reception = Arc::clone(&settings.reception);
        let receiver = thread::spawn(move || serve(own, &settings));
        Self { root, receiver, reception, directory }
    }

    pub(super) fn send(&mut self, message: &ToReceiver) {
        self.root.send(message, Deadline::after(TIMEOUT)).unwrap();
    }

    /// Receives until this message.
    pub(super) fn await_message<T>(&mut self, wanted: impl Fn(ToRoot) -> Option<T>) -> T {
        loop {
            let message = self.root.receive::<ToRoot>(Deadline::after(TIMEOUT)).unwrap();
            if let Some(found) = wanted(message) {
                return found;
            }
        }
    }

    /// What is reported to the root, and to the receiver's log.
    pub(super) fn end(mut self) -> (String, String) {
        let told = self.await_message(|message| match message {
            ToRoot::Failed { reason } => Some(reason),
            _ => None,
        });
        drop(self.root);
        (told, self.receiver.join().unwrap().unwrap_err().to_string())
    }
}

pub(super) fn terms() -> Terms {
    Terms {
        root: ([127, 0, 0, 1], 7001).into(),
        streams: 1,
        completion: "polling".into(),
        protection: "encrypt".into(),
        failure_deadline_ms: 5_000,
        rate_max: None,
        join_timeout_ms: 15_000,
        ports: None,
        secret: Secret::from_bytes([2; 32]),
    }
}

pub(super) fn file_offer(destination: &str) -> Offer {
    Offer {
        manifest: Manifest { name: "object".into(), bytes: 10, mode: 0o644, modified_ns: 0 },
        tree: None,
        kept: None,
        destination: destination.into(),
        probe: [3; 32],
        has_holes: false,
        dry_run: false,
        by_links: false,
        remote: None,
        terms: terms(),
    }
}
