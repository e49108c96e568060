//! Planted bugs are detected within a few hundred seeds.

use simulate::{
    Campaign, Canary, Copies, CopyCanary, CreationCanary, Creations, Groups, Options, PushCanary,
    Pushes, TeamCanary, Teams, WireCanary, Wires, draw, draw_push, run, run_copies, run_push,
    run_team, run_wires, shrink,
};
use std::time::Duration;

const SEEDS: u64 = 300;
/// A crash just while a copy is published is rare: one seed in 300.
const PUSH_SEEDS: u64 = 2_000;

#[test]
fn every_canary_is_caught() {
    for canary in Canary::ALL {
        assert_eq!(canary.name().parse(), Ok(canary));
        let options = Options { canary: Some(canary), ..Options::default() };
        // Run on this thread, so that the output of expected panics is captured.
        let campaign = Campaign::<Groups> { options, jobs: 1, ..Campaign::new(0, SEEDS) };
        let (tally, failed) = campaign.run();
        assert!(failed.is_some(), "{canary} was not noticed\n{tally}");
        println!("{canary}: seed {failed:?}");
    }
}

#[test]
fn a_failing_scenario_becomes_smaller_and_still_fails() {
    let canary = Some(Canary::MisplacesBlock);
    let options = Options { canary, ..Options::default() };
    let limits = simulate::Limits::default();
    let campaign = Campaign::<Groups> { options, jobs: 1, ..Campaign::new(0, SEEDS) };
    let seed = campaign.run().1.unwrap();
    let scenario = draw(seed, &limits);
    let smaller = shrink::<Groups>(&scenario, options, Duration::from_secs(60));
    assert!(!run(&smaller, options).violations.is_empty());
    let size = |scenario: &simulate::Scenario| scenario.to_string().lines().count();
    assert!(size(&smaller) <= 12 && size(&smaller) <= size(&scenario), "{smaller}");
    assert!(run(&smaller, Options::default()).violations.is_empty(), "without the bug it is well");
}

#[test]
fn every_canary_of_pushes_is_caught() {
    for canary in PushCanary::ALL {
        assert_eq!(canary.name().parse(), Ok(canary));
        let options = Options { canary: Some(canary), ..Options::default() };
        let campaign = Campaign::<Pushes> { options, jobs: 1, ..Campaign::new(0, PUSH_SEEDS) };
        let (tally, failed) = campaign.run();
        assert!(failed.is_some(), "{canary} was not noticed\n{tally}");
        println!("{canary}: seed {failed:?}");
    }
}

#[test]
fn a_failing_push_becomes_smaller_and_still_fails() {
    let options = Options { canary: Some(PushCanary::ForgetsPublish), ..Options::default() };
    let scenario = draw_push(1, &simulate::Limits::default());
    let smaller = shrink::<Pushes>(&scenario, options, Duration::from_secs(60));
    assert!(!run_push(&smaller, options).violations.is_empty());
    assert!(smaller.hosts.len() == 1 && smaller.planned_faults.is_empty(), "{smaller}");
    assert!(run_push(&smaller, Options::default()).violations.is_empty(), "without it it is well");
}

#[test]
fn every_canary_of_teams_is_caught() {
    for canary in TeamCanary::ALL {
        assert_eq!(canary.name().parse(), Ok(canary));
        let options = Options { canary: Some(canary), ..Options::default() };
        let campaign = Campaign::<Teams> { options, jobs: 1, ..Campaign::new(0, SEEDS) };
        let (tally, failed) = campaign.run();
        assert!(failed.is_some(), "{canary} was not noticed\n{tally}");
        println!("{canary}: seed {failed:?}");
    }
}

#[test]
fn a_failing_team_becomes_smaller_and_still_fails() {
    let options = Options { canary: Some(TeamCanary::SendsTooEarly), ..Options::default() };
    let campaign = Campaign::<Teams> { options, jobs: 1, ..Campaign::new(0, SEEDS) };
    let scenario = simulate::draw_team(campaign.run().1.unwrap(), &campaign.limits);
    let smaller = shrink::<Teams>(&scenario, options, Duration::from_secs(60));
    assert!(!run_team(&smaller, options).violations.is_empty());
    assert!(smaller.size() <= 5 && smaller.faults.is_empty(), "{smaller}");
    assert!(run_team(&smaller, Options::default()).violations.is_empty(), "without it it is well");
}

#[test]
fn every_canary_of_copies_is_caught() {
    for canary in CopyCanary::ALL {
        assert_eq!(canary.name().parse(), Ok(canary));
        let options = Options { canary: Some(canary), ..Options::default() };
        let campaign = Campaign::<Copies> { options, jobs: 1, ..Campaign::new(0, PUSH_SEEDS) };
        let (tally, failed) = campaign.run();
        assert!(failed.is_some(), "{canary} was not noticed\n{tally}");
        println!("{canary}: seed {failed:?}");
    }
}

#[test]
fn failing_copies_become_smaller_and_still_fail() {
    let canary = "renames-over".parse::<CopyCanary>().unwrap();
    let options = Options { canary: Some(canary), ..Options::default() };
    let campaign = Campaign::<Copies> { options, jobs: 1, ..Campaign::new(0, PUSH_SEEDS) };
    let scenario = simulate::draw_copies(campaign.run().1.unwrap(), &campaign.limits);
    let smaller = shrink::<Copies>(&scenario, options, Duration::from_secs(60));
    assert!(!run_copies(&smaller, options).violations.is_empty());
    let size = |it: &simulate::CopyScenario| it.to_string().lines().count();
    assert!(size(&smaller) < size(&scenario), "{smaller}");
    let without =
        run_copies(&smaller, Options { canary: None, trace_events: 100, ..Options::default() });
    assert!(without.violations.is_empty(), "without it it is well: {}", without.trace);
}

#[test]
fn every_canary_of_the_wire_is_caught() {
    for canary in WireCanary::ALL {
        assert_eq!(canary.name().parse(), Ok(canary));
        let options = Options { canary: Some(canary), ..Options::default() };
        let campaign = Campaign::<Wires> { options, jobs: 1, ..Campaign::new(0, SEEDS) };
        let (tally, failed) = campaign.run();
        assert!(failed.is_some(), "{canary} was not noticed\n{tally}");
        println!("{canary}: seed {failed:?}");
    }
}

#[test]
fn a_failing_wire_becomes_smaller_and_still_fails() {
    let options = Options { canary: Some(WireCanary::SwapsBytes), ..Options::default() };
    let campaign = Campaign::<Wires> { options, jobs: 1, ..Campaign::new(0, SEEDS) };
    let scenario = simulate::draw_wires(campaign.run().1.unwrap());
    let smaller = shrink::<Wires>(&scenario, options, Duration::from_secs(60));
    assert!(!run_wires(&smaller, options).violations.is_empty());
    assert!(smaller.connections.len() == 1 && smaller.faults.len() <= 1, "{smaller}");
    assert!(run_wires(&smaller, Options::default()).violations.is_empty(), "without it it is well");
}

#[test]
fn every_canary_of_creations_is_caught() {
    for canary in CreationCanary::ALL {
        assert_eq!(canary.name().parse(), Ok(canary));
        let options = Options { canary: Some(canary), ..Options::default() };
        let campaign = Campaign::<Creations> { options, jobs: 1, ..Campaign::new(0, SEEDS) };
        let (tally, failed) = campaign.run();
        assert!(failed.is_some(), "{canary} was not noticed\n{tally}");
        println!("{canary}: seed {failed:?}");
    }
}
