//! Pushes with one irregularity that is not drawn from seeds.

use std::time::Duration;

use files::machines::Step;
use simulate::{
    HostScenario, Limits, NetworkPlan, Options, OutcomeOf, PushEnd, PushScenario, Subject,
};

const SECOND_NS: u64 = 1_000_000_000;

/// A push to this many hosts; a copy takes 10 s.
fn scenario(hosts: usize) -> PushScenario {
    let host = HostScenario { start_ns: 1_000_000, ..HostScenario::default() };
    PushScenario {
        hosts_per_rack: 3,
        seed: 7,
        bytes: 40_000,
        block_bytes: 1_000,
        chunk_bytes: 1_000,
        network: NetworkPlan {
            rate_bytes_per_s: 4_000,
            latency_ns: 100_000,
            silence_timeout_ms: 5_000,
            drain_timeout_ms: 1_000,
            cut_through_bytes: Some(4_096),
            ..NetworkPlan::default()
        },
        digest_ns: 1,
        hosts: vec![host; hosts],
        ..PushScenario::default()
    }
}

/// Runs a push, and checks that there are no violations.
fn run(scenario: &PushScenario) -> OutcomeOf<PushScenario> {
    let outcome = scenario.run(Options { trace_events: 500, ..Options::default() });
    assert_eq!(outcome.violations, [""; 0], "{}", outcome.trace);
    outcome
}

/// Returns the end of the first push.
fn first(scenario: &PushScenario) -> PushEnd {
    run(scenario).ends.swap_remove(0)
}

fn failed(reason: &str) -> Step {
    Step::Failed(reason.to_owned())
}

/// Runs a push to two hosts, of which the second cannot be started for this time; the digest of the
/// source is known after a minute.
fn refused_for(time: Duration, retries: u32) -> Vec<Step> {
    let mut scenario = scenario(2);
    (scenario.retries, scenario.digest_ns) = (retries, 60 * SECOND_NS);
    scenario.hosts[1].faults.absent_ns = time.as_nanos() as u64;
    first(&scenario).steps.into_iter().flatten().collect()
}

#[test]
fn a_host_that_comes_back_soon_has_not_used_up_its_retries() {
    assert_eq!(refused_for(Duration::from_secs(2), 5)[1], Step::Published);
}

#[test]
fn starting_a_host_is_retried_while_others_receive() {
    assert_eq!(refused_for(Duration::from_secs(1), 1)[1], Step::Published);
    // All hosts that could have sent it blocks have published; starting it was retried until then.
    let steps = refused_for(Duration::from_secs(3600), 1);
    assert_eq!(steps, [Step::Published, failed("cannot be started")]);
    assert_eq!(refused_for(Duration::from_millis(2), 0)[1], failed("cannot be started"));
}

#[test]
fn a_source_that_changes_ends_the_push_before_all_is_sent() {
    let mut scenario = scenario(3);
    scenario.source.changes_ns = Some(SECOND_NS / 2);
    let end = first(&scenario);
    assert!(end.error.as_ref().is_some_and(|error| error.contains("written to")), "{end:?}");
    assert!(end.steps.iter().all(|step| matches!(step, Some(Step::Failed(_)))), "{end:?}");
}

#[test]
fn a_host_whose_disk_fails_says_why_and_no_other_host_is_blamed() {
    for host in 0..4 {
        let mut scenario = scenario(4);
        scenario.hosts[host].faults.disk_fails_ns = Some(5 * SECOND_NS);
        let outcome = run(&scenario);
        for (other, step) in outcome.ends[0].steps.iter().enumerate() {
            if other == host {
                let Some(Step::Failed(reason)) = step else { panic!("{outcome:?}") };
                assert!(reason.starts_with("cannot write the copy: No space left"), "{reason}");
            } else {
                assert_eq!(*step, Some(Step::Published), "{outcome:?}");
            }
        }
    }
}

/// What storage still writes for a group that has ended delays the group after it.
#[test]
fn a_host_that_dies_fails_alone_beside_hosts_with_slow_storage() {
    for step in (10..200).step_by(10) {
        let mut scenario = scenario(3);
        for host in &mut scenario.hosts[1..] {
            host.store_ns = 5 * SECOND_NS;
        }
        scenario.kill(1, step);
        let end = first(&scenario);
        assert!(matches!(end.steps[0], Some(Step::Failed(_))), "step {step}: {end:?}");
        assert_eq!(end.steps[1..], [Some(Step::Published), Some(Step::Published)], "step {step}");
    }
}

#[test]
fn a_host_that_joins_ends_groups_whose_storage_is_slow_and_nobody_fails() {
    let mut scenario = scenario(3);
    for host in &mut scenario.hosts[..2] {
        host.store_ns = 20 * SECOND_NS;
    }
    (scenario.hosts[2].joins, scenario.hosts[2].start_ns) = (true, 20 * SECOND_NS);
    let outcome = run(&scenario);
    assert_eq!(outcome.counts.joined, 2, "in each push");
    assert_eq!(outcome.ends[0].steps, [const { Some(Step::Published) }; 3]);
}

