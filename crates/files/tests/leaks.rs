//! Pushes and receivers release all resources. One test, alone in its process, since it counts the
//! resources of the process.

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use files::{
    HostPlan, HostState, ListOptions, Push, PushSettings, Reach, Selection, Server, ServerSettings,
    Source,
    receiver::{self, Fetch, Placement, ReceiverSettings},
};
use rdmc::Secret;
use transport_contract::CountingAllocator;

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

const TIMEOUT: Duration = Duration::from_secs(60);
const HOSTS: usize = 2;
const BYTES: usize = 300_000;
const WARM_UP: usize = 10;
const PUSHES: usize = 50;
/// Spare capacity that tables keep: less than the smallest leak of every push.
const SLACK_BYTES: usize = 8 << 10;
const SLACK_ALLOCATIONS: usize = (PUSHES - WARM_UP) / 2;

#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    allocations: usize,
    bytes: usize,
}

impl Held {
    fn now() -> Self {
        let count = |directory: &str| fs::read_dir(directory).unwrap().count();
        let mappings = fs::read_to_string("/proc/self/maps").unwrap();
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            // Files that are mapped; the allocator's own and stacks come and go.
            mappings: mappings.lines().filter(|line| line.contains('/')).count(),
            allocations: MEMORY.allocations(),
            bytes: MEMORY.bytes(),
        }
    }

    fn is_no_more_than(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.mappings <= before.mappings
            && self.allocations <= before.allocations + SLACK_ALLOCATIONS
            && self.bytes <= before.bytes + SLACK_BYTES
    }
}

/// One push to receivers that are threads of this process. Every fifth loses one of them before the
/// transfer: its destination is a directory.
fn push(directory: &Path, number: usize) {
    let secret = Secret::random().unwrap();
    let fails = number % 5 == 4;
    let place = |host: usize| match (fails, host) {
        (true, 1) => directory.to_owned(),
        _ => directory.join(format!("copy-{number}-{host}")),
    };
    let plans = (0..HOSTS).map(|host| HostPlan {
        name: format!("host-{host}"),
        destination: place(host).to_str().unwrap().to_owned(),
        rack: 0,
        reach: Reach::Calls,
    });
    let mut settings = PushSettings::new(plans.collect(), secret.clone());
    settings.local_only = true;
    settings.block_bytes = Some(10_000);
    let push = Push::open(Source::open(&directory.join("object")).unwrap(), settings).unwrap();
    let port = push.control_port();
    let receivers: Vec<_> = (0..HOSTS)
        .map(|host| {
            let settings = ReceiverSettings::new(format!("host-{host}"), Placement::Anywhere);
            let secret = secret.clone();
            thread::spawn(move || {
                let own = [Ipv4Addr::LOCALHOST.into()];
                let channel = receiver::call(&own, port, &secret, TIMEOUT).unwrap();
                receiver::serve(channel, &settings)
            })
        })
        .collect();
    let report = push.run(&mut |_| {});
    let outcomes: Vec<_> = receivers.into_iter().map(|thread| thread.join().unwrap()).collect();
    for (host, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.is_ok(), !(fails && host == 1), "{report:?}, {outcomes:?}");
        let has_it = matches!(report.hosts[host].state, HostState::Published);
        assert_eq!(has_it, outcome.is_ok(), "{report:?}");
        if has_it {
            fs::remove_file(place(host)).unwrap();
        }
    }
}

/// A host that fetches the object from a server.
fn fetch(
    directory: &Path,
    server: &Server,
    to: &str,
    shares: Option<Duration>,
    stop: &Arc<AtomicBool>,
) -> thread::JoinHandle<()> {
    let destination = directory.join(to).to_str().unwrap().to_owned();
    let settings = ReceiverSettings {
        fetch: Some(Fetch { path: "object".to_owned(), destination, shares, reports_files: true }),
        stop: Arc::clone(stop),
        ..ReceiverSettings::new(to.to_owned(), Placement::Anywhere)
    };
    let address = server.address().to_string();
    let credentials = Secret::from_bytes([9; 32]).into();
    thread::spawn(move || {
        let channel = receiver::join(&address, &credentials, TIMEOUT).unwrap();
        receiver::serve(channel, &settings).unwrap();
    })
}

/// One session of a server, in which many hosts come one after another.
fn serve(directory: &Path, hosts: usize) {
    let secret = Secret::from_bytes([9; 32]);
    let mut session = PushSettings::new(Vec::new(), secret.clone());
    session.local_only = true;
    let settings = ServerSettings {
        directories: vec![directory.to_owned()],
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        credentials: secret.into(),
        options: ListOptions::new(Selection::default()),
        objects_max: 1,
        session,
    };
    let server = Server::open(settings, |_| {}).unwrap();
    let stop = Arc::default();
    // The session lasts as long as this one shares what it has.
    let sharing = fetch(directory, &server, "sharing", Some(TIMEOUT * 10), &stop);
    let deadline = Instant::now() + TIMEOUT;
    while !directory.join("sharing").exists() {
        assert!(Instant::now() < deadline, "it does not come");
        thread::sleep(Duration::from_millis(1));
    }
    let mut before = None;
    for host in 0..hosts {
        fetch(directory, &server, "fetched", None, &Arc::default()).join().unwrap();
        fs::remove_file(directory.join("fetched")).unwrap();
        if host == hosts / 3 {
            before = Some(Held::now());
        }
    }
    let before = before.unwrap();
    let is_more = |now: &Held| now.descriptors > before.descriptors || now.threads > before.threads;
    // The last ones end a moment later.
    while is_more(&Held::now()) {
        assert!(Instant::now() < deadline, "{before:?} after a third, {:?} now", Held::now());
        thread::sleep(Duration::from_millis(10));
    }
    stop.store(true, Ordering::Relaxed);
    sharing.join().unwrap();
    server.close(TIMEOUT);
    fs::remove_file(directory.join("sharing")).unwrap();
}

#[test]
fn pushes_and_receivers_leak_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let contents: Vec<u8> = (0..BYTES).map(|index| (index % 253) as u8).collect();
    fs::write(directory.path().join("object"), contents).unwrap();
    let threads = Held::now().threads;
    serve(directory.path(), 30);
    (0..WARM_UP).for_each(|number| push(directory.path(), number));
    // Threads that have answered a connection end a moment later.
    let deadline = Instant::now() + TIMEOUT;
    while Held::now().threads > threads {
        assert!(Instant::now() < deadline, "{threads} threads at the start, {:?} now", Held::now());
        thread::sleep(Duration::from_millis(10));
    }
    let before = Held::now();
    (WARM_UP..PUSHES).for_each(|number| push(directory.path(), number));
    let deadline = Instant::now() + TIMEOUT;
    while !Held::now().is_no_more_than(&before) {
        assert!(Instant::now() < deadline, "{before:?} before, {:?} now", Held::now());
        thread::sleep(Duration::from_millis(10));
    }
    println!("{before:?} before, {:?} now", Held::now());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the object");
}
