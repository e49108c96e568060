//! A server: hosts that come at any time get what they want of what it serves.
//!
//! There is one session for each object that somebody wants, which begins with the first host and ends with the last. It is a push
//! to hosts that nobody knows beforehand, in which each gets the object from one member ([`super::links`]).

mod board;
mod directories;
mod session;
mod shared;

use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

use ::session::{Channel, Deadline, Listener};
use rdmc::Error;

use self::{
    directories::Directories,
    session::Run,
    shared::{Sessions, Shared},
};
use super::{
    accept::{check_certificate, receive_hello, refused},
    inbox::{Event, Input},
    settings::PushError,
};
use crate::{
    messages::{ToReceiver, Wanted},
    system::system,
};
pub use shared::{ServerEvent, ServerSettings};

/// How long a host may take to say what it wants.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Stack of a session's thread, which lists directories: they may lie in each other as deep as paths can be long.
const STACK_BYTES: usize = 32 << 20;

/// A server that runs until it is closed.
pub struct Server {
    listener: Listener,
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Server {
    /// Starts to serve. `observe` is called on several threads.
    ///
    /// Errors: a directory cannot be served; a setting is out of range; the system refuses the address.
    pub fn open(
        settings: ServerSettings,
        observe: impl Fn(ServerEvent) + Send + Sync + 'static,
    ) -> Result<Self, PushError> {
        settings.session.check_values(0)?;
        let directories = Directories::open(&settings.directories)?;
        let what = format!("listening on {}", settings.listen);
        let failed = |error| PushError::Library(system(&what, error));
        let socket = TcpListener::bind(settings.listen).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let credentials = settings.credentials.clone();
        let (sessions, ended, observe) = (Mutex::default(), Condvar::new(), Box::new(observe));
        let board = Default::default();
        let shared = Shared { settings, address, directories, board, sessions, ended, observe };
        let shared = Arc::new(shared);
        let gate = Gate(Arc::clone(&shared));
        let admit = move |channel: Result<Channel, ::session::Error>| {
            let admitted = channel.map_err(Error::from).and_then(|channel| gate.admit(channel));
            if let Err(error) = admitted {
                (gate.0.observe)(ServerEvent::Refused { reason: error.to_string() });
            }
        };
        let listener = Listener::open(socket, credentials, admit).map_err(failed)?;
        Ok(Self { listener, shared, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all sessions; hosts keep what they have for a later one. Blocks until then, at most for this time.
    pub fn close(self, timeout: Duration) {
        let Self { listener, shared, .. } = self;
        drop(listener);
        let deadline = Deadline::after(timeout);
        let mut sessions = shared.lock();
        sessions.is_closing = true;
        for events in sessions.by_path.values() {
            // Fails only if it has just ended.
            let _ = events.send(Event::Cancel.into());
        }
        while !sessions.by_path.is_empty() && !deadline.left().is_zero() {
            let waited = shared.ended.wait_timeout(sessions, deadline.left());
            sessions = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Passes hosts on to the sessions of what they want.
struct Gate(Arc<Shared>);

impl Gate {
    /// Passes a host on to the session of what it wants, or answers. Errors: it is refused, and was told why.
    fn admit(&self, mut channel: Channel) -> Result<(), Error> {
        let deadline = Deadline::after(HELLO_TIMEOUT);
        let own = receive_hello(&mut channel, deadline)?;
        check_certificate(&mut channel, &own.host, deadline)?;
        let Some(wants) = own.wants else {
            let cause = "this is a server of files: use `rdmc fetch`".to_owned();
            return Err(refused(&mut channel, cause, deadline));
        };
        let (path, shares) = match wants {
            Wanted::Object { path, shares } => (path, shares),
            Wanted::Status => {
                let status = ToReceiver::Status(self.0.board.status());
                return Ok(channel.send(&status, deadline)?);
            }
        };
        match self.0.directories.find(&path) {
            Ok(path) => self.pass(path, own.host, shares, channel, deadline),
            Err(cause) => Err(refused(&mut channel, cause, deadline)),
        }
    }

    fn pass(
        &self,
        path: PathBuf,
        name: String,
        shares: bool,
        mut channel: Channel,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let mut sessions = self.0.lock();
        match self.session_of(&mut sessions, path) {
            Ok(events) => {
                let requested = Event::JoinRequested { name, shares, connection: channel };
                let _ = events.send(requested.into());
                Ok(())
            }
            Err(cause) => {
                drop(sessions);
                Err(refused(&mut channel, cause, deadline))
            }
        }
    }

    /// The session of an object, which begins if nobody fetches it yet. Errors: why not.
    fn session_of(&self, sessions: &mut Sessions, path: PathBuf) -> Result<Sender<Input>, String> {
        let most = self.0.settings.objects_max;
        match sessions.by_path.get(&path) {
            _ if sessions.is_closing => Err("this server is stopping".to_owned()),
            Some(events) => Ok(events.clone()),
            None if sessions.by_path.len() >= most => Err(format!(
                "{most} other files and directories are being fetched, the most that this server allows; try again later"
            )),
            None => self.start_session(sessions, path).map_err(|error| error.to_string()),
        }
    }

    fn start_session(
        &self,
        sessions: &mut Sessions,
        path: PathBuf,
    ) -> Result<Sender<Input>, Error> {
        let (events, inbox) = mpsc::channel();
        let run = Run { server: Arc::clone(&self.0), path: path.clone(), events: events.clone() };
        thread::Builder::new()
            .name("rdmc-serve".into())
            .stack_size(STACK_BYTES)
            .spawn(move || run.serve(inbox))
            .map_err(|error| system("starting a thread", error))?;
        sessions.by_path.insert(path, events.clone());
        Ok(events)
    }
}