#[test]
fn storage_that_does_not_answer_is_named_and_fails_its_host_alone() {
    let mut scenario = scenario(3);
    scenario.hosts[1].store_ns = 3600 * SECOND_NS;
    let end = first(&scenario);
    let Some(Step::Failed(reason)) = &end.steps[1] else { panic!("{end:?}") };
    assert!(reason.contains("storage"), "{reason}");
    assert_eq!([&end.steps[0], &end.steps[2]], [&Some(Step::Published); 2], "{end:?}");
}

#[test]
fn a_source_that_is_replaced_is_not_published_by_hosts_that_are_verified_later() {
    let mut scenario = scenario(2);
    scenario.hosts[1].verify_ns = 60 * SECOND_NS;
    scenario.source.replaced_ns = Some(40 * SECOND_NS);
    let end = first(&scenario);
    assert!(end.error.as_ref().is_some_and(|error| error.contains("another file")), "{end:?}");
    assert_eq!(end.steps[0], Some(Step::Published));
    assert!(matches!(end.steps[1], Some(Step::Failed(_))), "{end:?}");
    // After both are verified it is too late to notice.
    scenario.source.replaced_ns = Some(3600 * SECOND_NS);
    assert!(first(&scenario).error.is_none());
}

/// Runs a push to two hosts, of which the second has a copy that differs from the digest.
fn differing(reads_differently: bool) -> PushEnd {
    let mut scenario = scenario(2);
    scenario.hosts[1].faults.differs = true;
    scenario.source.reads_differently = reads_differently;
    first(&scenario)
}

#[test]
fn a_copy_that_differs_has_the_source_read_again_before_its_host_is_blamed() {
    let end = differing(false);
    assert!(end.error.is_none() && end.steps[0] == Some(Step::Published), "{end:?}");
    let Some(Step::Failed(reason)) = &end.steps[1] else { panic!("{end:?}") };
    assert!(reason.contains("has the same digest as before"), "{reason}");
    let end = differing(true);
    assert!(end.error.as_ref().is_some_and(|error| error.contains("written to")), "{end:?}");
}

#[test]
fn a_host_that_prepares_for_long_gets_its_copy_after_the_others() {
    let mut scenario = scenario(4);
    let half_an_hour_ns = 1_700 * SECOND_NS;
    scenario.hosts[3].faults.prepare_ns = half_an_hour_ns;
    let end = first(&scenario);
    let at_ns: Vec<u64> = end.published_ns.iter().copied().flatten().collect();
    assert_eq!(at_ns.len(), 4, "{end:?}");
    assert!(at_ns[..3].iter().all(|&at_ns| at_ns < 300 * SECOND_NS), "{end:?}");
    assert!(at_ns[3] > half_an_hour_ns, "{end:?}");
}

#[test]
fn a_host_that_reserves_space_for_long_gets_its_copy_after_the_others() {
    let mut scenario = scenario(3);
    let long_ns = 600 * SECOND_NS;
    scenario.hosts[2].faults.fabric_ns = long_ns;
    let end = first(&scenario);
    assert_eq!(end.steps, [const { Some(Step::Published) }; 3], "{end:?}");
    assert!(end.first_round_ns.is_some_and(|at_ns| at_ns < 15 * SECOND_NS), "{end:?}");
    let at_ns: Vec<u64> = end.published_ns.iter().copied().flatten().collect();
    assert!(at_ns[..2].iter().all(|&at_ns| at_ns < 300 * SECOND_NS), "{end:?}");
}

#[test]
fn hosts_that_hang_or_connect_late_delay_nobody() {
    let mut scenario = scenario(6);
    for (host, start_ns) in [(3, 12 * SECOND_NS), (4, 20 * SECOND_NS), (5, 40 * SECOND_NS)] {
        scenario.hosts[host].start_ns = start_ns;
    }
    let end = first(&scenario);
    assert!(end.first_round_ns.is_some_and(|at_ns| at_ns < 3 * SECOND_NS), "{end:?}");
    // A copy takes 10 s, and the groups of one that joins later too.
    let early = &end.published_ns[..3];
    assert!(early.iter().all(|at_ns| at_ns.is_some_and(|at_ns| at_ns < 30 * SECOND_NS)), "{end:?}");
    assert_eq!(end.steps[..5], [const { Some(Step::Published) }; 5]);
    let Some(Step::Failed(reason)) = &end.steps[5] else { panic!("{end:?}") };
    assert!(reason.starts_with("did not connect within 30 s"), "{reason}");
}

