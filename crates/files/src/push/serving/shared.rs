//! What the threads of a server share: its settings, and the sessions that run.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender},
    },
};

use rdmc::{Error, Secret};
use session::Credentials;

use super::{board::Board, directories::Directories};
use crate::{
    ListOptions,
    push::{
        inbox::Input,
        settings::{Admission, HostState, PushSettings},
    },
    system::system,
};

/// What a server serves, and how.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Everything below them can be fetched.
    pub directories: Vec<PathBuf>,
    /// Where hosts connect; port 0: a free one.
    pub listen: SocketAddr,
    /// Authenticates this host and those that fetch.
    pub credentials: Credentials,
    /// Which links of directories are sent.
    pub options: ListOptions,
    /// The most objects that are fetched at the same time.
    pub objects_max: usize,
    /// Settings of sessions. Hosts, secret, credentials and admission do not count.
    pub session: PushSettings,
}

/// What happens at a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerEvent {
    /// The first host wants this object.
    Opened {
        /// Its path.
        path: Arc<Path>,
    },
    /// A host wants an object, or its state has changed.
    Host {
        /// The object's path.
        path: Arc<Path>,
        /// The host's name.
        name: String,
        /// [`HostState::Preparing`] when it has come.
        state: HostState,
    },
    /// The last host has left.
    Closed {
        /// The object's path.
        path: Arc<Path>,
        /// Bytes that this server has sent; hosts have sent the others.
        sent_bytes: u64,
        /// Why it has ended for all hosts, if it has: the object has changed.
        error: Option<String>,
    },
    /// A peer was refused.
    Refused {
        /// Who, and why.
        reason: String,
    },
}

/// What the threads of a server share.
pub(super) struct Shared {
    pub(super) settings: ServerSettings,
    pub(super) address: SocketAddr,
    pub(super) directories: Directories,
    pub(super) board: Board,
    pub(super) sessions: Mutex<Sessions>,
    /// A session has ended.
    pub(super) ended: Condvar,
    pub(super) observe: Box<dyn Fn(ServerEvent) + Send + Sync>,
}

/// The sessions that run, by the paths of their objects.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) by_path: BTreeMap<PathBuf, Sender<Input>>,
    pub(super) is_closing: bool,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session of an object, unless another event has come: then returns that.
    pub(super) fn end(&self, path: &Path, inbox: &Receiver<Input>) -> Option<Input> {
        let mut sessions = self.lock();
        // Events of hosts are sent under this lock.
        let next = inbox.try_recv().ok();
        if next.is_none() {
            sessions.by_path.remove(path);
            self.board.close(path);
            self.ended.notify_all();
        }
        next
    }

    /// Settings of a new session.
    pub(super) fn session_settings(&self) -> Result<PushSettings, Error> {
        let destination = String::new();
        Ok(PushSettings {
            hosts: Vec::new(),
            secret: Secret::random().map_err(|error| system("getting random numbers", error))?,
            tokens: None,
            credentials: None,
            admission: Some(Admission { listen: self.address, destination }),
            retries: 0,
            ..self.settings.session.clone()
        })
    }
}
