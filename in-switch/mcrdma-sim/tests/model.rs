//! Properties of the model.

use mcrdma::plan::{Device, Node, Topology};
use mcrdma_sim::{Config, Costs, Network, Notice, PS_PER_NS, PS_PER_S, Pair, Pattern, Replicator};
use roce::rc::RequesterConfig;

const HOUR_PS: u64 = 3600 * PS_PER_S;
const MESSAGE_BYTES: u32 = 1 << 20;
/// Ethernet, IP, UDP, BTH, both check sequences, preamble and gap.
const HEADER_BYTES: u64 = 14 + 20 + 8 + 12 + 4 + 4 + 20;

fn racks() -> Topology {
    Topology::racks(4, 2, Device::Plain)
}

fn config() -> Config {
    Config { costs: Costs { post_ns: 0, completion_ns: 0 }, ..Config::default() }
}

/// At line rate, without congestion control.
fn unlimited() -> Config {
    let requester = RequesterConfig { rate: None, ..config().requester };
    Config { requester, ecn: None, ..config() }
}

fn host(network: &Network, name: &str) -> Node {
    network.topology().find(name).unwrap()
}

fn hosts(network: &Network, names: &[&str]) -> Vec<Node> {
    names.iter().map(|name| host(network, name)).collect()
}

/// Posts this many messages to each pair and runs until all are there; answers how many arrived
/// at whom, and when the last did.
fn run_all(network: &mut Network, pairs: &[Pair], messages: u64) -> (u64, u64) {
    for &pair in pairs {
        (0..messages).for_each(|token| network.post(pair, MESSAGE_BYTES, token));
    }
    let (mut arrived, mut last_ps) = (0, 0);
    let mut open = pairs.len() as u64 * messages;
    while let Some(notice) = network.next(HOUR_PS) {
        match notice {
            Notice::Completed { is_done, .. } => {
                assert!(is_done);
                open -= 1;
            }
            Notice::Arrived { .. } => (arrived, last_ps) = (arrived + 1, network.now_ps()),
            Notice::Timer { .. } => {}
        }
    }
    assert_eq!(open, 0, "each message ends once");
    (arrived, last_ps)
}

#[test]
fn a_single_packet_takes_the_sum_of_its_links_times() {
    let mut network = Network::new(racks(), config());
    let pair = network.connect(host(&network, "a1"), host(&network, "b1"));
    network.post(pair, 128, 0);
    // Two links of 100 Gbit/s, 80 ps for each byte, and two of 400; 500 ns each.
    let way_ps = |bytes: u64| 2 * bytes * (80 + 20) + 4 * 500 * PS_PER_NS;
    let arrived = network.next(HOUR_PS);
    assert_eq!(arrived, Some(Notice::Arrived { pair, member: 0, token: 0 }));
    let there_ps = way_ps(128 + HEADER_BYTES);
    assert_eq!(network.now_ps(), there_ps);
    let completed = network.next(HOUR_PS);
    assert_eq!(completed, Some(Notice::Completed { pair, token: 0, is_done: true }));
    // The answer has an AETH of 4 bytes.
    assert_eq!(network.now_ps(), there_ps + way_ps(4 + HEADER_BYTES));
}

#[test]
fn processing_costs_of_posts_and_completions_add_up() {
    let costs = Costs { post_ns: 300, completion_ns: 700 };
    let mut network = Network::new(racks(), Config { costs, ..config() });
    let pair = network.connect(host(&network, "a1"), host(&network, "b1"));
    network.post(pair, 128, 0);
    network.post(pair, 128, 1);
    network.next(HOUR_PS);
    let first_ps = network.now_ps();
    let way_ps = 2 * (128 + HEADER_BYTES) * 100 + 4 * 500 * PS_PER_NS;
    assert_eq!(first_ps, (300 + 700) * PS_PER_NS + way_ps);
    network.next(HOUR_PS);
    assert_eq!(network.now_ps(), first_ps + 700 * PS_PER_NS, "the slower thread sets the pace");
}

