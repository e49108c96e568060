//! A receiver that listens, and its sessions.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use files::receiver::{ReceiverSettings, Reception, RootLimits};
use session::{Channel, Credentials, Listener};

use super::{
    log::Log,
    root::Root,
    serving::{failure, serve},
    sessions::{Admission, Sessions},
};
use crate::{
    failure::{Failure, print_message},
    interrupt::Interrupt,
};

const TICK: Duration = Duration::from_millis(50);

/// The settings of a receiver that listens.
pub struct Listening<'a> {
    pub address: SocketAddr,
    /// Names of roots that are accepted; empty for all.
    pub allowed: &'a [String],
    /// Settings of all sessions.
    pub settings: &'a ReceiverSettings,
    pub takes_part_in_benches: bool,
    /// Whether the receiver ends after one push.
    pub once: bool,
}

/// The running sessions, each on its own thread.
struct Running<'a> {
    listening: &'a Listening<'a>,
    /// Whether roots have certificates, not a secret.
    certified: bool,
    log: Arc<Mutex<Log>>,
    places: Sessions,
    sessions: BTreeMap<u64, Session>,
    refusals: Vec<JoinHandle<()>>,
}

struct Session {
    thread: JoinHandle<()>,
    reception: Arc<Reception>,
}

impl Listening<'_> {
    /// Serves pushes until a signal, or the first one with `once`.
    pub fn run(&self, credentials: Credentials, interrupt: &Interrupt) -> Result<(), Failure> {
        let failed = |error| Failure::Io(format!("listening on {}", self.address), error);
        let listener = TcpListener::bind(self.address).map_err(failed)?;
        let (admitted, inbox) = mpsc::channel();
        let certified = !matches!(credentials, Credentials::Secret(_));
        let log = Arc::new(Mutex::new(Log::start()));
        let rejections = Arc::clone(&log);
        // A peer that fails to authenticate does not count for `--once`.
        let admit = move |channel| match channel {
            Ok(channel) => drop(admitted.send(channel)),
            Err(error) => lock(&rejections).rejected(error),
        };
        let peers = self.settings.limits.as_ref().and_then(|limits| limits.peers.clone());
        let listener = Listener::open_to(peers, listener, credentials, admit).map_err(failed)?;
        print_message(format_args!("listening on {}", listener.address()));
        let left_out = self.settings.limits.as_ref().map(RootLimits::networks_left_out);
        if let Some(networks) = left_out.filter(|networks| !networks.is_empty()) {
            let networks = networks.join(",");
            print_message(format_args!(
                "blocks are accepted over tcp; --fabric {networks},tcp also accepts them over {networks}, where nothing \
                 protects them"
            ));
        }
        let mut running = Running {
            listening: self,
            certified,
            log,
            places: Sessions::default(),
            sessions: BTreeMap::new(),
            refusals: Vec::new(),
        };
        while !interrupt.happened() {
            running.look();
            let Ok(channel) = inbox.recv_timeout(TICK) else { continue };
            if self.once {
                drop(listener);
                return running.serve_once(channel);
            }
            running.admit(channel);
        }
        drop(listener);
        running.end();
        // SIGTERM ends a service without a failure; with `--once` the expected push is missing.
        if interrupt.is_termination() && !self.once { Ok(()) } else { Err(Failure::Interrupted) }
    }
}

impl Running<'_> {
    fn serve_once(&self, channel: Channel) -> Result<(), Failure> {
        let (root, settings) = (self.root(&channel), self.listening.settings);
        let outcome = serve(channel, settings, self.listening.takes_part_in_benches);
        // The command reports the error.
        if outcome.is_ok() {
            lock(&self.log).ended(&root, &outcome, &settings.reception.take_record());
        }
        lock(&self.log).end();
        outcome.map(drop).map_err(failure)
    }

    fn root(&self, channel: &Channel) -> Root {
        Root::of(channel, self.listening.allowed, self.certified)
    }

    /// Starts to serve a root, or to notify it of its refusal.
    fn admit(&mut self, channel: Channel) {
        let root = self.root(&channel);
        let now = lock(&self.log).now();
        let admission = self.places.admit(&root.identity(), now);
        let number = match admission {
            Admission::Runs(number) => number,
            Admission::RunsInsteadOf(number, other) => {
                if let Some(other) = self.sessions.get(&other) {
                    other.reception.end(
                        "it has made no progress for a minute, and another push needs its place",
                    );
                }
                number
            }
            Admission::Refused(reason) => {
                lock(&self.log).refused(&root, &reason);
                return self.refuse(channel, &reason);
            }
            Admission::Dropped => return lock(&self.log).refused(&root, "too many pushes"),
        };
        let (settings, log) = (self.settings(), Arc::clone(&self.log));
        let reception = Arc::clone(&settings.reception);
        let benches = self.listening.takes_part_in_benches;
        let session = move || {
            let outcome = serve(channel, &settings, benches);
            let record = settings.reception.take_record();
            lock(&log).ended(&root, &outcome, &record);
        };
        match thread::Builder::new().name("rdmc-session".into()).spawn(session) {
            Ok(thread) => drop(self.sessions.insert(number, Session { thread, reception })),
            // The connection is closed; the root reports that.
            Err(_) => self.places.ended(number),
        }
    }

    /// Sends a root the reason of its refusal, by a session that ends at once.
    fn refuse(&mut self, channel: Channel, reason: &str) {
        let settings = self.settings();
        settings.reception.end(reason);
        let tell = move || drop(serve(channel, &settings, false));
        match thread::Builder::new().name("rdmc-refusal".into()).spawn(tell) {
            Ok(thread) => self.refusals.push(thread),
            Err(_) => self.places.refused(),
        }
    }

    fn settings(&self) -> ReceiverSettings {
        ReceiverSettings { reception: Arc::default(), ..self.listening.settings.clone() }
    }

    /// Checks which sessions have ended, and which make progress.
    fn look(&mut self) {
        let now = {
            let mut log = lock(&self.log);
            log.count();
            log.now()
        };
        self.sessions.retain(|&number, session| {
            self.places.progress(number, session.reception.progress(), now);
            let has_ended = session.thread.is_finished();
            if has_ended {
                self.places.ended(number);
            }
            !has_ended
        });
        self.refusals.retain(|refusal| {
            let has_ended = refusal.is_finished();
            if has_ended {
                self.places.refused();
            }
            !has_ended
        });
    }

    /// Waits for the sessions: they end by the same signal and keep their partial copies.
    fn end(self) {
        let sessions = self.sessions.into_values().map(|session| session.thread);
        for thread in sessions.chain(self.refusals) {
            let _ = thread.join();
        }
        lock(&self.log).end();
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