#[test]
fn hosts_that_all_take_long_are_waited_for() {
    let mut scenario = scenario(4);
    for (host, seconds) in [(0, 5), (1, 6), (2, 7), (3, 20)] {
        scenario.hosts[host].start_ns = seconds * SECOND_NS;
    }
    let end = first(&scenario);
    // Three times the median are 18 s.
    assert!(end.first_round_ns.is_some_and(|at_ns| at_ns > 20 * SECOND_NS), "{end:?}");
}

#[test]
fn verifying_may_take_as_long_as_it_progresses() {
    let mut scenario = scenario(2);
    scenario.hosts[1].verify_ns = 3 * 3600 * SECOND_NS;
    scenario.hosts[1].faults.reports_work = true;
    let end = first(&scenario);
    assert!(end.steps.iter().all(|step| *step == Some(Step::Published)), "{end:?}");
    // A host that reports no progress fails.
    scenario.hosts[1].faults.reports_work = false;
    let outcome = scenario.run(Options::default());
    assert_eq!(outcome.ends[0].steps[1], Some(failed("did not verify its copy in time")));
}

#[test]
fn a_host_that_does_not_report_a_failed_group_fails_and_the_others_get_their_copies() {
    let mut scenario = scenario(4);
    scenario.hosts[1].faults.is_mute = true;
    scenario.kill(4, 150);
    let outcome = run(&scenario);
    let end = &outcome.ends[0];
    assert!(outcome.counts.rounds > 2, "{outcome:?}");
    for host in [0, 2] {
        assert_eq!(end.steps[host], Some(Step::Published), "{end:?}");
    }
    let Some(Step::Failed(reason)) = &end.steps[1] else { panic!("{end:?}") };
    assert!(reason.contains("no longer answers"), "{reason}");
}

#[test]
fn hosts_are_deferred_only_below_the_minimum_rate() {
    let deferred = |seed: u64, percent: Option<u64>| {
        let mut scenario = PushScenario::draw(seed, &Limits::default());
        scenario.rate_min_percent = percent.unwrap_or(scenario.rate_min_percent);
        scenario.run(Options::default()).counts.deferred
    };
    // One of a hundred drawn pushes defers a host.
    let first = (0..1_000).find(|&seed| deferred(seed, None) > 0);
    assert!(first.is_some_and(|seed| deferred(seed, Some(0)) == 0), "{first:?}");
    assert_eq!((0..200).map(|seed| deferred(seed, Some(0))).sum::<u64>(), 0);
}

/// How long it takes in seconds until hosts have copies that take 10 s at their rate, if the root has this rate and one host has the
/// object, and that rate. `share_bytes_min`: as in the scenario.
fn seconds_with_two_sources(root: u64, host: u64, share_bytes_min: u64) -> f64 {
    let mut scenario = scenario(4);
    scenario.share_bytes_min = share_bytes_min;
    scenario.algorithm = Some("chain".into());
    scenario.block_bytes = 100;
    // As TCP connections share a link.
    scenario.network.shared_ports = Some((50, 4));
    scenario.network.cut_through_bytes = None;
    scenario.hosts[0].partial_percent = 100;
    scenario.hosts[0].rate_bytes_per_s = Some(host);
    scenario.slow(0, root);
    let end = first(&scenario);
    assert_eq!(end.steps, vec![Some(Step::Published); 4]);
    let others = end.published_ns[1..].iter().flatten().max().copied().unwrap_or(u64::MAX);
    (others - end.first_round_ns.unwrap_or(0)) as f64 / SECOND_NS as f64
}

#[test]
fn two_sources_send_as_fast_as_both_links_and_a_slow_one_costs_little() {
    let one = |root, host| seconds_with_two_sources(root, host, 0);
    let two = |root, host| seconds_with_two_sources(root, host, 1_000);
    // Links of half the receivers' rate: the first one alone.
    assert!((19.5..21.0).contains(&one(2_000, 2_000)), "{}", one(2_000, 2_000));
    // Together they are at least as fast as the receivers' links.
    for (root, host) in [(2_000, 2_000), (4_000, 4_000), (500, 3_500), (3_500, 500), (400, 4_000)] {
        let seconds = two(root, host);
        assert!((9.9..12.0).contains(&seconds), "{root} {host}: {seconds}");
    }
}

/// A push to this many hosts, each of which reads the object in 10 s and receives it in a tenth of a second.
fn together(hosts: usize) -> PushScenario {
    let mut scenario = scenario(hosts);
    (scenario.together, scenario.bytes, scenario.share_bytes_min) = (true, 40 * 1_024, 1_024);
    scenario.files = vec![1_024, scenario.bytes];
    scenario.network.rate_bytes_per_s = 400_000;
    scenario.hosts.iter_mut().for_each(|host| host.url_ns_per_subtree = SECOND_NS / 4);
    scenario
}

