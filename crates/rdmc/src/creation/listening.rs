//! Answers other contexts that connect to this one.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use session::{Channel, Deadline, Handshake, Listener, Peers};
use socket2::{Domain, Protocol, Socket, Type};
use transport_tcp::MESSAGE_BYTES_MAX;

use super::{
    assembling::Assembly,
    dialing::Connecting,
    messages::{Hello, Purpose, Response},
    steps::Step,
};
use crate::{Error, commands::Command, network::shared_link};

/// How long another context may take to say what it wants, and to make all streams.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts connections for all groups of a context, until it is closed.
pub(crate) struct LinkListener {
    listener: Listener,
    assembly: Arc<Assembly<Channel>>,
}

/// What the threads of the listener share.
struct Answering {
    connecting: Connecting,
    assembly: Arc<Assembly<Channel>>,
}

impl LinkListener {
    /// Listens on an address, for these peers or all; port 0 selects a free port. Errors: a system call fails.
    pub(crate) fn start(
        address: SocketAddr,
        peers: Option<Peers>,
        connecting: Connecting,
    ) -> Result<Self, Error> {
        let system = |error| Error::System { what: format!("listening on {address}"), error };
        let socket = listen(address).map_err(system)?;
        let (secret, refusals) = (connecting.secret.clone(), Arc::clone(&connecting.refusals));
        let assembly = Arc::new(Assembly::new(REQUEST_TIMEOUT));
        let answering = Answering { connecting, assembly: Arc::clone(&assembly) };
        // The handshake's guard is held until the worker has what was asked, so that closing the listener also
        // ends connections on which nothing is asked.
        let answer = move |channel, handshake| answering.answer(channel, &handshake);
        let refused = move |error: &session::Error| {
            if let session::Error::Peer { address, cause, .. } = error {
                refusals.add(address.ip(), cause);
            }
        };
        let listener = Listener::answering(peers, socket, secret, answer, refused);
        let listener = listener.map_err(system)?;
        Ok(Self { listener, assembly })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Stops accepting, aborts handshakes in progress and incomplete connections, and ends their threads. Returns what has not
    /// ended by the deadline; nothing when called again.
    pub(crate) fn close(&mut self, deadline: Deadline) -> Vec<String> {
        let mut late = self.assembly.close(deadline);
        late.extend(self.listener.close(deadline));
        late
    }
}

impl Drop for LinkListener {
    fn drop(&mut self) {
        self.close(Deadline::after(REQUEST_TIMEOUT));
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Checks that what another context asks is as short as on a shared connection: thousands of requests are kept for minutes.
fn check_length(asked: &impl Serialize, peer: SocketAddr) -> Result<(), Error> {
    let bytes = postcard::to_stdvec(asked).map_or(usize::MAX, |encoded| encoded.len());
    if bytes <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let cause = format!("sent a request of {bytes} bytes, more than {MESSAGE_BYTES_MAX}");
    Err(Error::Peer { address: peer, cause })
}

impl Answering {
    /// Takes a connection that another context has made, once all of its streams are there: to share it, or to the worker, which
    /// answers what is asked on it.
    fn answer(&self, mut channel: Channel, handshake: &Handshake) -> Result<(), Error> {
        let deadline = Deadline::after(REQUEST_TIMEOUT);
        let hello = channel.receive::<Hello>(deadline)?;
        handshake.served();
        let peer = channel.peer();
        self.connecting.refusals.remove(peer.ip());
        check_length(&hello.purpose, peer)?;
        let complete = self.assembly.add(hello, peer.ip(), channel).map_err(|error| {
            Error::System { what: format!("assembling a connection of {peer}"), error }
        })?;
        let Some((mut channels, purpose)) = complete else { return Ok(()) };
        let asks = match purpose {
            Purpose::Own(asks) => asks,
            Purpose::Share { sharing, address, offer }
                if self.connecting.sharing == Some(sharing) =>
            {
                let options =
                    channels.iter().try_for_each(|it| self.connecting.tcp.set_options(it));
                if let Err(error) = options {
                    return Ok(channels[0].send(&Response::Refused(error.to_string()), deadline)?);
                }
                let offers = self.connecting.offers(Some(sharing));
                let (carrier, answer) = offers.accept(&channels[0], offer)?;
                // Before it is promised.
                let pipe = carrier.begin_pipe();
                let pipe =
                    pipe.inspect_err(|error| tracing::debug!(%peer, %error, "no shared memory"));
                let pipe = pipe.ok().flatten();
                let offer = pipe.as_ref().map_or_else(Vec::new, |_| answer);
                channels[0].send(&Response::Shared { offer }, deadline)?;
                let link = shared_link(channels, pipe, sharing.protection, deadline)
                    .map_err(|cause| Error::Peer { address, cause })?;
                return self.tell(Step::Connected { link, address, from: peer.ip(), dial: None });
            }
            Purpose::Share { .. } => {
                channels[0].send(&Response::Apart, deadline)?;
                let purpose = channels[0].receive(deadline)?;
                check_length(&purpose, peer)?;
                match purpose {
                    Purpose::Own(asks) => asks,
                    Purpose::Share { .. } => return Ok(()),
                }
            }
        };
        self.tell(Step::Requested { channels, asks })
    }

    fn tell(&self, step: Step) -> Result<(), Error> {
        self.connecting.commands.give(Command::Create(Box::new(step)))
    }
}

#[cfg(test)]
mod tests {
    use session::Secret;

    use super::{
        super::{
            messages::{Asks, Request},
            terms::{TeamTerms, Terms},
        },
        *,
    };
    use crate::{Context, ContextSettings, Protection, TeamSettings};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn context() -> (Context, Secret) {
        let secret = Secret::from_bytes([7; 32]);
        let address = ([127, 0, 0, 1], 0).into();
        (Context::start(ContextSettings::new(address, secret.clone())).unwrap(), secret)
    }

    /// Asks for a link of a team that nobody creates, with an offer of this length, on a connection of its own.
    fn ask(to: &(Context, Secret), name: u64, offer_bytes: usize, timeout_ms: u64) -> Channel {
        let (context, secret) = to;
        let team = TeamSettings::new(1, vec![context.address(); 2], 0);
        let asks = Asks::Link(Request {
            group: 1,
            from: 1,
            to: 0,
            context: name.into(),
            attempt: 1,
            terms: Terms::Team(TeamTerms::new(&team, "tcp", Protection::None)),
            offer: vec![0; offer_bytes],
            timeout_ms,
        });
        let purpose = Some(Purpose::Own(asks));
        let deadline = Deadline::after(PATIENCE);
        let mut channel = Channel::connect(context.address(), secret, deadline).unwrap();
        let id = u128::from(name).to_le_bytes();
        channel.send(&Hello { id, stream: 0, streams: 1, purpose }, deadline).unwrap();
        channel
    }

    #[test]
    fn long_requests_are_not_kept() {
        let to = context();
        let answer_to =
            |bytes| ask(&to, 1, bytes, 1).receive::<Response>(Deadline::after(PATIENCE));
        let refused = answer_to(MESSAGE_BYTES_MAX / 2);
        assert!(matches!(refused, Ok(Response::Refused(_))), "{refused:?}");
        let closed = answer_to(MESSAGE_BYTES_MAX);
        assert!(closed.is_err(), "{closed:?}");
        to.0.close(PATIENCE).unwrap();
    }

    /// Returns how many threads of this process serve a connection; other tests of this process have few.
    fn serving() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.filter(|name| name.as_ref().is_ok_and(|name| name == "rdmc-handshake\n")).count()
    }

    #[test]
    fn requests_that_wait_have_no_threads() {
        const WAITING: u64 = 150;
        let to = context();
        let hour_ms = 3_600_000;
        let mut channels: Vec<Channel> =
            (0..WAITING).map(|name| ask(&to, name, 0, hour_ms)).collect();
        let deadline = Deadline::after(PATIENCE);
        while serving() > WAITING as usize / 2 {
            assert!(!deadline.left().is_zero(), "{} threads", serving());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(channels.iter().all(Channel::is_open), "one was answered");
        to.0.close(PATIENCE).unwrap();
        for channel in &mut channels {
            assert!(channel.receive::<Response>(deadline).is_err(), "its context has ended");
        }
    }
}