#[test]
fn a_single_flow_gets_the_whole_link() {
    for config in [config(), unlimited()] {
        let mut network = Network::new(racks(), config);
        let pair = network.connect(host(&network, "a1"), host(&network, "b1"));
        let (arrived, last_ps) = run_all(&mut network, &[pair], 20);
        assert_eq!(arrived, 20);
        let bits = f64::from(MESSAGE_BYTES) * 20.0 * 8.0;
        let payload_part = 1024.0 / (1024 + HEADER_BYTES) as f64;
        let share = bits / (last_ps as f64 / 1e12) / (1e11 * payload_part);
        assert!((0.99..=1.0).contains(&share), "{share}");
        assert_eq!(network.transferred(pair).notifications, 0);
    }
}

#[test]
fn two_flows_share_a_link_fairly() {
    let mut network = Network::new(racks(), config());
    let target = host(&network, "c1");
    let pairs = ["a1", "b1"].map(|name| network.connect(host(&network, name), target));
    for pair in pairs {
        (0..1000).for_each(|token| network.post(pair, MESSAGE_BYTES, token));
    }
    let bytes = |network: &Network| pairs.map(|pair| network.transferred(pair).bytes as f64);
    // Until DCQCN has converged.
    while network.next(40 * PS_PER_S / 1000).is_some() {}
    let before = bytes(&network);
    while network.next(80 * PS_PER_S / 1000).is_some() {}
    let after = bytes(&network);
    let share = |at: usize| (after[at] - before[at]) * 8.0 / 40e-3 / 1e11;
    let [one, other] = [share(0), share(1)];
    assert!(one + other > 0.85 && (one - other).abs() < 0.1, "{one} {other}");
}

#[test]
fn pauses_keep_packets_from_being_dropped() {
    let senders = ["a1", "a2", "b1", "b2", "c1", "c2", "d1"];
    let run = |config: Config| {
        let mut network = Network::new(racks(), config);
        let target = host(&network, "d2");
        let pairs: Vec<Pair> =
            senders.iter().map(|name| network.connect(host(&network, name), target)).collect();
        let (arrived, _) = run_all(&mut network, &pairs, 4);
        assert_eq!(arrived, 28);
        let links: Vec<_> = network.topology().links().collect();
        let pauses: u64 = links.iter().map(|&(a, b)| network.carried(a, b).pauses).sum();
        let repeated: u64 = pairs.iter().map(|&pair| network.transferred(pair).repeated).sum();
        (network.drops().no_room, pauses, repeated)
    };
    let (dropped, pauses, repeated) = run(unlimited());
    assert_eq!((dropped, repeated), (0, 0));
    assert!(pauses > 0);
    let (dropped, pauses, repeated) =
        run(Config { pfc: None, buffer_bytes: 1 << 20, ..unlimited() });
    assert!(dropped > 0 && repeated >= dropped && pauses == 0);
}

#[test]
fn with_losses_everything_arrives_once() {
    let mut network = Network::new(racks(), config());
    let [spine, tor, a1] = ["spine", "tor-d", "a1"].map(|name| host(&network, name));
    let members = hosts(&network, &["b1", "d1", "a2"]);
    let group = network.connect_group(a1, &members).unwrap();
    let single = network.connect(host(&network, "c1"), members[1]);
    assert!(network.lose(spine, tor, 0.001) && network.lose(tor, members[1], 0.002));
    let (arrived, _) = run_all(&mut network, &[group, single], 20);
    assert_eq!(arrived, 20 * 4);
    assert!(network.carried(tor, members[1]).lost > 0);
    for pair in [group, single] {
        let counts = network.transferred(pair);
        assert_eq!(counts.bytes, 20 * u64::from(MESSAGE_BYTES));
        assert!(counts.repeated > 0);
    }
    assert_eq!(network.drops(), mcrdma_sim::Drops::default());
}

