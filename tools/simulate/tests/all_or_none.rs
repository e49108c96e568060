//! Pushes to all or none, with a death or an interruption at every step.

use files::machines::Step;
use simulate::{HostScenario, NetworkPlan, Options, PushEnd, PushScenario, Subject};

const HOSTS: usize = 3;

fn scenario(retries: u32) -> PushScenario {
    let host = HostScenario { start_ns: 1_000_000, disk_ns: 50_000_000, ..HostScenario::default() };
    PushScenario {
        hosts_per_rack: 3,
        seed: 7,
        bytes: 1_500,
        block_bytes: 1_000,
        chunk_bytes: 1_000,
        retries,
        all_or_none: true,
        network: NetworkPlan {
            rate_bytes_per_s: 40_000,
            latency_ns: 100_000,
            // Words to hosts arrive one after another.
            control_jitter_ns_max: 20_000_000,
            silence_timeout_ms: 5_000,
            drain_timeout_ms: 1_000,
            ..NetworkPlan::default()
        },
        digest_ns: 1,
        hosts: vec![host; HOSTS],
        ..PushScenario::default()
    }
}

/// How many hosts have published in the first push, and how it ended for its root; the second one has to succeed.
fn outcome(scenario: &PushScenario) -> (usize, Option<PushEnd>) {
    let outcome = scenario.run(Options { trace_events: 500, ..Options::default() });
    assert_eq!(outcome.violations, [""; 0], "{:?}\n{}", scenario.planned_faults, outcome.trace);
    let mut ends = outcome.ends;
    let last = ends.pop().expect("the second push ends");
    assert!(last.steps.iter().all(|step| *step == Some(Step::Published)), "{last:?}");
    let [all, some, none] = outcome.counts.all_or_none.0;
    assert_eq!(all + some + none, 2, "two pushes");
    // The second one counts among `all`.
    let published = match [all, some, none] {
        [2, ..] => HOSTS,
        [_, 1, _] => 1,
        _ => 0,
    };
    (published, ends.pop())
}

fn steps(scenario: &PushScenario) -> u64 {
    scenario.run(Options::default()).counts.basics.steps
}

/// In how many runs all, some and no hosts have published.
fn kinds(cases: impl Iterator<Item = PushScenario>) -> [usize; 3] {
    let mut kinds = [0; 3];
    for case in cases {
        let (published, end) = outcome(&case);
        kinds[if published == HOSTS { 0 } else { 1 + usize::from(published == 0) }] += 1;
        let Some(end) = end else { continue };
        let counts = |step: &&Option<Step>| **step == Some(Step::Published);
        match published {
            0 => assert!(end.error.is_some(), "{end:?}"),
            HOSTS => {}
            // The others have their copies; the lost one is named.
            _ => assert_eq!(end.steps.iter().filter(counts).count(), HOSTS - 1, "{end:?}"),
        }
    }
    kinds
}

#[test]
fn whichever_host_dies_at_whatever_step_all_or_none_publish_or_the_lost_one_is_named() {
    for retries in [0, 1] {
        let base = scenario(retries);
        let deaths =
            (0..steps(&base)).flat_map(|step| (1..=HOSTS as u32).map(move |it| (it, step)));
        let [all, some, none] = kinds(deaths.map(|(machine, step)| {
            let mut case = base.clone();
            case.kill(machine, step);
            case
        }));
        assert!(all > 0);
        // One that comes back is waited for, and publishes after the others if they had agreed.
        assert_eq!([some > 0, none > 0], [retries == 0; 2], "{all} {some} {none}");
    }
}

#[test]
fn whenever_the_root_dies_or_is_interrupted_the_next_push_settles_it() {
    let base = scenario(0);
    let deaths = (0..steps(&base)).map(|step| {
        let mut case = base.clone();
        case.kill(0, step);
        case
    });
    let interruptions = (0..steps(&base)).map(|step| {
        let mut case = base.clone();
        case.cancel(step);
        case
    });
    let [all, some, none] = kinds(deaths);
    assert!(all > 0 && some > 0 && none > 0, "{all} {some} {none}");
    let [all, some, none] = kinds(interruptions);
    assert!(all > 0 && none > 0, "{all} {some} {none}");
    assert_eq!(some, 0, "the order to publish goes to all hosts at once");
}
