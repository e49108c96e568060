//! Short versions of the experiments: their rows are complete and plausible.

use mcrdma_sim::{
    Distribution, Pattern,
    experiments::{
        LossSettings, SingleSettings, StorageSettings, TrainingSettings, loss, single_client,
        storage, training,
    },
};

#[test]
fn one_client_sends_each_byte_once_or_twice() {
    let settings =
        SingleSettings { request_bytes: vec![128, 1 << 18], requests: 40, ..Default::default() };
    let rows = single_client(&settings).unwrap();
    assert_eq!(rows.len(), 2 * 3);
    let [in_switch, fanout, chain] = [rows[3], rows[4], rows[5]];
    assert_eq!(in_switch.pattern, Pattern::InSwitch);
    assert!((fanout.sent_per_byte / in_switch.sent_per_byte - 2.0).abs() < 0.05);
    assert!((fanout.latency_us / in_switch.latency_us - 2.0).abs() < 0.1);
    assert!(rows[2].latency_us > 1.9 * rows[0].latency_us && chain.sent_per_byte < 1.2);
}

#[test]
fn lost_packets_are_retransmitted() {
    let settings =
        LossSettings { loss: vec![0.0, 1.0 / 1024.0], duration_ms: 5, ..Default::default() };
    let rows = loss(&settings).unwrap();
    for (without, with) in rows[..3].iter().zip(&rows[3..]) {
        assert_eq!((without.lost, without.repeated), (0, 0));
        assert!(with.repeated >= with.lost && with.lost > 0);
        assert!(with.throughput_gbit_per_s < without.throughput_gbit_per_s);
    }
}

#[test]
fn models_are_distributed_faster_by_switches() {
    let settings =
        TrainingSettings { message_bytes: vec![1_000_000], iterations: 1, ..Default::default() };
    let rows = training(&settings).unwrap();
    let distribute = |at: usize| rows[at].iteration_ms - rows[at].gather_ms;
    // One message's time on the link is 0.086 ms; six of them 0.52.
    assert!(distribute(0) > 0.08 && distribute(1) > 0.5 && distribute(2) > 0.5);
    assert!(distribute(0) < distribute(1).min(distribute(2)));
}

#[test]
fn stores_serve_the_same_requests_whichever_way_they_replicate() {
    let default = StorageSettings::new(Distribution::AlibabaStorage);
    let rows = storage(&StorageSettings { loads: vec![0.3], duration_ms: 1, ..default }).unwrap();
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert_eq!(row.reads, rows[0].reads);
        assert!(row.reads > 500 && row.read_99_us > row.read_us && row.write_us > 0.0);
    }
}