/// Replicates one message; answers the time, and what the sender's link has carried.
fn replicate(pattern: Pattern, bytes: u32, spine: Device) -> (u64, u64, u64) {
    let mut network = Network::new(Topology::racks(4, 2, spine), config());
    let [a1, tor, above] = ["a1", "tor-a", "spine"].map(|name| host(&network, name));
    let members = hosts(&network, &["b1", "d1"]);
    let mut replicator = Replicator::new(&mut network, pattern, a1, &members).unwrap();
    replicator.post(&mut network, bytes, 7);
    let mut done_ps = None;
    while let Some(notice) = network.next(HOUR_PS) {
        if let Some(done) = replicator.handle(&mut network, notice) {
            assert_eq!((done, done_ps), ((7, true), None));
            done_ps = Some(network.now_ps());
        }
    }
    for &pair in replicator.forward() {
        assert_eq!(network.transferred(pair).bytes, u64::from(bytes));
    }
    let [link, uplink] = [(a1, tor), (tor, above)].map(|(from, to)| network.carried(from, to));
    (done_ps.unwrap(), link.payload_bytes, uplink.payload_bytes)
}

#[test]
fn the_senders_link_carries_a_message_once_and_that_of_a_fan_out_twice() {
    let bytes = MESSAGE_BYTES;
    let once = u64::from(bytes);
    let (in_switch_ps, link, uplink) = replicate(Pattern::InSwitch, bytes, Device::Plain);
    assert_eq!((link, uplink), (once, 2 * once), "the first switch copies, for a plain one");
    let (_, link, uplink) = replicate(Pattern::InSwitch, bytes, Device::Copies);
    assert_eq!((link, uplink), (once, once));
    let (fanout_ps, link, _) = replicate(Pattern::Fanout, bytes, Device::Plain);
    assert_eq!(link, 2 * once);
    let (chain_ps, link, _) = replicate(Pattern::Chain, bytes, Device::Plain);
    assert_eq!(link, once);
    // A message's time on a link is nearly all there is.
    for slower_ps in [fanout_ps, chain_ps] {
        let ratio = slower_ps as f64 / in_switch_ps as f64;
        assert!((1.9..2.1).contains(&ratio), "{ratio}");
    }
}

#[test]
fn a_message_of_a_chain_is_complete_when_its_acknowledgement_is_back() {
    let times = Pattern::ALL.map(|pattern| replicate(pattern, 128, Device::Plain).0);
    let [in_switch_ps, fanout_ps, chain_ps] = times;
    assert!(in_switch_ps < fanout_ps, "one packet's time on the link less");
    // Forth to the first host, there and back to the second, back to the sender: four ways.
    let ratio = chain_ps as f64 / in_switch_ps as f64;
    assert!((1.9..2.1).contains(&ratio), "{ratio}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let topology = Topology::fat_tree(4, 2, Device::Copies);
        let mut network = Network::new(topology, Config { seed, ..config() });
        let members = hosts(&network, &["h5", "h9", "h14"]);
        let group = network.connect_group(host(&network, "h0"), &members).unwrap();
        let pairs: Vec<Pair> = ["h1", "h3", "h7"]
            .map(|name| network.connect(host(&network, name), members[0]))
            .into_iter()
            .chain([group])
            .collect();
        let (arrived, last_ps) = run_all(&mut network, &pairs, 8);
        assert_eq!(arrived, 8 * 6);
        (last_ps, pairs.iter().map(|&pair| network.transferred(pair)).collect::<Vec<_>>())
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).0, run(4).0, "chance decides which packets are marked");
}

#[test]
fn a_member_that_shares_its_link_slows_its_group() {
    let mut network = Network::new(racks(), config());
    let members = hosts(&network, &["b1", "d1"]);
    let group = network.connect_group(host(&network, "a1"), &members).unwrap();
    let other = network.connect(host(&network, "c1"), members[0]);
    for pair in [group, other] {
        (0..500).for_each(|token| network.post(pair, MESSAGE_BYTES, token));
    }
    let bytes = |network: &Network| [group, other].map(|pair| network.transferred(pair).bytes);
    // DCQCN's first reactions are strong, and take some time to be made up for.
    while network.next(15 * PS_PER_S / 1000).is_some() {}
    let before = bytes(&network);
    while network.next(35 * PS_PER_S / 1000).is_some() {}
    let after = bytes(&network);
    let share = |at: usize| (after[at] - before[at]) as f64 * 8.0 / 20e-3 / 1e11;
    let [group_share, other_share] = [share(0), share(1)];
    assert!((0.25..0.65).contains(&group_share), "{group_share} {other_share}");
    assert!(group_share + other_share > 0.8, "{group_share} {other_share}");
    assert!(network.transferred(group).notifications > 0);
}
