//! Twenty thousand small groups: no data is lost, no run hangs, and no failure names a member
//! without a cause.

use std::{
    env,
    hash::{BuildHasher, RandomState},
};

use simulate::{
    Campaign, CopyCounts, CopyScenario, CreationCounts, CreationScenario, GroupCounts, Kinds,
    Limits, Options, PushCounts, PushScenario, Scenario, Subject, Tally, TeamCounts, TeamScenario,
    WireCounts, WireScenario,
};

/// Runs the same seeds every time and, outside of CI, as many others, which nobody may have run before. Returns the totals of the
/// former.
fn assert_good<S: Subject>(campaign: Campaign<S>) -> Tally<S::Counts> {
    let tally = run_all(&campaign);
    if env::var_os("CI").is_none() {
        // Short enough to be typed.
        let first = RandomState::new().hash_one(()) >> 24;
        println!("seeds from {first} on:");
        run_all(&Campaign { first, ..campaign });
    }
    tally
}

fn run_all<S: Subject>(campaign: &Campaign<S>) -> Tally<S::Counts> {
    let (tally, failed) = campaign.run();
    println!("{tally}");
    if let Some(seed) = failed {
        panic!("a seed has failed; again: {}", campaign.replay(seed));
    }
    tally
}

#[test]
fn small_groups_hold_every_invariant() {
    let tally = assert_good(Campaign::<Scenario>::new(0, 19_000));
    let GroupCounts { basics, ends, reported, .. } = &tally.counts;
    // Every kind of fault was injected, and every outcome occurred.
    assert!(basics.faults.0.iter().all(|&count| count > 500), "{tally}");
    let without_faults = tally.runs - basics.with_faults;
    assert!(without_faults > 3_000 && ends.successes > without_faults, "{tally}");
    let Kinds([lost, silent, stalled, gave_up, broke_protocol, bad_memory, differs]) = ends.failed;
    assert!([lost, silent, stalled, gave_up].iter().all(|&count| count > 1_000), "{tally}");
    assert!(broke_protocol == 0 && bad_memory > 300 && differs > 300, "{tally}");
    assert!(reported.had_to_be_exact > 300, "{tally}");
}

#[test]
fn larger_groups_hold_every_invariant() {
    let limits = Limits { members: 10..=40 };
    assert_good(Campaign::<Scenario> { limits, ..Campaign::new(0, 1_000) });
}

#[test]
fn pushes_hold_every_invariant() {
    let tally = assert_good(Campaign::<PushScenario>::new(0, 3_000));
    let PushCounts { basics, published, failed, retries, resumed_bytes, bytes_again, .. } =
        &tally.counts;
    assert!(basics.faults.0.iter().all(|&count| count > 20), "{tally}");
    assert!(tally.runs - basics.with_faults > 300 && *retries > 300, "{tally}");
    // All hosts have a copy after the second push, and many after the first.
    assert!(*published > 2 * failed && *failed > 1_000, "{tally}");
    // Bytes in place are not sent again, except for small differences.
    assert!(*resumed_bytes > 20 * bytes_again, "{tally}");
}

#[test]
fn teams_hold_every_invariant() {
    let tally = assert_good(Campaign::<TeamScenario>::new(0, 3_000));
    let TeamCounts { basics, completed, ends, blame, .. } = &tally.counts;
    // Every kind of fault was injected, and every outcome occurred.
    assert!(basics.faults.0.iter().all(|&count| count > 40), "{tally}");
    let without_faults = tally.runs - basics.with_faults;
    assert!(without_faults > 600 && ends.successes > without_faults, "{tally}");
    let Kinds([lost, silent, stalled, application, broke_protocol]) = ends.failed;
    assert!([lost, silent, stalled, application].iter().all(|&count| count > 500), "{tally}");
    assert_eq!(broke_protocol, 0, "{tally}");
    assert!(blame.exact > 5 * blame.behind && *completed > 50_000, "{tally}");
}

#[test]
fn copies_hold_every_invariant() {
    let tally = assert_good(Campaign::<CopyScenario>::new(0, 3_000));
    let CopyCounts { injected, ended, moved_away, .. } = &tally.counts;
    // Every kind of fault was injected, and every outcome occurred.
    assert!(injected.0.iter().all(|&count| count > 50), "{tally}");
    assert!(ended.0.iter().all(|&count| count > 500), "{tally}");
    assert!(*moved_away > 100, "{tally}");
}

#[test]
fn wires_hold_every_invariant() {
    let tally = assert_good(Campaign::<WireScenario>::new(0, 3_000));
    let WireCounts { basics, ends, complete, cut_through, writes, .. } = &tally.counts;
    // Every kind of fault was injected, and every outcome occurred.
    assert!(basics.faults.0.iter().all(|&count| count > 100), "{tally}");
    let Kinds([closed, closed_by_peer, lost, silent, corrupt, protocol]) = *ends;
    assert!(closed > 5_000 && closed_by_peer > 1_000 && lost > 500, "{tally}");
    assert!(silent > 200 && corrupt > 200 && protocol > 5, "{tally}");
    assert!(*complete > 2_000 && tally.runs - basics.with_faults > 800, "{tally}");
    assert!(*cut_through > 200 && *writes > 10_000, "{tally}");
}

#[test]
fn creations_hold_every_invariant() {
    let tally = assert_good(Campaign::<CreationScenario>::new(0, 3_000));
    let CreationCounts { groups, timeouts, refused, broken, faults, .. } = tally.counts;
    let outcomes = [groups, timeouts, refused, broken, faults];
    assert!(outcomes.iter().all(|&count| count > 1_000), "{tally}");
}

#[test]
fn a_push_interrupted_at_any_step_reports_only_what_is_known() {
    let mut interrupted = 0;
    for seed in 0..8 {
        let mut scenario = PushScenario::draw(seed, &Limits { members: 2..=5 });
        // Publishing takes long, so that many steps are in the middle of it.
        scenario.hosts.iter_mut().for_each(|host| host.disk_ns = 2_000_000_000);
        for step in 1.. {
            scenario.planned_faults.clear();
            scenario.cancel(step);
            if step % 2 == 1 {
                scenario.cancel(step + 10);
            }
            let outcome = scenario.run(Options::default());
            assert_eq!(outcome.violations, [""; 0], "seed {seed}, interrupted at step {step}");
            if outcome.counts.basics.with_faults == 0 {
                break;
            }
            interrupted += 1;
        }
    }
    println!("{interrupted} interrupted pushes");
    assert!(interrupted > 1_000);
}
