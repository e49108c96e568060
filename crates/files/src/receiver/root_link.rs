//! The connection to the root, with the state that all parts of a session share.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use rdmc::{Context, ContextSettings, Error, Fabric, Group, Protection};
use session::{Channel, Deadline};

use super::{
    backlog::Backlog,
    error::ReceiveError,
    event,
    limits::RootLimits,
    reception::Reception,
    settings::{Fetch, ReceiverSettings},
};
use crate::{
    connect::is_same_end,
    control::{Control, FAILURE_DEADLINE},
    group_terms::GroupTerms,
    messages::{Introduction, Terms, ToReceiver, ToRoot, Wanted, join_predicate},
    ports::start_at,
    reason::shortened,
};

/// How often a waiting receiver checks its stop flag.
const TICK: Duration = Duration::from_millis(100);
/// The most groups that are joined, or being joined, each by a thread; a root starts 8 at a time.
const GROUPS_MAX: usize = 64;
/// How long the root may take to read a last message.
const LINGER: Duration = Duration::from_secs(3);

/// Events of a session with groups of the library.
pub(super) type Event = event::Event<Group>;

/// A running session.
pub(super) struct RootLink<'a> {
    pub(super) settings: &'a ReceiverSettings,
    pub(super) control: Arc<Control>,
    /// This end's address of the control connection.
    local: SocketAddr,
    /// The root's address.
    peer: IpAddr,
    pub(super) events: Sender<Event>,
    inbox: Receiver<Event>,
    /// Of messages of the root in the inbox.
    backlog: Arc<Backlog>,
    /// Ends what takes its time: the receiver stops, the session has to end, or the root is lost.
    pub(super) interrupted: Arc<AtomicBool>,
    /// Has a clone for each group that is being joined.
    joining: Arc<()>,
    pub(super) received_bytes: Arc<AtomicU64>,
    /// Bytes read or written other than received ones, for [`ToRoot::Worked`].
    pub(super) worked: Arc<AtomicU64>,
}

impl<'a> RootLink<'a> {
    /// Starts the threads of the control connection.
    pub(super) fn start(
        channel: Channel,
        settings: &'a ReceiverSettings,
    ) -> Result<Self, ReceiveError> {
        let system = |what: &str, error: &dyn std::fmt::Display| {
            ReceiveError::System(format!("cannot {what}: {error}"))
        };
        let local = channel.local_address();
        let local = local.map_err(|error| system("find out its address", &error))?;
        let peer = channel.peer().ip();
        let (events, inbox) = mpsc::channel();
        let (incoming, backlog) = (events.clone(), Arc::new(Backlog::default()));
        let (filled, interrupted) = (Arc::clone(&backlog), Arc::<AtomicBool>::default());
        let lost = Arc::clone(&interrupted);
        let take = move |message: Result<ToReceiver, Error>, bytes| {
            lost.fetch_or(message.is_err(), Ordering::Relaxed);
            filled.add(bytes) && incoming.send(Event::Root(message)).is_ok()
        };
        let control = Control::start(channel, FAILURE_DEADLINE, take)
            .map_err(|error| system("start a session", &error))?;
        Ok(Self {
            settings,
            control: Arc::new(control),
            local,
            peer,
            events,
            inbox,
            backlog,
            interrupted,
            joining: Arc::default(),
            received_bytes: Arc::default(),
            worked: Arc::default(),
        })
    }

    /// Who this receiver is.
    pub(super) fn introduction(&self) -> Introduction {
        let ReceiverSettings { host, names, token, fetch, .. } = self.settings;
        let (host, names, token) = (host.clone(), names.clone(), token.clone());
        let wanted = |fetch: &Fetch| Wanted::Object {
            path: fetch.path.clone(),
            shares: fetch.shares.is_some(),
        };
        let wants = fetch.as_ref().map(wanted);
        Introduction { host, names, address: self.local, token, wants }
    }

    /// Before anything else of an offer. Errors: terms that this receiver does not accept.
    pub(super) fn check_terms(&self, terms: &Terms) -> Result<(), ReceiveError> {
        if let Some(meant) = self.settings.root
            && !is_same_end(meant, terms.root)
        {
            return Err(ReceiveError::Refused(format!(
                "the root that answered got the connection to {meant} at {}: something in between redirects connections; if \
                 that is intended (address translation), use certificates",
                terms.root
            )));
        }
        let limits = self.settings.limits.as_ref();
        let checked = match limits {
            Some(limits) => limits.check_terms(terms, self.peer),
            None => terms.failure_deadline().map(drop),
        };
        checked.map_err(ReceiveError::Refused)
    }

    /// Names of the networks that this host can use with this root, best first.
    pub(super) fn fabrics(&self) -> Vec<String> {
        let all = Fabric::candidates().iter().map(Fabric::name).collect();
        match &self.settings.limits {
            Some(limits) => limits.networks(all, self.peer),
            None => all,
        }
    }

    /// Before a group is joined. Errors: it is one that this receiver does not accept.
    pub(super) fn check_group(&self, terms: &Terms, group: &GroupTerms) -> Result<(), String> {
        let limits = self.settings.limits.as_ref();
        limits.map_or(Ok(()), |limits| limits.check_group(terms, group))
    }

    /// The same for a team.
    pub(super) fn check_members(
        &self,
        terms: &Terms,
        members: &[SocketAddr],
        own_rank: u32,
    ) -> Result<(), String> {
        let limits = self.settings.limits.as_ref();
        limits.map_or(Ok(()), |limits| limits.check_members(terms, members, own_rank))
    }

