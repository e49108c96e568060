//! Hosts at one switch in the kernel, each in a network namespace of its own, with its daemon and its
//! queue pairs in userspace.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use agent::{AgentSettings, Clock, Liveness, ManualClock, Plane};
use control::{Agent, host::client::Host, proto, watcher::Probing};
use data_plane::{Groups, KernelPlane};
use endpoint::Endpoint;
use host::DaemonSettings;
use lab::Network;
use session::certificates::{CertificateFiles, Certificates};
use testing::{Authority, Issued};
use tokio::{runtime::Runtime, sync::oneshot};

/// The sender of most groups, and three others.
pub const HOSTS: usize = 4;
const SWITCH: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 5, 0, 254));
const AGENT_PORT: u16 = 4790;
const DAEMON_PORT: u16 = 4789;
/// By the agent's clock. Daemons renew leases at least three times in this much real time.
pub const STALE_AFTER: Duration = Duration::from_secs(1);

/// All deadlines are this many times the defaults, so that a slow machine keeps them as well: an adapter's
/// timeouts, too ([`crate::flow::adapter`]).
pub const SLOWER: u32 = 6;

fn liveness() -> Liveness {
    let Liveness { interval, carrier_lost_after, silent_after } = Liveness::default();
    Liveness {
        interval: interval * SLOWER,
        carrier_lost_after: carrier_lost_after * SLOWER,
        silent_after: silent_after * SLOWER,
    }
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 5, 0, host as u8 + 1).into()
}

/// Where a host's daemon is.
pub fn daemon(host: usize) -> String {
    SocketAddr::new(address(host), DAEMON_PORT).to_string()
}

fn link(host: usize) -> String {
    format!("h{host}")
}

/// Whether this machine can run these tests; prints why not.
pub fn is_possible() -> bool {
    let possible = KernelPlane::check();
    if let Err(error) = &possible {
        println!("SKIPPED: needs root (network namespaces, eBPF): {error}");
    }
    possible.is_ok()
}

/// An agent or a daemon, in a thread of its own.
struct Running {
    stop: oneshot::Sender<()>,
    kill: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Serves in the network of this thread.
    fn start<S>(serve: impl FnOnce(oneshot::Receiver<()>) -> S + Send + 'static) -> Self
    where
        S: Future<Output = ()>,
    {
        let (stop, stopped) = oneshot::channel();
        let (kill, killed) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = runtime();
            runtime.block_on(async {
                tokio::select! {
                    () = serve(stopped) => {}
                    Ok(()) = killed => {}
                }
            });
            // What is under way is dropped, as if the process had ended.
            runtime.shutdown_background();
        });
        Self { stop, kill, thread }
    }

    fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }

    fn kill(self) {
        self.kill.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

/// Everything that there is.
pub struct World {
    networks: Vec<Network>,
    switch: Network,
    authority: Authority,
    directory: tempfile::TempDir,
    maps: PathBuf,
    /// The agent's: leases expire when a test advances it.
    pub clock: ManualClock,
    /// The agent's, and how long its leases last.
    leases: (Clock, Duration),
    agent: Option<Running>,
    daemons: Vec<Option<Running>>,
    pub endpoints: Vec<Endpoint>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.daemons.iter_mut().filter_map(Option::take).for_each(Running::kill);
        if let Some(agent) = self.agent.take() {
            agent.end();
        }
        let _ = std::fs::remove_dir_all(&self.maps);
    }
}

impl World {
    pub fn new() -> Self {
        let clock = ManualClock::new();
        let leases = (Clock::Manual(clock.clone()), STALE_AFTER);
        Self::with_clock(clock, leases)
    }

    /// With an agent whose clock is the machine's.
    pub fn in_real_time() -> Self {
        Self::with_clock(ManualClock::new(), (Clock::Machine, agent::STALE_AFTER))
    }

    fn with_clock(clock: ManualClock, leases: (Clock, Duration)) -> Self {
        lab::enter_own_network().unwrap();
        let networks: Vec<Network> = (0..HOSTS).map(|_| Network::new().unwrap()).collect();
        let switch = Network::new().unwrap();
        for (host, network) in networks.iter().enumerate() {
            lab::ip(&format!("link add {} type veth peer name s{host}", link(host))).unwrap();
            lab::ip(&format!("link set {} netns {}", link(host), network.thread())).unwrap();
            lab::ip(&format!("link set s{host} netns {}", switch.thread())).unwrap();
        }
        switch.run(|| {
            lab::ip("link add name bridge0 type bridge mcast_snooping 0").unwrap();
            lab::ip(&format!("addr add {SWITCH}/24 dev bridge0")).unwrap();
            lab::quiet("bridge0", 4200).unwrap();
            for host in 0..HOSTS {
                lab::ip(&format!("link set s{host} master bridge0")).unwrap();
                lab::quiet(&format!("s{host}"), 4200).unwrap();
            }
        });
        let open = |host: usize| {
            networks[host].run(move || {
                lab::ip(&format!("addr add {}/24 dev {}", address(host), link(host))).unwrap();
                lab::quiet(&link(host), 4200).unwrap();
                Endpoint::open(&link(host), address(host)).unwrap()
            })
        };
        let endpoints = (0..HOSTS).map(open).collect();
        let thread = rustix::thread::gettid().as_raw_pid();
        let mut world = Self {
            networks,
            switch,
            authority: Authority::new("hosts"),
            directory: tempfile::tempdir().unwrap(),
            maps: format!("/sys/fs/bpf/rdmc-test-hosts-{thread}").into(),
            clock,
            leases,
            agent: None,
            daemons: (0..HOSTS).map(|_| None).collect(),
            endpoints,
        };
        world.start_agent();
        (0..HOSTS).for_each(|host| world.start_daemon(host));
        world
    }

