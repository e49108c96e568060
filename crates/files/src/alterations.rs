//! Relays and links that change bytes of a stream: no receiver hands a wrong byte on.
//!
//! Every receiver reaches the root through a proxy of its control connection, which has the session's secret and so can put
//! another proxy before the port that other members connect to. Of two neighbours the one with the higher rank connects: what
//! passes there is what a receiver relays.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rdmc::{Algorithm, Protection, Secret};
use serde::{Serialize, de::DeserializeOwned};
use session::{Channel, Deadline};

use crate::{
    HostPlan, HostState, PushEvent, PushSettings, Reach, Stream, StreamReport, StreamSettings,
    messages::{ToReceiver, ToRoot},
    receiver::{self, Output, Placement, ReceiverSettings},
};

const TIMEOUT: Duration = Duration::from_secs(60);
const HOSTS: usize = 3;
const LINE: &[u8] = b"an honest line of the stream\n";

/// How many parts of what passes are still to be changed.
#[derive(Clone)]
struct Changes {
    left: Arc<AtomicI64>,
    /// The connection on which something was changed first; on others nothing is.
    only: Arc<OnceLock<usize>>,
    connection: usize,
}

impl Changes {
    fn new(count: i64) -> Self {
        Self { left: Arc::new(AtomicI64::new(count)), only: Arc::default(), connection: 0 }
    }

    fn left(&self) -> i64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Changes the first line of these bytes that is whole, if there is one.
    fn change(&self, bytes: &mut [u8]) {
        let place = bytes.windows(LINE.len()).position(|line| line == LINE);
        let is_here = || *self.only.get_or_init(|| self.connection) == self.connection;
        if let Some(place) = place.filter(|_| self.left() > 0 && is_here()) {
            self.left.fetch_sub(1, Ordering::Relaxed);
            bytes[place + 3..place + 9].copy_from_slice(b"wicked");
        }
    }
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A port whose connections lead to another, and change what passes in either direction.
fn tampered(port: u16, changes: &Changes) -> u16 {
    let changes = changes.clone();
    tampered_at(local(0), port, move || changes.clone()).unwrap()
}

/// The same at this address, with changes for each connection. Errors: it is taken.
fn tampered_at(
    address: SocketAddr,
    port: u16,
    changes: impl Fn() -> Changes + Send + 'static,
) -> io::Result<u16> {
    let listener = TcpListener::bind(address)?;
    let own = listener.local_addr()?.port();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let Ok(there) = TcpStream::connect(local(port)) else { return };
            let changes = changes();
            for (from, to) in [(&connection, &there), (&there, &connection)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let changes = changes.clone();
                thread::spawn(move || pass(from, to, &changes));
            }
        }
    });
    Ok(own)
}

