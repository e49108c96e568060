//! Connects to other contexts, each time on a thread of its own that does nothing else.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use session::{Channel, Deadline, Interruption, Secret, Threads};
use transport_tcp::TcpSettings;

use super::{
    creations::OTHER_ANSWER,
    messages::{Asks, Hello, Purpose, Request, Response, Sharing, shortened},
    refusals::Refusals,
    steps::Step,
};
use crate::{
    Error,
    commands::{Command, Commands},
    network::shared_link,
    own_link::{Offers, OwnLink},
};

/// The pause before a context is asked again that has ended while it was asked.
const PAUSE: Duration = Duration::from_millis(50);

/// What all connections of a context have in common.
#[derive(Clone)]
pub(crate) struct Connecting {
    pub(crate) secret: Secret,
    /// Which connections groups share; `None` if each link has its own.
    pub(crate) sharing: Option<Sharing>,
    pub(crate) tcp: TcpSettings,
    pub(crate) refusals: Arc<Refusals>,
    /// Tells the worker.
    pub(crate) commands: Commands,
}

/// A connection to be made for a group or a team.
pub(crate) struct Dial {
    pub(crate) number: u64,
    pub(crate) address: SocketAddr,
    /// At which others connect to this context.
    pub(crate) own: SocketAddr,
    pub(crate) timeout: Duration,
    pub(crate) shares: bool,
    pub(crate) asks: Asks,
    /// Makes offers for a link that has connections of its own.
    pub(crate) offers: Offers,
}

/// The threads of a context that connect.
pub(crate) struct Dialer {
    connecting: Connecting,
    interruptions: Mutex<HashMap<u64, Interruption>>,
    threads: Threads,
}

impl Dialer {
    pub(crate) fn new(connecting: Connecting) -> Self {
        Self { connecting, interruptions: Mutex::default(), threads: Threads::default() }
    }

    /// Why a peer at this address was refused last, unless one there has authenticated since.
    pub(crate) fn refused(&self, address: IpAddr) -> Option<String> {
        self.connecting.refusals.of(address)
    }

    /// Starts to connect. The worker gets a [`Step`] when that has ended.
    ///
    /// Errors: no thread is left.
    pub(crate) fn start(self: &Arc<Self>, dial: Dial) -> Result<(), Error> {
        let interruption = Interruption::default();
        self.lock().insert(dial.number, interruption.clone());
        let (dialer, number) = (Arc::clone(self), dial.number);
        let what = format!("connecting to {}", dial.address);
        let connect = move || {
            let made = dialer.connecting.connect(&dial, &interruption);
            let step = made.unwrap_or_else(|error| Step::NotConnected { dial: number, error });
            dialer.lock().remove(&number);
            // Without a worker nobody waits for it.
            let _ = dialer.connecting.commands.give(Command::Create(Box::new(step)));
        };
        let started = self.threads.spawn("rdmc-connect", what.clone(), connect);
        started.map_err(|error| {
            self.lock().remove(&number);
            Error::System { what, error }
        })
    }

    /// Ends a connection that is being made.
    pub(crate) fn interrupt(&self, dial: u64) {
        if let Some(interruption) = self.lock().get(&dial) {
            interruption.interrupt();
        }
    }