    /// Counts a group as being joined until what is returned is dropped. `joined`: how many groups are.
    ///
    /// Errors: too many are, or are being joined.
    pub(super) fn join(&self, joined: usize) -> Result<Arc<()>, String> {
        let joining = Arc::clone(&self.joining);
        match Arc::strong_count(&joining) + joined {
            count if count > GROUPS_MAX + 1 => {
                Err(format!("{GROUPS_MAX} groups are already joined, or being joined"))
            }
            _ => Ok(joining),
        }
    }

    /// What is reported to the root about an error of joining.
    pub(super) fn explainer(&self) -> Explainer {
        let is_limited = self.settings.limits.is_some();
        Explainer { is_limited, reception: Arc::clone(&self.settings.reception) }
    }

    pub(super) fn start_context(
        &self,
        fabric: &str,
        terms: &Terms,
    ) -> Result<Context, ReceiveError> {
        let mut settings = self.context_settings(fabric, terms)?;
        let start = |port| {
            settings.listen.set_port(port);
            Context::start(settings.clone())
        };
        start_at(terms.ports, start).map_err(|error| ReceiveError::System(error.to_string()))
    }

    /// Errors: what the root wants is unknown, or not accepted here.
    pub(super) fn context_settings(
        &self,
        fabric: &str,
        terms: &Terms,
    ) -> Result<ContextSettings, ReceiveError> {
        // The root passes the connection's address on to the other members.
        let listen = SocketAddr::new(self.local.ip().to_canonical(), 0);
        let limits = self.settings.limits.as_ref();
        if let Some(limits) = limits {
            limits.check_network(fabric, self.peer).map_err(ReceiveError::Refused)?;
        }
        let mut settings = ContextSettings::new(listen, terms.secret.clone());
        settings.streams = terms.streams;
        settings.connect_timeout = terms.join_timeout();
        let system = |error: Error| ReceiveError::System(error.to_string());
        settings.fabric = fabric.parse().map_err(system)?;
        settings.completion = match limits {
            Some(limits) => limits.completion,
            None => terms.completion.parse().map_err(system)?,
        };
        // Encryption is the default over TCP. To insist on it would refuse other networks, which the root has chosen and the limits
        // of this receiver allow.
        let protection: Protection = terms.protection.parse().map_err(system)?;
        settings.protection = Some(protection).filter(|it| *it == Protection::None);
        settings.peers = limits.and_then(|limits| limits.peers.clone());
        settings.rate_max = terms.rate_max;
        self.settings.switches.apply(&mut settings);
        settings.tcp.silence_timeout = Duration::from_millis(u64::from(terms.failure_deadline_ms));
        Ok(settings)
    }

    /// The next event; the silence of the root is one as well.
    pub(super) fn next(&self) -> Result<Event, ReceiveError> {
        loop {
            if let Some(event) = self.next_in_time()? {
                return Ok(event);
            }
        }
    }

    /// The same, or `None` after a [`TICK`] without any.
    pub(super) fn next_in_time(&self) -> Result<Option<Event>, ReceiveError> {
        if self.settings.stop.load(Ordering::Relaxed) {
            return Err(ReceiveError::Stopped);
        }
        if let Some(reason) = self.settings.reception.ended() {
            return Err(ReceiveError::Refused(reason.clone()));
        }
        Ok(self.take(TICK))
    }

    /// Why what takes its time was interrupted. Takes what the root has sent meanwhile, behind which its loss is found.
    pub(super) fn interruption(&self) -> ReceiveError {
        loop {
            match self.next_in_time() {
                Err(error) => return error,
                Ok(Some(Event::Root(Err(error)))) => return ReceiveError::Root(error),
                Ok(Some(Event::Root(Ok(ToReceiver::Abort { reason, keep })))) => {
                    return ReceiveError::Aborted { reason: shortened(&reason), keep };
                }
                Ok(_) => {}
            }
        }
    }

    fn take(&self, timeout: Duration) -> Option<Event> {
        let event = self.inbox.recv_timeout(timeout).ok()?;
        if matches!(event, Event::Root(_)) {
            self.backlog.remove();
        }
        Some(event)
    }

    /// Ends the connection and its threads.
    pub(super) fn disconnect(&self) {
        self.backlog.close();
        self.control.disconnect();
    }

    pub(super) fn send(&self, message: &ToRoot) -> Result<(), ReceiveError> {
        self.control.send(message).map_err(ReceiveError::Root)
    }

    /// Waits until the root disconnects: closing a socket with unread data could discard the last message.
    pub(super) fn await_disconnect(&self) {
        let deadline = Deadline::after(LINGER);
        while !deadline.left().is_zero() {
            match self.take(deadline.left()) {
                Some(Event::Root(Err(_) | Ok(ToReceiver::Finish | ToReceiver::Abort { .. })))
                | None => return,
                Some(_) => {}
            }
        }
    }
}

impl Drop for RootLink<'_> {
    fn drop(&mut self) {
        // Dropping the control connection waits for its reading thread.
        self.backlog.close();
    }
}

/// Decides what is reported to a root about errors of joining. A root may name any address as a member's, so one that has no
/// rights on this
/// host is not told what answers there: the details are for this host's log.
#[derive(Clone, Debug)]
pub(super) struct Explainer {
    is_limited: bool,
    reception: Arc<Reception>,
}

impl Explainer {
    pub(super) fn explain(&self, error: &Error) -> String {
        match error {
            Error::Member { .. } | Error::Peer { .. } if self.is_limited => {
                self.reception.note(&error.to_string());
                RootLimits::UNREACHABLE.to_owned()
            }
            error => join_predicate(error),
        }
    }
}
