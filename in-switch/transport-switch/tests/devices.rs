//! A group's ends on unmodified software RDMA devices, with the switch in the kernel between them.
//!
//! Runs in the virtual machine of `./dev test-rdma`.

use std::{
    net::{IpAddr, TcpListener, TcpStream},
    path::PathBuf,
    time::{Duration, Instant},
};

use data_plane::{Groups, KernelPlane};
use mcrdma::{Counter, GroupKey, Replication, plan};
use roce::Serial;
use testing::{Place, places};
use transport::{Cause, Completion, EndpointId, Region, Token, Transport};
use transport_switch::{
    GroupEnd, Inserted, Member, Registration, Root, Suspicion, SwitchLink, SwitchTransport,
    Unconnected,
};
use transport_tcp::{TcpLink, TcpSettings, TcpTransport};

const ID: u32 = 0x80_0789;
/// Close to the maximum, so that packet numbers wrap soon.
const PSN_FIRST: u32 = 0xff_fff0;
const PATIENCE: Duration = Duration::from_secs(30);
/// How long packets of the root may have no answer where a test waits for that.
const SILENCE: Duration = Duration::from_millis(1_500);
const RECEIVERS: usize = 3;
/// More than a device accepts at once.
const BLOCKS: usize = 300;
const BLOCK_BYTES: usize = 10_000;

/// Length of each region: far more than copies of all blocks that can be in transit.
const REGION_BYTES: usize = 16 << 20;

/// One thread runs all members, each with a transport and a device of its own.
struct Stage {
    root: SwitchTransport,
    to_receivers: Vec<EndpointId>,
    receivers: Vec<(SwitchTransport, EndpointId)>,
    switch: Groups,
    key: GroupKey,
    directory: PathBuf,
    _registration: Registration,
}

struct Nobody;

impl Inserted for Nobody {
    fn trouble(&self) -> Option<String> {
        None
    }

