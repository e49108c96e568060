//! Planted bugs are detected within a few hundred seeds.

use std::time::Duration;

use clap::ValueEnum;
use simulate::{
    Campaign, Canary, CopyScenario, CreationScenario, Options, PushCanary, PushScenario, Scenario,
    Subject, TeamCanary, TeamScenario, WireCanary, WireScenario, canary, name_of, shrink,
};

const SEEDS: u64 = 300;
/// A crash just while a copy is published is rare: one seed in 300.
const PUSH_SEEDS: u64 = 2_000;

/// Runs on this thread, so that the output of expected panics is captured.
fn campaign<S: Subject>(canary: S::Canary, seeds: u64) -> Campaign<S> {
    let options = Options { canary: Some(canary), ..Options::default() };
    Campaign { options, jobs: 1, ..Campaign::new(0, seeds) }
}

fn assert_all_are_caught<S: Subject>(seeds: u64) {
    for bug in S::Canary::value_variants() {
        let name = name_of(bug);
        assert_eq!(canary::<S>(&name), Ok(*bug));
        let (tally, failed) = campaign::<S>(*bug, seeds).run();
        assert!(failed.is_some(), "{name} was not noticed\n{tally}");
        println!("{name}: seed {failed:?}");
    }
}

/// Returns what becomes of the first seed in which this bug is noticed; the bug is noticed in that, too, and nothing without it.
fn smaller<S: Subject>(canary: S::Canary, seeds: u64) -> S {
    let campaign = campaign::<S>(canary, seeds);
    let scenario = S::draw(campaign.run().1.unwrap(), &campaign.limits);
    let smaller = shrink(&scenario, campaign.options, Duration::from_secs(60));
    assert!(!smaller.run(campaign.options).violations.is_empty());
    let size = |it: &S| it.to_string().lines().count();
    assert!(size(&smaller) < size(&scenario), "{smaller}");
    let without = smaller.run(Options { trace_events: 100, ..Options::default() });
    assert!(without.violations.is_empty(), "without it it is well: {}", without.trace);
    smaller
}

#[test]
fn every_canary_is_caught() {
    assert_all_are_caught::<Scenario>(SEEDS);
}

#[test]
fn a_failing_scenario_becomes_smaller_and_still_fails() {
    let smaller = smaller::<Scenario>(Canary::MisplacesBlock, SEEDS);
    assert!(smaller.to_string().lines().count() <= 12, "{smaller}");
}

#[test]
fn every_canary_of_pushes_is_caught() {
    assert_all_are_caught::<PushScenario>(PUSH_SEEDS);
}

#[test]
fn a_failing_push_becomes_smaller_and_still_fails() {
    let smaller = smaller::<PushScenario>(PushCanary::ForgetsPublish, PUSH_SEEDS);
    assert!(smaller.hosts.len() == 1 && smaller.planned_faults.is_empty(), "{smaller}");
}

#[test]
fn every_canary_of_teams_is_caught() {
    assert_all_are_caught::<TeamScenario>(SEEDS);
}

#[test]
fn a_failing_team_becomes_smaller_and_still_fails() {
    let smaller = smaller::<TeamScenario>(TeamCanary::SendsTooEarly, SEEDS);
    assert!(smaller.size() <= 5 && smaller.faults.is_empty(), "{smaller}");
}

#[test]
fn every_canary_of_copies_is_caught() {
    assert_all_are_caught::<CopyScenario>(PUSH_SEEDS);
}

#[test]
fn failing_copies_become_smaller_and_still_fail() {
    let canary = canary::<CopyScenario>("renames-over").unwrap();
    smaller::<CopyScenario>(canary, PUSH_SEEDS);
}

#[test]
fn every_canary_of_the_wire_is_caught() {
    assert_all_are_caught::<WireScenario>(SEEDS);
}

#[test]
fn a_failing_wire_becomes_smaller_and_still_fails() {
    let smaller = smaller::<WireScenario>(WireCanary::SwapsBytes, SEEDS);
    assert!(smaller.connections.len() == 1 && smaller.faults.len() <= 1, "{smaller}");
}

#[test]
fn every_canary_of_creations_is_caught() {
    assert_all_are_caught::<CreationScenario>(SEEDS);
}