    /// Starts the agent, on what one before has left in the kernel.
    pub fn start_agent(&mut self) {
        let files = self.authority.issue(&SWITCH.to_string());
        let (maps, (clock, stale_after)) = (self.maps.clone(), self.leases.clone());
        let running = self.switch.run(move || {
            let certificates = certificates(files);
            let listener = agent::listen((SWITCH, AGENT_PORT).into()).unwrap();
            let mut groups = Groups::in_kernel(&maps).unwrap();
            let ports = (0..HOSTS).map(|host| {
                let port = format!("s{host}");
                groups.kernel().unwrap().attach(&port).unwrap();
                let number = KernelPlane::port_number(&port).unwrap();
                (port, number)
            });
            let settings = AgentSettings {
                name: "switch".into(),
                ports: ports.collect(),
                next: Vec::new(),
                trusted: Vec::new(),
                stale_after,
                groups_per_host_max: agent::GROUPS_PER_HOST_MAX,
                liveness: liveness(),
            };
            // Made here, as its routes are those of this thread's network.
            Running::start(move |stopped| async move {
                let plane = Plane::Kernel(Box::new(groups));
                let prepared = agent::prepare(settings, plane, &certificates, clock).unwrap();
                let stop = async { drop(stopped.await) };
                agent::serve(prepared, listener, &certificates, stop).await.unwrap();
            })
        });
        self.agent = Some(running);
    }

    pub fn end_agent(&mut self) {
        self.agent.take().unwrap().end();
    }

    pub fn start_daemon(&mut self, host: usize) {
        let files = self.authority.issue(&address(host).to_string());
        let settings = DaemonSettings {
            agent: SocketAddr::new(SWITCH, AGENT_PORT).to_string(),
            socket: self.socket(host),
            socket_mode: 0o600,
            trusted: Vec::new(),
            delegation_lasts: host::DELEGATION_LASTS,
            probing: Probing::within(Probing::default().timeout * SLOWER),
        };
        let running = self.networks[host].run(move || {
            let certificates = certificates(files);
            let listener = TcpListener::bind((address(host), DAEMON_PORT)).unwrap();
            let (ready, is_ready) = mpsc::channel();
            let running = Running::start(move |stopped| async move {
                let prepared = host::prepare(&settings, &certificates).unwrap();
                ready.send(()).unwrap();
                host::serve(prepared, listener, async { drop(stopped.await) }).await.unwrap();
            });
            is_ready.recv().unwrap();
            running
        });
        self.daemons[host] = Some(running);
    }

    pub fn end_daemon(&mut self, host: usize) {
        self.daemons[host].take().unwrap().end();
    }

    pub fn kill_daemon(&mut self, host: usize) {
        self.daemons[host].take().unwrap().kill();
    }

    /// Cuts a host off.
    pub fn cut(&self, host: usize) {
        self.switch.run(move || lab::ip(&format!("link set s{host} down")).unwrap());
    }

    /// A host no longer answers, and its link stays up. Its queue pairs go on.
    pub fn silence(&self, host: usize) {
        self.networks[host]
            .run(move || lab::ip(&format!("addr flush dev {}", link(host))).unwrap());
    }

    fn socket(&self, host: usize) -> PathBuf {
        self.directory.path().join(format!("{host}.sock"))
    }

    /// A connection of an application's to its host's daemon.
    pub fn host(&self, host: usize) -> Host {
        Host::at(&self.socket(host))
    }

    /// The groups that the switch has.
    pub fn groups(&self) -> Vec<proto::GroupReport> {
        self.ask(async |agent| agent.groups().await.unwrap())
    }

    /// How often the switch has answered ARP for a virtual address.
    pub fn resolved(&self) -> u64 {
        let counts = self.ask(async |agent| agent.counters().await.unwrap());
        counts.iter().find(|count| count.name == "resolved").unwrap().count
    }

    fn ask<T: Send + 'static>(&self, ask: impl AsyncFnOnce(Agent) -> T + Send + 'static) -> T {
        let files = self.authority.issue(&address(0).to_string());
        self.networks[0].run(move || {
            let certificates = certificates(files);
            runtime().block_on(async {
                let agent = SocketAddr::new(SWITCH, AGENT_PORT).to_string();
                ask(Agent::new(&agent, &certificates).unwrap()).await
            })
        })
    }
}

/// What these files hold.
fn certificates(issued: Issued) -> Certificates {
    let files = issued.into_files(|certificate, key, authorities| CertificateFiles {
        certificate,
        key,
        authorities,
    });
    Certificates::read(&files, &[]).unwrap()
}
