//! What can be simulated from seeds: groups, whole pushes, teams, copies at one host, and the wire.

use std::{fmt, str::FromStr};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    canary::Canary,
    copies::{
        CopyCanary, CopyOutcome, CopyScenario, CopyTally, draw_copies, run_copies, smaller_copies,
    },
    creations::{
        CreationCanary, CreationOutcome, CreationScenario, CreationTally, draw_creations,
        run_creations, smaller_creations,
    },
    draw::draw,
    options::Options,
    push::{PushCanary, PushOutcome, PushScenario, PushTally, draw_push, run_push, smaller_pushes},
    report::Report,
    scenario::{Limits, Scenario},
    smaller::smaller_groups,
    tally::Tally,
    teams::{TeamCanary, TeamOutcome, TeamScenario, TeamTally, draw_team, run_team, smaller_teams},
    wires::{
        WireCanary, WireOutcome, WireScenario, WireTally, draw_wires, run_wires, smaller_wires,
    },
    world::run,
};

/// A kind of scenario that is drawn from a seed, and run.
pub trait Subject {
    /// A scenario as plain data.
    type Scenario: Clone + PartialEq + fmt::Display + Serialize + DeserializeOwned;
    /// Bugs that can be planted.
    type Canary: Copy + Sync + FromStr<Err = String>;
    /// The outcome of a run.
    type Report;
    /// Sums over many runs.
    type Tally: Default + fmt::Display + Send;

    /// Returns the limits of scenarios where none are given.
    fn limits() -> Limits {
        Limits::default()
    }
    /// Returns the scenario of a seed.
    fn draw(seed: u64, limits: &Limits) -> Self::Scenario;
    /// Runs the scenario; deterministic.
    fn run(scenario: &Self::Scenario, options: Options<Self::Canary>) -> Self::Report;
    /// Returns the violations, and the last events, if they were kept.
    fn verdict(report: &Self::Report) -> (&[String], &str);
    /// Counts the run of a seed.
    fn add(tally: &mut Self::Tally, seed: u64, report: &Self::Report);
    /// Returns how many runs were counted.
    fn runs(tally: &Self::Tally) -> u64;
    /// Adds the totals of another thread.
    fn merge(tally: &mut Self::Tally, other: &Self::Tally);
    /// Returns smaller valid scenarios, the most effective reduction first.
    fn smaller(scenario: &Self::Scenario) -> Vec<Self::Scenario>;
}

/// Groups of engines ([`run`]).
#[derive(Debug)]
pub enum Groups {}

/// Pushes to several hosts ([`run_push`]).
#[derive(Debug)]
pub enum Pushes {}

/// Teams that call operations ([`run_team`]).
#[derive(Debug)]
pub enum Teams {}

/// Copies at one host ([`run_copies`]).
#[derive(Debug)]
pub enum Copies {}

/// Groups and teams that are created ([`run_creations`]).
#[derive(Debug)]
pub enum Creations {}

/// Two ends of the TCP transport over simulated streams ([`run_wires`]).
#[derive(Debug)]
pub enum Wires {}

impl Subject for Groups {
    type Scenario = Scenario;
    type Canary = Canary;
    type Report = Report;
    type Tally = Tally;

    fn draw(seed: u64, limits: &Limits) -> Scenario {
        draw(seed, limits)
    }

    fn run(scenario: &Scenario, options: Options) -> Report {
        run(scenario, options)
    }

    fn verdict(report: &Report) -> (&[String], &str) {
        (&report.violations, &report.trace)
    }

    fn add(tally: &mut Tally, seed: u64, report: &Report) {
        tally.add(seed, report);
    }

    fn runs(tally: &Tally) -> u64 {
        tally.runs
    }

    fn merge(tally: &mut Tally, other: &Tally) {
        tally.merge(other);
    }

    fn smaller(scenario: &Scenario) -> Vec<Scenario> {
        smaller_groups(scenario)
    }
}

impl Subject for Pushes {
    type Scenario = PushScenario;
    type Canary = PushCanary;
    type Report = PushOutcome;
    type Tally = PushTally;

    fn draw(seed: u64, limits: &Limits) -> PushScenario {
        draw_push(seed, limits)
    }

    fn run(scenario: &PushScenario, options: Options<PushCanary>) -> PushOutcome {
        run_push(scenario, options)
    }

    fn verdict(report: &PushOutcome) -> (&[String], &str) {
        (&report.violations, &report.trace)
    }