    fn suspicions(&self) -> Vec<Suspicion> {
        Vec::new()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

fn open(place: &Place, peers: &[IpAddr]) -> Unconnected {
    let open = Unconnected::open(place.address, peers).unwrap();
    assert_eq!(open.device(), Some(&*place.device), "not its device");
    assert_eq!((open.mac(), open.mtu_bytes()), (place.mac(), 4096));
    open
}

/// Describes the group for the switch.
fn group(root: (IpAddr, u32), members: &[(&Place, u32)]) -> plan::Group {
    let member = |&(place, qpn): &(&Place, u32)| plan::Member {
        address: place.address,
        mac: Some(place.mac()),
        qpn,
        psn_offset: 0,
        regions: Vec::new(),
        delegation: Vec::new(),
    };
    plan::Group {
        key: GroupKey { sender: root.0, id: ID },
        sender_mac: None,
        sender_qpn: root.1,
        psn_first: Serial::new(PSN_FIRST),
        virtual_address: members[0].0.address,
        virtual_mac: members[0].0.mac(),
        instance: 0,
        all_notifications: false,
        members: members.iter().map(member).collect(),
    }
}

fn lifeline() -> [TcpLink; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    [own, peer].map(|stream| TcpLink::new(vec![stream]).unwrap())
}

fn transport() -> SwitchTransport {
    SwitchTransport::over(TcpTransport::new(TcpSettings::default()).unwrap())
}

impl Stage {
    fn new(name: &str, patience: Duration) -> Option<Self> {
        let places = places()?;
        let (own, others) = places.split_first().unwrap();
        let others = &others[..RECEIVERS];
        let addresses: Vec<IpAddr> = others.iter().map(|place| place.address).collect();
        let root = open(own, &addresses);
        let receivers: Vec<Unconnected> =
            others.iter().map(|place| open(place, &[own.address])).collect();
        let numbers = receivers.iter().map(Unconnected::number);
        let members: Vec<(&Place, u32)> = others.iter().zip(numbers).collect();
        let group = group((own.address, root.number()), &members);

        let directory = format!("/sys/fs/bpf/rdmc-test-{name}-{}", std::process::id());
        let mut switch = Groups::in_kernel(directory.as_ref()).unwrap();
        for place in &places {
            switch.kernel().unwrap().attach(&place.port).unwrap();
        }
        let branch = |(index, place): (usize, &Place)| {
            let port = KernelPlane::port_number(&place.port).unwrap();
            group.branch(port, place.mac(), &[index])
        };
        let branches = others.iter().enumerate().map(branch).collect();
        let replication =
            Replication { sender_qpn: group.sender_qpn, inputs: Vec::new(), branches };
        switch.insert(group.key, replication, Some(group.merging())).unwrap();

        let registration = Registration::new(Box::new(Nobody));
        let virtual_peer = Root {
            virtual_address: group.virtual_address,
            id: ID,
            psn_first: PSN_FIRST,
            mtu_bytes: 4096,
            buffer_bytes: usize::MAX,
            ack_timeout: patience,
        };
        let peer =
            Member { root: own.address, qpn: root.number(), psn_first: PSN_FIRST, mtu_bytes: 4096 };
        let root = root.connect_root(&virtual_peer).unwrap();
        let end = GroupEnd::root(root, RECEIVERS, registration.watch());
        let mut stage = Self {
            root: transport(),
            to_receivers: Vec::new(),
            receivers: Vec::new(),
            switch,
            key: group.key,
            directory: directory.into(),
            _registration: registration,
        };
        for receiver in receivers {
            let [one, other] = lifeline();
            let link = SwitchLink::of_group(one, end.clone());
            stage.to_receivers.push(stage.root.open(link).unwrap());
            let end = GroupEnd::receiver(receiver.connect_member(&peer).unwrap());
            let mut transport = transport();
            let endpoint = transport.open(SwitchLink::of_group(other, end)).unwrap();
            stage.receivers.push((transport, endpoint));
        }
        Some(stage)
    }

    /// Posts the same block to all receivers.
    fn send(&mut self, region: &Region, block: usize, bytes: usize) {
        let start = block * BLOCK_BYTES;
        for (index, &endpoint) in self.to_receivers.iter().enumerate() {
            let from = region.read(start..start + bytes).unwrap();
            let token = Token((block * RECEIVERS + index) as u64);
            self.root.post_send(endpoint, from, block as u32, token).unwrap();
        }
    }

    /// Returns what the root has completed by the timeout, or as soon as there are `enough`.
    fn poll_root(&mut self, enough: usize, patience: Duration) -> Vec<Completion> {
        let (mut found, deadline) = (Vec::new(), Instant::now() + patience);
        while found.len() < enough && Instant::now() < deadline {
            self.root.poll(&mut found, Duration::from_millis(5));
            // Devices answer by themselves, lifelines only when polled.
            for (transport, _) in &mut self.receivers {
                transport.poll(&mut Vec::new(), Duration::ZERO);
            }
        }
        found
    }
}

/// Returns lengths of all kinds.
fn length(block: usize) -> usize {
    match block {
        0 => 0,
        1 => 1,
        2..6 => 4093 + block,
        _ => BLOCK_BYTES - block,
    }
}

/// How much memory of this process is pinned for devices, in bytes.
fn pinned_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

fn contents() -> Vec<u8> {
    (0..BLOCKS * BLOCK_BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

#[test]
fn blocks_come_whole_and_in_order_through_devices() {
    let Some(mut stage) = Stage::new("blocks", PATIENCE) else { return };
    let pinned_before = pinned_bytes();
    let into: Vec<Region> = (0..RECEIVERS).map(|_| Region::zeroed(REGION_BYTES)).collect();
    for ((transport, endpoint), region) in stage.receivers.iter_mut().zip(&into) {
        for block in 0..BLOCKS {
            let start = block * BLOCK_BYTES;
            let lease = region.write(start..start + BLOCK_BYTES).unwrap();
            transport.post_receive(*endpoint, lease, Token(block as u64)).unwrap();
        }
    }
    // Read-only, as mapped files are.
    let from = Region::from_shared([contents(), vec![0; REGION_BYTES]].concat());
    for block in 0..BLOCKS {
        stage.send(&from, block, length(block));
    }
    let deadline = Instant::now() + PATIENCE;
    let (mut sent, mut received) = (Vec::new(), vec![Vec::new(); RECEIVERS]);
    while sent.len() < BLOCKS * RECEIVERS || received.iter().any(|list| list.len() < BLOCKS) {
        assert!(Instant::now() < deadline, "{} sent", sent.len());
        stage.root.poll(&mut sent, Duration::from_millis(1));
        for ((transport, _), list) in stage.receivers.iter_mut().zip(&mut received) {
            transport.poll(list, Duration::from_millis(1));
        }
    }
    assert!(sent.iter().all(|one| matches!(one, Completion::Sent { .. })));
    let bytes = contents();
    for ((list, region), (_, endpoint)) in received.iter().zip(&into).zip(&stage.receivers) {
        let found = region.read(0..region.len()).unwrap();
        for (block, completion) in list.iter().enumerate() {
            let (token, length) = (Token(block as u64), length(block));
            let (endpoint, immediate) = (*endpoint, block as u32);
            let bytes_come = length as u64;
            let expected = Completion::Received { endpoint, token, bytes: bytes_come, immediate };
            assert_eq!(*completion, expected);
            let start = block * BLOCK_BYTES;
            let (come, left) = found[start..start + BLOCK_BYTES].split_at(length);
            assert!(*come == bytes[start..start + length], "block {block}");
            assert!(left.iter().all(|&byte| byte == 0), "behind block {block}");
        }
    }
    // Registered whole where they are, rather than copied block by block. Other tests pin little beside that.
    let pinned = pinned_bytes().saturating_sub(pinned_before);
    println!("{pinned} bytes are pinned for {} regions of {REGION_BYTES}", RECEIVERS + 1);
    assert!(pinned >= RECEIVERS * REGION_BYTES, "{pinned}");
    drop((into, from));
    let left = pinned_bytes().saturating_sub(pinned_before);
    assert!(left < REGION_BYTES, "{left} bytes are pinned after their memory is gone");
    let counters = stage.switch.counters().unwrap();
    let (requests, copies) = (counters.counted(Counter::Request), counters.counted(Counter::Copy));
    let packets: usize = (0..BLOCKS).map(|block| length(block).div_ceil(4096).max(1)).sum();
    println!("{requests} packets from the root for {packets}, {copies} copies");
    assert!(requests >= packets as u64 && copies >= (RECEIVERS * packets) as u64);
}

#[test]
fn a_group_lost_by_its_switch_is_halted_and_completes_every_post() {
    let Some(mut stage) = Stage::new("forgotten", SILENCE) else { return };
    stage.switch.remove(stage.key).unwrap();
    let region = Region::from_vec(contents());
    stage.send(&region, 7, 5_000);
    let begin = Instant::now();
    let reported = stage.poll_root(1, PATIENCE);
    let [Completion::Halted { cause: Cause::Lost(why), .. }] = &reported[..] else {
        panic!("{reported:?}")
    };
    assert!(why.contains("forgotten the group"), "{why}");
    assert!(begin.elapsed() >= SILENCE);
    // Sends in flight stay open until the endpoints are closed.
    let endpoints = stage.to_receivers.clone();
    endpoints.iter().for_each(|&endpoint| stage.root.close(endpoint));
    let mut completions = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while completions.len() < RECEIVERS && Instant::now() < deadline {
        stage.root.poll(&mut completions, Duration::from_millis(5));
    }
    let cancelled = |(index, &endpoint): (usize, &EndpointId)| Completion::Cancelled {
        endpoint,
        token: Token((7 * RECEIVERS + index) as u64),
    };
    let expected: Vec<Completion> = endpoints.iter().enumerate().map(cancelled).collect();
    assert_eq!(completions[..RECEIVERS], expected);
    drop(region.write(0..region.len()).unwrap());
}

#[test]
fn a_wait_for_a_device_sleeps_until_a_block_comes() {
    let Some(mut stage) = Stage::new("waits", PATIENCE) else { return };
    let from = Region::from_vec(contents());
    for (transport, endpoint) in &mut stage.receivers {
        let into = Region::zeroed(BLOCK_BYTES).write(0..BLOCK_BYTES).unwrap();
        transport.post_receive(*endpoint, into, Token(0)).unwrap();
    }
    let (mut transport, endpoint) = stage.receivers.pop().unwrap();
    let waiting = std::thread::spawn(move || {
        let (mut found, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        let mut waits = 0;
        while found.is_empty() && Instant::now() < deadline {
            transport.poll(&mut found, PATIENCE);
            waits += 1;
        }
        (found, waits, transport)
    });
    std::thread::sleep(Duration::from_millis(300));
    stage.send(&from, 0, 5_000);
    let sent = stage.poll_root(RECEIVERS, PATIENCE);
    assert_eq!(sent.len(), RECEIVERS, "{sent:?}");
    let (found, waits, _transport) = waiting.join().unwrap();
    let block = Completion::Received { endpoint, token: Token(0), bytes: 5_000, immediate: 0 };
    assert_eq!(found, [block]);
    assert!(waits < 10, "{waits} waits");
}