    /// Ends all connections that are being made, and their threads. Returns descriptions of those that have not ended by the
    /// deadline.
    pub(crate) fn close(&self, deadline: Deadline) -> Vec<String> {
        self.lock().values().for_each(Interruption::interrupt);
        self.threads.join(deadline)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Interruption>> {
        self.interruptions.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Connecting {
    /// Makes a connection, which is shared if both contexts share such connections, and else is the link of one group. A context that
    /// ends meanwhile may be one of before: another one may be started at its address.
    fn connect(&self, dial: &Dial, interruption: &Interruption) -> Result<Step, Error> {
        let deadline = Deadline::after(dial.timeout);
        loop {
            let error = match self.ask(dial, deadline, interruption)? {
                Ok(step) => return Ok(step),
                Err(error) => error,
            };
            let is_over = interruption.is_interrupted() || deadline.left() <= PAUSE;
            if is_over || !error.is_closed() {
                return Err(of_member(dial.asks.to(), error));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Makes offers of shared memory in place of such a connection.
    pub(super) fn offers(&self, sharing: Option<Sharing>) -> Offers {
        match sharing {
            Some(Sharing { streams: 1, .. }) => Offers::SharedMemory(self.tcp.clone()),
            _ => Offers::Tcp,
        }
    }

    /// Makes a connection once. The inner error is that of a connection on which something was asked.
    fn ask(
        &self,
        dial: &Dial,
        deadline: Deadline,
        interruption: &Interruption,
    ) -> Result<Result<Step, session::Error>, Error> {
        let member = dial.asks.to();
        let sharing = self.sharing.filter(|_| dial.shares);
        let streams = sharing.map_or(dial.asks.streams(), |sharing| sharing.streams);
        let mut channels = self.open(dial, streams, deadline, interruption)?;
        let ours = dial.offers.make(&channels[0])?;
        let memory = self.offers(sharing).make(&channels[0])?;
        let own = || {
            Purpose::Own(match dial.asks.clone() {
                Asks::Link(request) => Asks::Link(Request { offer: ours.bytes(), ..request }),
                question => question,
            })
        };
        let first = sharing.map_or_else(own, |sharing| Purpose::Share {
            sharing,
            address: dial.own,
            offer: memory.bytes(),
        });
        let mut asked = introduce(&mut channels, first, deadline);
        if matches!(asked, Ok(Response::Apart)) {
            asked = channels[0]
                .send(&own(), deadline)
                .and_then(|()| channels[0].receive::<Response>(deadline));
        }
        let response = match asked {
            Ok(response) => response,
            Err(error) => return Ok(Err(error)),
        };
        let refused = |cause| Error::Member { member, address: dial.address, cause };
        match (response, sharing, &dial.asks) {
            (Response::Shared { offer: answer }, Some(sharing), _) => {
                let pipe = memory.answered(answer, deadline).map_err(refused)?.begin_pipe();
                let pipe = pipe.map_err(|error| refused(error.to_string()))?;
                let link = shared_link(channels, pipe, sharing.protection, deadline);
                let link = link.map_err(refused)?;
                let (address, dial) = (dial.address, Some(dial.number));
                Ok(Ok(Step::Connected { link, address, from: address.ip(), dial }))
            }
            (Response::Accepted { offer: answer }, _, Asks::Link(_)) => {
                let carrier = ours.answered(answer, deadline).map_err(refused)?;
                let link = Box::new(OwnLink { channels, carrier });
                Ok(Ok(Step::Linked { dial: dial.number, link }))
            }
            (Response::Chose(choice), _, Asks::Choice(_)) => {
                Ok(Ok(Step::Chosen { dial: dial.number, choice }))
            }
            (Response::Refused(cause), ..) => Err(refused(shortened(&cause))),
            _ => Err(refused(OTHER_ANSWER.into())),
        }
    }

    /// Makes the streams of a connection. The other context may not have started to listen yet.
    fn open(
        &self,
        dial: &Dial,
        streams: u8,
        deadline: Deadline,
        interruption: &Interruption,
    ) -> Result<Vec<Channel>, Error> {
        let member = dial.asks.to();
        let open = |_| {
            let (address, secret) = (dial.address, &self.secret);
            let channel = Channel::connect_patiently(address, secret, deadline, interruption)
                .map_err(|error| of_member(member, error))?;
            self.tcp.set_options(&channel).map_err(|error| {
                Error::Transport(format!("connecting to member {member}: {error}"))
            })?;
            Ok(channel)
        };
        (0..streams).map(open).collect()
    }
}

/// Says what a connection is for, and returns the answer.
fn introduce(
    channels: &mut [Channel],
    purpose: Purpose,
    deadline: Deadline,
) -> Result<Response, session::Error> {
    let random = |error| session::Error::System { what: "naming a connection".into(), error };
    let (id, streams) = (session::random_id().map_err(random)?, channels.len() as u8);
    let mut purpose = Some(purpose);
    for (stream, channel) in (0..).zip(&mut *channels) {
        channel.send(&Hello { id, stream, streams, purpose: purpose.take() }, deadline)?;
    }
    channels[0].receive(deadline)
}

/// Converts an error of a connection to one that names the member at its other end.
pub(crate) fn of_member(member: u32, error: session::Error) -> Error {
    match error {
        session::Error::Peer { address, cause, .. } => Error::Member { member, address, cause },
        other => match other.into() {
            Error::Timeout { what, timeout, .. } => {
                let what = format!("{what} (member {member})");
                Error::Timeout { what, timeout, unconnected: Vec::new() }
            }
            other => other,
        },
    }
}
