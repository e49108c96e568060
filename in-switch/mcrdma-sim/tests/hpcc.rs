//! The simulator beside the ns-3 model of HPCC's authors
//! (alibaba-edu/High-Precision-Congestion-Control at 9f4be2a9), with that one's DCQCN.
//!
//! Its figures: `simulation/scratch/third.cc` with the configuration that `run.py --cc dcqcn --bw 100` writes,
//! but `PACKET_PAYLOAD_SIZE 1024`; hosts at one switch, links of 100 Gbit/s and 0.5 µs; a flow from each sender at the
//! same time; the mean of the last flow's end, of `RngRun` 1 to 10. With `KMIN`, `KMAX` and `PMAX` as in
//! that file, and as in MC-RDMA's section VII-C.

use mcrdma::plan::{Device, Topology};
use mcrdma_sim::{Config, Costs, Dcqcn, Ecn, LinkConfig, Network, Notice, PS_PER_S, Pair, Pfc};

/// Where its queues are marked.
const HPCC: Ecn =
    Ecn { min_bytes: 400_000, max_bytes: 1_600_000, probability: 0.2, marks_leaving: true };
const MC_RDMA: Ecn =
    Ecn { min_bytes: 50_000, max_bytes: 500_000, probability: 0.01, marks_leaving: true };

/// Marks, senders, bytes of each, and when it takes the last to end, in milliseconds.
const THEIRS: [(Ecn, usize, u32, f64); 12] = [
    (HPCC, 2, 1_000_000, 0.390),
    (HPCC, 2, 8_000_000, 1.665),
    (HPCC, 4, 1_000_000, 0.577),
    (HPCC, 4, 8_000_000, 3.338),
    (HPCC, 6, 1_000_000, 0.985),
    (HPCC, 6, 8_000_000, 4.849),
    (MC_RDMA, 2, 1_000_000, 0.312),
    (MC_RDMA, 2, 8_000_000, 1.617),
    (MC_RDMA, 4, 1_000_000, 0.823),
    (MC_RDMA, 4, 8_000_000, 3.285),
    (MC_RDMA, 6, 1_000_000, 1.056),
    (MC_RDMA, 6, 8_000_000, 5.104),
];

/// Hosts at a switch, and the first of them with a queue pair from each other. Its model's switches pause a
/// port when it has an eighth of 32 MiB.
fn network(senders: usize, ecn: Ecn, seed: u64) -> (Network, Vec<Pair>) {
    let mut topology = Topology::new();
    let switch = topology.add("switch", Device::Plain);
    let hosts: Vec<_> = (0..=senders)
        .map(|host| {
            let host = topology.add(format!("h{host}"), Device::Host);
            topology.link(host, switch);
            host
        })
        .collect();
    let link = LinkConfig { bits_per_s: 100_000_000_000, delay_ns: 500 };
    let config = Config {
        host_link: link,
        switch_link: link,
        costs: Costs { post_ns: 0, completion_ns: 0 },
        ecn: Some(ecn),
        pfc: Some(Pfc { pause_bytes: 4 << 20, resume_bytes: (4 << 20) - 3072 }),
        dcqcn: Some(Dcqcn::hpcc(1e11)),
        seed,
        ..Config::default()
    };
    let mut network = Network::new(topology, config);
    let pairs = hosts[1..].iter().map(|&from| network.connect(from, hosts[0])).collect();
    (network, pairs)
}

fn ends_ms(senders: usize, bytes: u32, ecn: Ecn, seed: u64) -> f64 {
    let (mut network, pairs) = network(senders, ecn, seed);
    pairs.iter().for_each(|&pair| network.post(pair, bytes, 0));
    let (mut ended, mut last_ps) = (0, 0);
    while let Some(notice) = network.next(PS_PER_S) {
        if matches!(notice, Notice::Completed { is_done: true, .. }) {
            (ended, last_ps) = (ended + 1, network.now_ps());
        }
    }
    assert_eq!(ended, senders);
    last_ps as f64 / 1e9
}

fn mean_ends_ms(senders: usize, bytes: u32, ecn: Ecn) -> f64 {
    (1..=10).map(|seed| ends_ms(senders, bytes, ecn, seed)).sum::<f64>() / 10.0
}

/// Our packets have 3 % more headers. With two senders few packets are marked: their ends vary by a quarter and more
/// from seed to seed, in both.
#[test]
fn flows_to_one_host_end_when_they_do_in_hpccs_simulator() {
    for (ecn, senders, bytes, theirs_ms) in THEIRS {
        let ratio = mean_ends_ms(senders, bytes, ecn) / theirs_ms;
        println!("{senders} senders, {bytes} bytes, marks from {}: {ratio:.2}", ecn.min_bytes);
        let most = if senders > 2 { 1.1 } else { 1.4 };
        assert!((0.97..most).contains(&ratio), "{senders} {bytes} {ecn:?}: {ratio}");
    }
}

/// A queue that is marked at its end still sends marks while it shrinks: each of them is another cut.
#[test]
fn marks_of_packets_that_come_to_a_queue_cut_more_than_those_of_packets_that_leave_it() {
    let coming = Ecn { marks_leaving: false, ..MC_RDMA };
    let ratio = mean_ends_ms(6, 8_000_000, coming) / mean_ends_ms(6, 8_000_000, MC_RDMA);
    assert!((1.05..1.25).contains(&ratio), "{ratio}");
}
