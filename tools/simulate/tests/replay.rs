//! Equal scenarios give equal runs, from a seed or from a file; and scenarios that once failed do
//! not fail again.

use std::{fs, path::Path};

use simulate::{
    Copies, CopyScenario, Creations, Groups, Limits, Options, PushScenario, Pushes, Scenario,
    Subject, TeamScenario, Teams, WireScenario, Wires, draw, draw_copies, draw_push, draw_team,
    draw_wires, run, run_copies, run_push, run_team, run_wires,
};

#[test]
fn a_run_is_the_same_every_time() {
    for seed in 0..200 {
        let scenario = draw(seed, &Limits::default());
        assert_eq!(scenario, draw(seed, &Limits::default()));
        let one = run(&scenario, Options::default());
        let traced = Options { trace_events: 100_000, ..Options::default() };
        let other = run(&scenario, traced);
        assert_eq!(
            (one.digest, one.steps, one.virtual_ns, one.ends),
            (other.digest, other.steps, other.virtual_ns, other.ends)
        );
        assert!(other.trace.contains(", group 0: "), "{}", other.trace);
    }
    let digest = |seed| run(&draw(seed, &Limits::default()), Options::default()).digest;
    assert_ne!(digest(1), digest(2));
}

#[test]
fn scenarios_round_trip_through_files() {
    for seed in 0..100 {
        let scenario = draw(seed, &Limits::default());
        let text = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), scenario);
    }
}

#[test]
fn invalid_scenarios_are_refused() {
    let mut scenario = draw(1, &Limits::default());
    scenario.groups[0].algorithm = "fast".into();
    let report = run(&scenario, Options::default());
    assert_eq!(report.violations, ["there is no algorithm \"fast\""]);
}

/// Each file is the smallest scenario that showed a bug, and is named after it.
fn assert_fixed<S: Subject>(directory: &str) {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found").join(directory);
    let mut count = 0;
    for entry in fs::read_dir(found).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let scenario: S::Scenario = serde_json::from_str(&text).unwrap();
        let report =
            S::run(&scenario, Options { canary: None, trace_events: 200, ..Options::default() });
        let (violations, trace) = S::verdict(&report);
        assert_eq!(violations, [""; 0], "{}\n{trace}", path.display());
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn past_findings_stay_fixed() {
    assert_fixed::<Groups>("groups");
    assert_fixed::<Pushes>("pushes");
    assert_fixed::<Teams>("teams");
    assert_fixed::<Copies>("copies");
    assert_fixed::<Wires>("wires");
    assert_fixed::<Creations>("creations");
}

#[test]
fn a_push_is_the_same_every_time_also_from_a_file() {
    for seed in 0..50 {
        let scenario = draw_push(seed, &Limits::default());
        let one = run_push(&scenario, Options::default());
        let text = serde_json::to_string(&scenario).unwrap();
        let read: PushScenario = serde_json::from_str(&text).unwrap();
        assert_eq!(read, scenario);
        let other =
            run_push(&read, Options { canary: None, trace_events: 1_000, ..Options::default() });
        let facts = |it: &simulate::PushOutcome| (it.digest, it.steps, it.virtual_ns, it.published);
        assert_eq!(facts(&one), facts(&other), "seed {seed}");
        assert!(other.trace.contains("the root: "), "{}", other.trace);
    }
}

#[test]
fn a_team_is_the_same_every_time_also_from_a_file() {
    for seed in 0..200 {
        let scenario = draw_team(seed, &Teams::limits());
        let one = run_team(&scenario, Options::default());
        let text = serde_json::to_string(&scenario).unwrap();
        let read: TeamScenario = serde_json::from_str(&text).unwrap();
        assert_eq!(read, scenario);
        let other =
            run_team(&read, Options { canary: None, trace_events: 1_000, ..Options::default() });
        let facts = |it: &simulate::TeamOutcome| {
            (it.digest, it.steps, it.virtual_ns, it.completed, it.ends.clone())
        };
        assert_eq!(facts(&one), facts(&other), "seed {seed}");
        assert!(other.trace.contains("member 0"), "{}", other.trace);
    }
}

#[test]
fn a_wire_is_the_same_every_time_also_from_a_file() {
    for seed in 0..200 {
        let scenario = draw_wires(seed);
        let one = run_wires(&scenario, Options::default());
        let text = serde_json::to_string(&scenario).unwrap();
        let read: WireScenario = serde_json::from_str(&text).unwrap();
        assert_eq!(read, scenario);
        let other =
            run_wires(&read, Options { canary: None, trace_events: 1_000, ..Options::default() });
        let facts = |it: &simulate::WireOutcome| (it.digest, it.steps, it.virtual_ns, it.ends);
        assert_eq!(facts(&one), facts(&other), "seed {seed}");
        assert!(other.trace.contains("connection 0"), "{}", other.trace);
    }
    let digest = |seed| run_wires(&draw_wires(seed), Options::default()).digest;
    assert_ne!(digest(1), digest(2));
}

#[test]
fn copies_are_the_same_every_time_also_from_a_file() {
    for seed in 0..200 {
        let scenario = draw_copies(seed, &Limits::default());
        let one = run_copies(&scenario, Options::default());
        let text = serde_json::to_string(&scenario).unwrap();
        let read: CopyScenario = serde_json::from_str(&text).unwrap();
        assert_eq!(read, scenario);
        let other =
            run_copies(&read, Options { canary: None, trace_events: 1, ..Options::default() });
        assert_eq!(one.digest, other.digest, "seed {seed}");
        assert!(other.trace.contains("session of version"), "{}", other.trace);
    }
    let digest =
        |seed| run_copies(&draw_copies(seed, &Limits::default()), Options::default()).digest;
    assert_ne!(digest(1), digest(2));
}
