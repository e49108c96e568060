//! Equal scenarios give equal runs, from a seed or from a file; and scenarios that once failed do
//! not fail again.

use std::{fs, path::Path};

use simulate::{
    CopyScenario, CreationScenario, Limits, Options, PushScenario, Scenario, Subject, TeamScenario,
    WireScenario,
};

/// Runs scenarios of seeds, and again from a file and with a trace, in which there has to be this text.
fn assert_equal_runs<S: Subject>(seeds: u64, text: &str) {
    let digest = |seed| S::draw(seed, &Limits::of::<S>()).run(Options::default()).digest;
    assert_ne!(digest(1), digest(2));
    for seed in 0..seeds {
        let scenario = S::draw(seed, &Limits::of::<S>());
        assert_eq!(scenario, S::draw(seed, &Limits::of::<S>()));
        let file = serde_json::to_string(&scenario).unwrap();
        let read: S = serde_json::from_str(&file).unwrap();
        assert_eq!(read, scenario);
        let one = scenario.run(Options::default());
        let other = read.run(Options { trace_events: 100_000, ..Options::default() });
        assert_eq!(
            (one.digest, one.counts, one.ends),
            (other.digest, other.counts, other.ends),
            "seed {seed}"
        );
        assert!(other.trace.contains(text), "{}", other.trace);
    }
}

#[test]
fn a_run_is_the_same_every_time_also_from_a_file() {
    assert_equal_runs::<Scenario>(200, ", group 0: ");
}

#[test]
fn invalid_scenarios_are_refused() {
    let mut scenario = Scenario::draw(1, &Limits::default());
    scenario.groups[0].algorithm = "fast".into();
    let outcome = scenario.run(Options::default());
    assert_eq!(outcome.violations, ["there is no algorithm \"fast\""]);
}

/// Each file is the smallest scenario that showed a bug, and is named after it.
fn assert_fixed<S: Subject>(directory: &str) {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found").join(directory);
    let mut count = 0;
    for entry in fs::read_dir(found).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let scenario: S = serde_json::from_str(&text).unwrap();
        let outcome = scenario.run(Options { trace_events: 200, ..Options::default() });
        assert_eq!(outcome.violations, [""; 0], "{}\n{}", path.display(), outcome.trace);
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn past_findings_stay_fixed() {
    assert_fixed::<Scenario>("groups");
    assert_fixed::<PushScenario>("pushes");
    assert_fixed::<TeamScenario>("teams");
    assert_fixed::<CopyScenario>("copies");
    assert_fixed::<WireScenario>("wires");
    assert_fixed::<CreationScenario>("creations");
}

#[test]
fn a_push_is_the_same_every_time_also_from_a_file() {
    assert_equal_runs::<PushScenario>(50, "the root: ");
}

#[test]
fn a_team_is_the_same_every_time_also_from_a_file() {
    assert_equal_runs::<TeamScenario>(200, "member 0");
}

#[test]
fn a_wire_is_the_same_every_time_also_from_a_file() {
    assert_equal_runs::<WireScenario>(200, "connection 0");
}

#[test]
fn copies_are_the_same_every_time_also_from_a_file() {
    assert_equal_runs::<CopyScenario>(200, "session of version");
}

#[test]
fn a_creation_is_the_same_every_time_also_from_a_file() {
    assert_equal_runs::<CreationScenario>(200, "Start { context: 0 }");
}