/// How long it takes in seconds until all hosts have copies.
fn seconds_together(scenario: &PushScenario) -> f64 {
    let end = first(scenario);
    assert_eq!(end.steps, vec![Some(Step::Published); scenario.hosts.len()]);
    let last = end.published_ns.iter().flatten().max().copied().unwrap_or(u64::MAX);
    (last - end.first_round_ns.unwrap_or(0)) as f64 / SECOND_NS as f64
}

#[test]
fn hosts_that_read_together_take_their_part_of_the_time_of_one() {
    for (hosts, expected) in [(1, 10.0), (2, 5.0), (4, 2.5), (8, 1.25)] {
        let seconds = seconds_together(&together(hosts));
        assert!((expected..expected * 1.2 + 0.3).contains(&seconds), "{hosts}: {seconds}");
    }
    // One of four reads at a quarter of the rate: 13/4 of one host's rate in all.
    let mut slow = together(4);
    slow.hosts[1].url_ns_per_subtree = SECOND_NS;
    let seconds = seconds_together(&slow);
    assert!((3.0..6.5).contains(&seconds), "{seconds}");
}

#[test]
fn a_reader_that_fails_is_replaced_by_the_others() {
    let mut scenario = together(3);
    scenario.hosts[1].faults.url_fails_at = Some(5_000);
    let end = first(&scenario);
    assert_eq!(end.steps[1], Some(failed("cannot be read")));
    assert_eq!([&end.steps[0], &end.steps[2]], [&Some(Step::Published); 2]);
}

/// The rate of hosts that fetch, in bytes per second.
const FETCH_RATE: u64 = 200_000;

/// Hosts that fetch what takes 10 s at their rate, and come one after the other.
fn fetch(hosts: usize) -> PushScenario {
    let mut scenario = scenario(hosts);
    scenario.serves = true;
    // Shorter messages are written past the target's port.
    (scenario.bytes, scenario.block_bytes, scenario.chunk_bytes) = (2_000_000, 20_000, 20_000);
    scenario.network.rate_bytes_per_s = FETCH_RATE;
    scenario.network.shared_ports = Some((2_000, 4));
    scenario.network.cut_through_bytes = None;
    for (index, host) in (1..).zip(&mut scenario.hosts) {
        (host.joins, host.start_ns) = (true, index * 1_000_000);
    }
    scenario
}

/// How many times one copy at their own rate it takes until hosts have fetched the object from hosts that have it already, which have
/// these parts of their rate. `share_bytes_min`: as in the scenario.
fn copies_with_holders(holders: &[f64], share_bytes_min: u64) -> f64 {
    let mut scenario = fetch(holders.len() + 3);
    scenario.share_bytes_min = share_bytes_min;
    for (host, part) in scenario.hosts.iter_mut().zip(holders) {
        (host.partial_percent, host.shares_ns) = (100, Some(60 * SECOND_NS));
        host.rate_bytes_per_s = Some((*part * FETCH_RATE as f64) as u64);
    }
    for host in &mut scenario.hosts[holders.len()..] {
        host.start_ns += 5 * SECOND_NS;
    }
    let end = first(&scenario);
    assert_eq!(end.steps, vec![Some(Step::Published); holders.len() + 3]);
    let last = end.published_ns.iter().flatten().max().copied().unwrap_or(u64::MAX);
    last.saturating_sub(5 * SECOND_NS) as f64 / (10 * SECOND_NS) as f64
}

#[test]
fn hosts_fetch_as_fast_as_all_links_of_those_that_have_the_object() {
    let alone = copies_with_holders(&[0.5, 0.5], 0);
    assert!((1.9..2.3).contains(&alone), "{alone}");
    for holders in [&[0.5, 0.5][..], &[1.0, 1.0], &[0.25, 0.75], &[0.75, 0.25], &[0.25; 4]] {
        let times = copies_with_holders(holders, 20_000);
        // One tries it for a while first; and there are few chunks.
        assert!((0.99..1.45).contains(&times), "{holders:?}: {times}");
    }
}

/// When hosts that fetch have their copies, in times of one copy at the others' rate, if the second one has a slow link.
fn copies_with_a_slow_host() -> Vec<f64> {
    let mut scenario = fetch(5);
    scenario.hosts[1].rate_bytes_per_s = Some(20_000);
    let end = first(&scenario);
    assert_eq!(end.steps, vec![Some(Step::Published); 5]);
    end.published_ns.iter().flatten().map(|&ns| ns as f64 / (10 * SECOND_NS) as f64).collect()
}

#[test]
fn a_slow_host_that_fetches_delays_nobody_for_long() {
    let times = copies_with_a_slow_host();
    assert!(times[1] > 9.0, "{times:?}");
    for host in [0, 2, 3, 4] {
        assert!(times[host] < 1.8, "{times:?}");
    }
}
