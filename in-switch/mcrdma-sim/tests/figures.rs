//! Short versions of the experiments: their rows are complete and plausible.

use mcrdma_sim::{
    Dcqcn, Distribution, Pattern,
    experiments::{
        Layout, LossSettings, Lossy, SingleSettings, StorageSettings, TrainingSettings, loss,
        single_client, storage, training,
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

/// On the fast member's link as on the slow one's: whose answers come first does not matter.
#[test]
fn losses_of_every_member_are_made_up_for() {
    for lossy in Lossy::ALL {
        let settings =
            LossSettings { lossy, loss: vec![1.0 / 1024.0], duration_ms: 5, ..Default::default() };
        for row in loss(&settings).unwrap() {
            assert!(row.repeated >= row.lost && row.lost > 0, "{row:?}");
            assert!(row.throughput_gbit_per_s > 40.0, "{row:?}");
        }
    }
}

fn short(layout: Layout) -> StorageSettings {
    let default = StorageSettings::new(Distribution::AlibabaStorage);
    StorageSettings { layout, loads: vec![0.3], warm_up_ms: 1, duration_ms: 1, ..default }
}

#[test]
fn stores_serve_the_same_requests_whichever_way_they_replicate() {
    for layout in [Layout::ThreePerEdge, Layout::NinePerEdge] {
        for groups_of_store in [1, 32] {
            let rows = storage(&StorageSettings { groups_of_store, ..short(layout) }).unwrap();
            assert_eq!(rows.len(), 3);
            for row in &rows {
                assert_eq!((row.reads, row.writes), (rows[0].reads, rows[0].writes));
                assert!(row.reads > 200 && row.read_99_us > row.read_us && row.write_us > 0.0);
            }
        }
    }
}

/// A client asks for a load of 0.15 each way. A store sends it that, and each copy that it makes.
#[test]
fn links_carry_what_is_asked_for_and_each_copy() {
    let mut settings = short(Layout::ThreePerEdge);
    (settings.duration_ms, settings.config.dcqcn) = (4, Some(Dcqcn::hpcc(1e11)));
    let rows = storage(&settings).unwrap();
    let [in_switch, fanout, chain] = [rows[0], rows[1], rows[2]].map(|row| row.links);
    let near = |value: f64, expected: f64| {
        // A few thousand requests, and headers.
        assert!((value / expected - 1.0).abs() < 0.25, "{value} {expected}");
    };
    for (links, copies) in [(in_switch, 1.0), (fanout, 2.0), (chain, 2.0)] {
        near(links.store_up, 0.15 * (1.0 + copies));
        near(links.edge_up, 0.15 * (1.0 + copies));
        near(links.edge_down, 0.15 * 3.0);
        near(links.store_down, 0.15 * 3.0);
    }
}

#[test]
fn the_same_seed_gives_the_same_figures_with_each_variant_of_dcqcn() {
    let run = |dcqcn| {
        let mut settings = short(Layout::NinePerEdge);
        settings.config.dcqcn = Some(dcqcn);
        storage(&settings).unwrap()
    };
    let [paper, hpcc] = [Dcqcn::paper(1e11), Dcqcn::hpcc(1e11)].map(|dcqcn| {
        let rows = run(dcqcn);
        assert_eq!(rows, run(dcqcn));
        rows
    });
    assert_ne!(paper, hpcc);
}

/// Six messages of 1 MB through one link take 0.52 ms with their headers.
#[test]
fn where_no_link_is_scarce_but_the_servers_gathering_takes_what_dcqcn_makes_it() {
    let run = |dcqcn| {
        let mut settings = TrainingSettings {
            message_bytes: vec![1_000_000],
            iterations: 1,
            switch_bits_per_s: 400_000_000_000,
            ..Default::default()
        };
        settings.config.dcqcn = Some(dcqcn);
        training(&settings).unwrap()[0].gather_ms
    };
    let variants = [Dcqcn::hpcc_paced(1e11), Dcqcn::hpcc(1e11), Dcqcn::paper(1e11)];
    let [paced, hpcc, paper] = variants.map(run);
    assert!((0.51..0.54).contains(&paced), "{paced}");
    assert!(hpcc > 1.2 * paced && paper > hpcc, "{paced} {hpcc} {paper}");
}
