//! Hosts behind one switch that copies: each a thread in a network namespace of its own, on a veth
//! pair whose other end is a port of the switch. Needs root.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Barrier, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use data_plane::{Groups, KernelPlane, PlaneError, UserspacePlane};
use mcrdma::{Counters, GroupKey, Refused, Replication, plan};
use rdmc::{Delegates, InsertError, Inserted, Suspicion, Switches};

/// What interfaces carry: enough for packets with 4 KiB.
pub const MTU_BYTES: u32 = 4200;

/// Which data plane copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plane {
    /// Packet sockets.
    Userspace,
    /// The program in the kernel (eBPF).
    Kernel,
}

/// The address of a host, from 0.
pub fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 7, 0, host as u8 + 1).into()
}

/// Whether this test cannot run here; prints why.
pub fn skipped(plane: Plane) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root (network namespaces)");
        return true;
    }
    let possible = if plane == Plane::Kernel { KernelPlane::check() } else { Ok(()) };
    if let Err(error) = &possible {
        println!("SKIPPED: {error}");
    }
    possible.is_err()
}

/// Installs groups in the one switch, in place of an agent.
#[derive(Clone)]
pub struct OneSwitch {
    groups: Arc<Mutex<Groups>>,
    ports: Arc<HashMap<IpAddr, u32>>,
    refuses: Option<&'static str>,
    /// How often it first reports that the identifier is in use.
    pub duplicates: Arc<AtomicU32>,
    /// The fault that it reports.
    pub trouble: Arc<Mutex<Option<String>>>,
    /// The members that it suspects.
    pub suspicions: Arc<Mutex<Vec<Suspicion>>>,
}

impl fmt::Debug for OneSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneSwitch")
    }
}

struct InOne {
    switch: OneSwitch,
    key: GroupKey,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OneSwitch {
    /// Keys of all installed groups.
    pub fn groups(&self) -> Vec<GroupKey> {
        lock(&self.groups).all().into_iter().map(|group| group.key).collect()
    }

    /// The same, which refuses every group with these words.
    pub fn refusing(&self, reason: &'static str) -> Self {
        Self { refuses: Some(reason), ..self.clone() }
    }

    /// Counters of its data plane.
    pub fn counters(&self) -> Counters {
        lock(&self.groups).counters().unwrap()
    }

    /// Removes all groups, as after a restart.
    pub fn forget(&self) {
        for key in self.groups() {
            lock(&self.groups).remove(key).unwrap();
        }
    }
}

/// In place of a signature: what is signed.
fn signed(proposal: &plan::Proposal, member: &plan::Member) -> Vec<u8> {
    let member = plan::Member { delegation: Vec::new(), ..member.clone() };
    format!("{proposal:?} {member:?}").into_bytes()
}

impl Delegates for OneSwitch {
    fn delegate(
        &self,
        proposal: &plan::Proposal,
        member: &plan::Member,
    ) -> Result<Vec<u8>, String> {
        Ok(signed(proposal, member))
    }
}

impl Switches for OneSwitch {
    fn insert(
        &self,
        group: &plan::Group,
        timeout: Duration,
    ) -> Result<Box<dyn Inserted>, InsertError> {
        assert!(!timeout.is_zero());
        // Agents require this.
        let first = &group.members[0];
        assert_eq!((group.virtual_address, Some(group.virtual_mac)), (first.address, first.mac));
        assert!((0x80_0000..0x100_0000).contains(&group.key.id));
        for member in &group.members {
            let expected = signed(&group.proposal(), member);
            assert_eq!(member.delegation, expected, "{} has not agreed", member.address);
        }
        assert!(group.members.iter().all(|member| member.psn_offset == 0));
        if let Some(reason) = self.refuses {
            return Err(InsertError::Refused(reason.into()));
        }
        let again = |left: u32| left.checked_sub(1);
        if self.duplicates.fetch_update(Ordering::Relaxed, Ordering::Relaxed, again).is_ok() {
            return Err(InsertError::Duplicate);
        }
        let branches = group.members.iter().enumerate().map(|(index, member)| {
            group.branch(self.ports[&member.address], member.mac.unwrap(), &[index])
        });
        let (sender_qpn, branches) = (group.sender_qpn, branches.collect());
        let replication = Replication { sender_qpn, inputs: Vec::new(), branches };
        match lock(&self.groups).insert(group.key, replication, Some(group.merging())) {
            Ok(()) => Ok(Box::new(InOne { switch: self.clone(), key: group.key })),
            Err(PlaneError::Refused(Refused::Duplicate { .. })) => Err(InsertError::Duplicate),
            Err(error) => Err(InsertError::Refused(error.to_string())),
        }
    }
}

impl Inserted for InOne {
    fn trouble(&self) -> Option<String> {
        lock(&self.switch.trouble).clone()
    }