fn pass(mut from: TcpStream, mut to: TcpStream, changes: &Changes) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        changes.change(&mut buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// What passes between receivers and the root.
#[derive(Clone)]
struct FromRoot {
    /// On the first connection on which a part of the stream passes, that of the first relay.
    changes: Changes,
    connections: Arc<AtomicUsize>,
}

impl FromRoot {
    fn new(count: i64) -> Self {
        Self { changes: Changes::new(count), connections: Arc::default() }
    }

    fn of_connection(&self) -> Changes {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        Changes { connection, ..self.changes.clone() }
    }
}

/// A port that leads to the root, for one receiver: what passes between it and members of higher ranks gets these changes.
fn control_proxy(root: u16, secret: &Secret, changes: Changes, from_root: FromRoot) -> u16 {
    let listener = TcpListener::bind(local(0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let secret = secret.clone();
    thread::spawn(move || {
        let deadline = Deadline::after(TIMEOUT);
        let here = Channel::accept(listener.accept().unwrap().0, &secret, deadline).unwrap();
        let there = Channel::connect(local(root), &secret, deadline).unwrap();
        let (messages, to_receiver) = (there.second(), here.second());
        let take = move |message| match message {
            ToReceiver::Start(start) => {
                let (address, from_root) = (start.group.addresses[0], from_root.clone());
                // Another receiver's proxy may have it already.
                let _ = tampered_at(address, address.port(), move || from_root.of_connection());
                ToReceiver::Start(start)
            }
            message => message,
        };
        thread::spawn(move || forward(messages, to_receiver, take));
        forward(here, there, |message| match message {
            ToRoot::Ready { port } => ToRoot::Ready { port: tampered(port, &changes) },
            message => message,
        });
    });
    port
}

fn forward<M: Serialize + DeserializeOwned>(
    mut from: Channel,
    mut to: Channel,
    change: impl Fn(M) -> M,
) {
    while let Ok(message) = from.receive::<M>(Deadline::after(TIMEOUT))
        && to.send(&change(message), Deadline::after(TIMEOUT)).is_ok()
    {}
    from.shutdown();
    to.shutdown();
}

#[derive(Clone, Default)]
struct Consumer(Arc<Mutex<Vec<u8>>>);

impl Write for Consumer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where receivers reach the root, which listens at another address with the same port.
const ROOT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Sends these bytes along a chain in which host 0 relays to host 1 with some changes, and the root sends with others.
/// Returns what arrived, and the hosts that noticed.
fn push(
    contents: &[u8],
    relayed: &Changes,
    from_root: &FromRoot,
) -> (StreamReport, Vec<Vec<u8>>, Vec<usize>) {
    let plans = (0..HOSTS).map(|host| HostPlan {
        name: format!("host-{host}"),
        destination: "unused".into(),
        rack: 0,
        reach: Reach::Calls,
    });
    let secret = Secret::random().unwrap();
    let mut settings = PushSettings::new(plans.collect(), secret.clone());
    settings.local_only = true;
    settings.advertise = Some(ROOT.into());
    settings.algorithm = Some(Algorithm::Chain);
    // Otherwise a link that changes bytes fails; a relay that does has the keys of its links.
    settings.protection = Some(Protection::None);
    // Processes that share memory send nothing through proxies; with any limit they do not share it.
    settings.rate_max = Some(10_000_000_000);
    let stream = Stream::open(settings, StreamSettings::default()).unwrap();
    let (consumers, honest) = ([(); HOSTS].map(|()| Consumer::default()), Changes::new(0));
    let receivers: Vec<_> = (0..HOSTS)
        .map(|host| {
            let relayed = if host == 0 { relayed } else { &honest }.clone();
            let port = control_proxy(stream.control_port(), &secret, relayed, from_root.clone());
            let settings = ReceiverSettings {
                output: Some(Output::new(consumers[host].clone())),
                ..ReceiverSettings::new(format!("host-{host}"), Placement::Anywhere)
            };
            let secret = secret.clone();
            thread::spawn(move || {
                let own = [Ipv4Addr::LOCALHOST.into()];
                receiver::serve(receiver::call(&own, port, &secret, TIMEOUT).unwrap(), &settings)
            })
        })
        .collect();
    let mut noticed = Vec::new();
    let report = stream.run(io::Cursor::new(contents.to_vec()), &mut |event| {
        if let PushEvent::Altered { host, .. } = event {
            noticed.push(host);
        }
    });
    receivers.into_iter().for_each(|receiver| drop(receiver.join().unwrap()));
    let taken = consumers.iter().map(|consumer| consumer.0.lock().unwrap().clone());
    (report, taken.collect(), noticed)
}

#[test]
fn what_a_relay_changes_reaches_no_output_and_is_sent_again() {
    let contents = LINE.repeat(600_000);
    // Once; now and then; always.
    for count in [1, 3, i64::MAX] {
        let changes = Changes::new(count);
        let (report, taken, noticed) = push(&contents, &changes, &FromRoot::new(0));
        assert!(changes.left() < count, "nothing was changed");
        assert!(!noticed.is_empty() && !noticed.contains(&0), "{noticed:?} of {count}");
        assert_eq!(report.published(), HOSTS, "{report:?}");
        assert!(taken.iter().all(|taken| *taken == contents));
        assert_eq!(report.digest, Some(blake3::hash(&contents)));
        assert!(report.hosts.iter().all(|host| host.state == HostState::Published));
    }
}

#[test]
fn a_host_whose_link_to_the_root_changes_bytes_fails_alone() {
    let contents = LINE.repeat(600_000);
    // On its way to the first relay, and again whenever it is sent there.
    let from_root = FromRoot::new(i64::MAX);
    let (report, taken, noticed) = push(&contents, &Changes::new(0), &from_root);
    assert!(from_root.changes.left() < i64::MAX, "nothing was changed");
    assert!(noticed.len() > 1, "{noticed:?}");
    let state = |host: &usize| &report.hosts[*host].state;
    let (published, failed): (Vec<usize>, Vec<usize>) =
        (0..HOSTS).partition(|host| *state(host) == HostState::Published);
    assert_eq!(failed.len(), 1, "{report:?}");
    let HostState::Failed(reason) = state(&failed[0]) else { panic!("{report:?}") };
    assert!(reason.contains("again after this machine sent them directly"), "{reason}");
    assert!(published.iter().all(|&host| taken[host] == contents));
    let good = &taken[failed[0]];
    assert!(contents.starts_with(good) && report.hosts[failed[0]].bytes == good.len() as u64);
}
