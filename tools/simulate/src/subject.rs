//! What every subject of the simulator has to be: groups, whole pushes, teams, copies at one host, creations and the wire.

use std::{
    fmt::{Debug, Display},
    ops::RangeInclusive,
};

use clap::ValueEnum;
use serde::{Serialize, de::DeserializeOwned};

use crate::{counts::Counts, panics::caught};

/// A kind of scenario, as plain data: drawn from a seed, run, counted and shrunk.
pub trait Subject: Clone + PartialEq + Debug + Display + Serialize + DeserializeOwned {
    /// The command's option that selects it, after a space.
    const OPTION: &'static str;
    /// What its bugs are planted in, for messages.
    const OF: &'static str;
    /// Sizes of groups where none are given; `None`: scenarios do not depend on them.
    const MEMBERS: Option<RangeInclusive<u32>> = Some(1..=9);

    /// Bugs that can be planted.
    type Canary: ValueEnum + Copy + PartialEq + Debug + Sync;
    /// What a run counts.
    type Counts: Counts;
    /// How something in a run ended, if that is recorded.
    type End: PartialEq + Debug;

    /// Returns the scenario of a seed.
    fn draw(seed: u64, limits: &Limits) -> Self;

    /// Checks that a scenario from a file is valid.
    ///
    /// Errors: what is invalid.
    fn check(&self) -> Result<(), String>;

    /// Runs it, to its end or to the first violation; deterministic. What is invalid, and a panic, are violations.
    fn run(&self, options: Options<Self::Canary>) -> OutcomeOf<Self>;

    /// Makes it smaller in every way that there is, the most effective first.
    fn reduce(&self, to: &mut Smaller<'_, Self>);
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome<C, E = ()> {
    /// Violations; empty if the run is correct.
    pub violations: Vec<String>,
    /// The last events, if they were kept.
    pub trace: String,
    /// Digest of all events: equal runs have equal digests.
    pub digest: u64,
    /// What was counted.
    pub counts: C,
    /// What has ended, in an order that is the same in equal runs.
    pub ends: Vec<E>,
}

/// The outcome of a subject's run.
pub type OutcomeOf<S> = Outcome<<S as Subject>::Counts, <S as Subject>::End>;

impl<C: Default, E> Default for Outcome<C, E> {
    fn default() -> Self {
        let (violations, trace, ends) = (Vec::new(), String::new(), Vec::new());
        Self { violations, trace, digest: 0, counts: C::default(), ends }
    }
}

impl<C: Default, E> Outcome<C, E> {
    /// Returns what this returns; an error or a panic is a violation.
    pub fn of(run: impl FnOnce() -> Result<Self, String>) -> Self {
        caught(run).unwrap_or_else(|problem| Self { violations: vec![problem], ..Self::default() })
    }
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options<C> {
    /// A bug to plant.
    pub canary: Option<C>,
    /// How many lines of trace are kept.
    pub trace_events: usize,
    /// Whether the bytes of messages are counted, which takes time.
    pub counts_bytes: bool,
}

impl<C> Default for Options<C> {
    fn default() -> Self {
        Self { canary: None, trace_events: 0, counts_bytes: false }
    }
}

/// Smaller scenarios in the order in which they are tried; some may be invalid.
#[derive(Debug)]
pub struct Smaller<'a, S> {
    from: &'a S,
    all: Vec<S>,
}

impl<'a, S: Clone> Smaller<'a, S> {
    pub(crate) fn new(from: &'a S) -> Self {
        Self { from, all: Vec::new() }
    }

    /// Adds the scenario with a change.
    pub fn with(&mut self, change: impl FnOnce(&mut S)) {
        let mut candidate = self.from.clone();
        change(&mut candidate);
        self.all.push(candidate);
    }

    /// Adds the scenario without each item of a list, the first one first.
    pub fn without_each<T>(&mut self, list: impl Fn(&mut S) -> &mut Vec<T>) {
        for index in 0..list(&mut self.from.clone()).len() {
            self.with(|it| drop(list(it).remove(index)));
        }
    }

    pub(crate) fn into_all(self) -> Vec<S> {
        self.all
    }
}

/// Returns the bug of a name.
///
/// Errors: there is none; with the names of all.
pub fn canary<S: Subject>(name: &str) -> Result<S::Canary, String> {
    S::Canary::from_str(name, false).map_err(|_| {
        let names: Vec<String> = S::Canary::value_variants().iter().map(name_of).collect();
        format!("{name:?} is no canary{}; use one of {}", S::OF, names.join(", "))
    })
}

/// Returns the name of a planted bug.
pub fn name_of<C: ValueEnum>(canary: &C) -> String {
    canary.to_possible_value().map(|it| it.get_name().to_owned()).unwrap_or_default()
}

/// Limits of scenarios that are drawn from seeds.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sizes of groups.
    pub members: RangeInclusive<u32>,
}

impl Limits {
    /// Returns a subject's limits where none are given.
    pub fn of<S: Subject>() -> Self {
        S::MEMBERS.map_or_else(Self::default, |members| Self { members })
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { members: 1..=9 }
    }
}