    fn suspicions(&self) -> Vec<Suspicion> {
        lock(&self.switch.suspicions).clone()
    }
}

impl Drop for InOne {
    fn drop(&mut self) {
        let _ = lock(&self.switch.groups).remove(self.key);
    }
}

/// Runs `act` on this many hosts concurrently, each on a thread in its own network, and `watch` on a thread of
/// this one. Returns the hosts' results.
pub fn run<R: Send>(
    plane: Plane,
    hosts: usize,
    watch: impl FnOnce(&OneSwitch) + Send,
    act: impl Fn(usize, &OneSwitch) -> R + Sync,
) -> Vec<R> {
    lab::enter_own_network().unwrap();
    let ports: Vec<String> = (0..hosts).map(|host| format!("s{host}")).collect();
    for (host, port) in ports.iter().enumerate() {
        lab::ip(&format!("link add {port} type veth peer name h{host}")).unwrap();
        lab::quiet(port, MTU_BYTES).unwrap();
    }
    let numbers = ports.iter().enumerate().map(|(host, port)| {
        let number = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        );
        let number = rustix::net::netdevice::name_to_index(number.unwrap(), port).unwrap();
        (address(host), number)
    });
    let numbers = numbers.collect();
    let (groups, end) = start(plane, &ports);
    let switch = OneSwitch {
        groups: Arc::new(Mutex::new(groups)),
        ports: Arc::new(numbers),
        refuses: None,
        duplicates: Arc::default(),
        trouble: Arc::default(),
        suspicions: Arc::default(),
    };
    let (moves, moved) = (Barrier::new(hosts + 1), Barrier::new(hosts + 1));
    let (tell_thread, threads) = mpsc::channel::<(usize, i32)>();
    let answers = thread::scope(|scope| {
        let (act, switch, moves, moved) = (&act, &switch, &moves, &moved);
        let running: Vec<_> = (0..hosts)
            .map(|host| {
                let tell_thread = tell_thread.clone();
                scope.spawn(move || {
                    lab::enter_own_network().unwrap();
                    tell_thread.send((host, rustix::thread::gettid().as_raw_pid())).unwrap();
                    moves.wait();
                    lab::ip(&format!("addr add {}/24 dev h{host}", address(host))).unwrap();
                    lab::quiet(&format!("h{host}"), MTU_BYTES).unwrap();
                    lab::ip("link set lo up").unwrap();
                    moved.wait();
                    act(host, switch)
                })
            })
            .collect();
        for _ in 0..hosts {
            let (host, thread) = threads.recv().unwrap();
            lab::ip(&format!("link set h{host} netns {thread}")).unwrap();
        }
        moves.wait();
        moved.wait();
        let watching = scope.spawn(move || watch(switch));
        let answers = running.into_iter().map(|thread| thread.join().unwrap()).collect();
        watching.join().unwrap();
        answers
    });
    drop(switch);
    end();
    answers
}

type End = Box<dyn FnOnce()>;

/// A switch with these ports, and a function that ends it.
fn start(plane: Plane, ports: &[String]) -> (Groups, End) {
    if plane == Plane::Userspace {
        let mut plane = UserspacePlane::open(ports.iter().map(String::as_str)).unwrap();
        let (tables, stop) = (plane.tables(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || plane.run(&stopped).unwrap());
        let end = move || {
            stop.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        };
        return (Groups::in_userspace(tables), Box::new(end));
    }
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = format!("/sys/fs/bpf/rdmc-test-groups-{number}-{}", std::process::id());
    let mut groups = Groups::in_kernel(directory.as_ref()).unwrap();
    lab::ip("link add name bridge0 type bridge mcast_snooping 0").unwrap();
    lab::quiet("bridge0", MTU_BYTES).unwrap();
    for port in ports {
        lab::ip(&format!("link set {port} master bridge0")).unwrap();
        groups.kernel().unwrap().attach(port).unwrap();
    }
    (groups, Box::new(move || std::fs::remove_dir_all(directory).unwrap()))
}
