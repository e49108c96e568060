//! A switch in a network namespace of the test's own, and hosts in others. Needs root.

use std::{
    collections::BTreeSet,
    io::Write,
    net::{IpAddr, UdpSocket},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use mcrdma::Port;
use roce::Mac;
use routes::{Hop, Kernel, NoHop, Snapshot, Station};

/// Timeout for changes in the kernel.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval without notifications that counts as quiet.
const QUIET: Duration = Duration::from_millis(700);

type Job = Box<dyn FnOnce() + Send>;

/// Whether these tests can run here; prints why not.
pub fn skipped() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: needs root (network namespaces)");
    }
    !is_root
}

pub fn ip(words: &str) {
    lab::ip(words).unwrap();
}

/// Runs `bridge` of iproute2, with these words.
pub fn bridge(words: &str) {
    let status = Command::new("bridge").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "bridge {words}");
}

/// Starts `ip` with these lines of commands.
pub fn batch(lines: &str) -> std::process::Child {
    let mut batch = Command::new("ip");
    let mut child = batch.args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child
}

/// The index of an interface.
pub fn index(name: &str) -> Port {
    let any = UdpSocket::bind("0.0.0.0:0").unwrap();
    rustix::net::netdevice::name_to_index(any, name).unwrap()
}

pub fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A hop with a gateway, or without: "-".
pub fn hop(port: &str, gateway: &str, mac: Mac) -> Hop {
    Hop { port: index(port), gateway: gateway.parse().ok(), mac }
}

/// A host: a thread in a network namespace of its own, which runs jobs.
pub struct Host {
    thread: i32,
    jobs: mpsc::Sender<Job>,
}

impl Host {
    pub fn new() -> Self {
        let (jobs, received) = mpsc::channel::<Job>();
        let (send_thread, thread) = mpsc::channel();
        thread::spawn(move || {
            lab::enter_own_network().unwrap();
            send_thread.send(rustix::thread::gettid().as_raw_pid()).unwrap();
            received.into_iter().for_each(|job| job());
        });
        Self { thread: thread.recv().unwrap(), jobs }
    }

    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = mpsc::channel();
        self.jobs.send(Box::new(move || sender.send(job()).unwrap())).unwrap();
        result.recv().expect("the job has ended well")
    }

    /// Joins this host to the switch's port, which is new. Its Ethernet address is `mac(last)`.
    pub fn join(&self, port: &str, last: u8, addresses: &'static [&'static str]) {
        let far = format!("{port}-far");
        ip(&format!("link add {port} type veth peer name {far} address {}", mac(last)));
        ip(&format!("link set {far} netns {}", self.thread));
        ip(&format!("link set {port} up"));
        self.run(move || {
            for address in addresses {
                own(&far, address);
            }
            ip(&format!("link set {far} up"));
        });
    }
}

/// Gives an interface an address, which is used at once.
pub fn own(interface: &str, address: &str) {
    let nodad = if address.contains(':') { " nodad" } else { "" };
    ip(&format!("addr add {address} dev {interface}{nodad}"));
}

/// A switch: this thread's network, and its ports.
pub struct Switch {
    pub kernel: Kernel,
    ports: BTreeSet<Port>,
}

impl Switch {
    /// Enters a network. The ports come later.
    pub fn enter() -> Self {
        lab::enter_own_network().unwrap();
        ip("link set lo up");
        Self { kernel: Kernel::open().unwrap(), ports: BTreeSet::new() }
    }

    pub fn set_ports(&mut self, names: &[&str]) {
        self.ports = names.iter().map(|name| index(name)).collect();
    }

    pub fn hops_to(&mut self, to: Station) -> Result<BTreeSet<Hop>, NoHop> {
        self.kernel.snapshot().unwrap().hops(&self.ports, to)
    }

    pub fn hops(&mut self, to: &str) -> Result<BTreeSet<Hop>, NoHop> {
        self.hops_to(Station { address: address(to), mac: None })
    }

    /// Waits for these next hops, by notifications.
    pub fn wait_for(&mut self, to: Station, wanted: &Result<BTreeSet<Hop>, NoHop>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let hops = self.hops_to(to);
            if hops == *wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{hops:?} instead of {wanted:?}");
            let _ = self.kernel.changed(Duration::from_secs(2)).unwrap();
        }
    }

    /// What there is when nothing changes any more.
    pub fn settle(&mut self) -> Snapshot {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let snapshot = self.kernel.snapshot().unwrap();
            if !self.kernel.changed(QUIET).unwrap() {
                return snapshot;
            }
            assert!(Instant::now() < deadline, "things go on changing");
        }
    }
}