    fn add(tally: &mut PushTally, seed: u64, report: &PushOutcome) {
        tally.add(seed, report);
    }

    fn runs(tally: &PushTally) -> u64 {
        tally.runs
    }

    fn merge(tally: &mut PushTally, other: &PushTally) {
        tally.merge(other);
    }

    fn smaller(scenario: &PushScenario) -> Vec<PushScenario> {
        smaller_pushes(scenario)
    }
}

impl Subject for Teams {
    type Scenario = TeamScenario;
    type Canary = TeamCanary;
    type Report = TeamOutcome;
    type Tally = TeamTally;

    /// One member more than are linked completely, rarely.
    fn limits() -> Limits {
        Limits { members: 1..=collective::ALL_PAIRS_MAX + 1 }
    }

    fn draw(seed: u64, limits: &Limits) -> TeamScenario {
        draw_team(seed, limits)
    }

    fn run(scenario: &TeamScenario, options: Options<TeamCanary>) -> TeamOutcome {
        run_team(scenario, options)
    }

    fn verdict(report: &TeamOutcome) -> (&[String], &str) {
        (&report.violations, &report.trace)
    }

    fn add(tally: &mut TeamTally, seed: u64, report: &TeamOutcome) {
        tally.add(seed, report);
    }

    fn runs(tally: &TeamTally) -> u64 {
        tally.runs
    }

    fn merge(tally: &mut TeamTally, other: &TeamTally) {
        tally.merge(other);
    }

    fn smaller(scenario: &TeamScenario) -> Vec<TeamScenario> {
        smaller_teams(scenario)
    }
}

impl Subject for Copies {
    type Scenario = CopyScenario;
    type Canary = CopyCanary;
    type Report = CopyOutcome;
    type Tally = CopyTally;

    fn draw(seed: u64, limits: &Limits) -> CopyScenario {
        draw_copies(seed, limits)
    }

    fn run(scenario: &CopyScenario, options: Options<CopyCanary>) -> CopyOutcome {
        run_copies(scenario, options)
    }

    fn verdict(report: &CopyOutcome) -> (&[String], &str) {
        (&report.violations, &report.trace)
    }

    fn add(tally: &mut CopyTally, seed: u64, report: &CopyOutcome) {
        tally.add(seed, report);
    }

    fn runs(tally: &CopyTally) -> u64 {
        tally.runs
    }

    fn merge(tally: &mut CopyTally, other: &CopyTally) {
        tally.merge(other);
    }

    fn smaller(scenario: &CopyScenario) -> Vec<CopyScenario> {
        smaller_copies(scenario)
    }
}

impl Subject for Creations {
    type Scenario = CreationScenario;
    type Canary = CreationCanary;
    type Report = CreationOutcome;
    type Tally = CreationTally;

    fn draw(seed: u64, limits: &Limits) -> CreationScenario {
        draw_creations(seed, limits)
    }

    fn run(scenario: &CreationScenario, options: Options<CreationCanary>) -> CreationOutcome {
        run_creations(scenario, options)
    }

    fn verdict(report: &CreationOutcome) -> (&[String], &str) {
        (&report.violations, &report.trace)
    }

    fn add(tally: &mut CreationTally, seed: u64, report: &CreationOutcome) {
        tally.add(seed, report);
    }

    fn runs(tally: &CreationTally) -> u64 {
        tally.runs
    }

    fn merge(tally: &mut CreationTally, other: &CreationTally) {
        tally.merge(other);
    }

    fn smaller(scenario: &CreationScenario) -> Vec<CreationScenario> {
        smaller_creations(scenario)
    }
}

impl Subject for Wires {
    type Scenario = WireScenario;
    type Canary = WireCanary;
    type Report = WireOutcome;
    type Tally = WireTally;

    fn draw(seed: u64, _: &Limits) -> WireScenario {
        draw_wires(seed)
    }

    fn run(scenario: &WireScenario, options: Options<WireCanary>) -> WireOutcome {
        run_wires(scenario, options)
    }

    fn verdict(report: &WireOutcome) -> (&[String], &str) {
        (&report.violations, &report.trace)
    }

    fn add(tally: &mut WireTally, _: u64, report: &WireOutcome) {
        tally.add(report);
    }

    fn runs(tally: &WireTally) -> u64 {
        tally.runs
    }

    fn merge(tally: &mut WireTally, other: &WireTally) {
        tally.merge(other);
    }

    fn smaller(scenario: &WireScenario) -> Vec<WireScenario> {
        smaller_wires(scenario)
    }
}
