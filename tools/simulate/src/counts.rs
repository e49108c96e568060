//! Sums over many runs.

use std::fmt;

use engine::FailureKind;

/// What is summed up over runs.
pub trait Sum {
    /// Adds what other runs have counted.
    fn add(&mut self, other: &Self);
}

/// What the runs of a subject count.
pub trait Counts: Sum + Default + PartialEq + fmt::Debug + Send {
    /// Writes the sums of this many runs, without an end of the last line.
    fn write(&self, runs: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// Totals over many runs.
#[derive(Default, Debug)]
pub struct Tally<C> {
    /// How many runs there were.
    pub runs: u64,
    /// What they have counted.
    pub counts: C,
}

impl<C: Counts> Tally<C> {
    /// Counts a run.
    pub fn count(&mut self, counts: &C) {
        self.runs += 1;
        self.counts.add(counts);
    }

    /// Adds the totals of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.counts.add(&other.counts);
    }
}

impl<C: Counts> fmt::Display for Tally<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.write(self.runs, f)
    }
}

/// Defines a structure of counts that are summed up one by one.
macro_rules! counts {
    (
        $(#[$meta:meta])*
        pub struct $name:ident$([$kinds:ident])? {
            $($(#[$doc:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Default, PartialEq, Debug)]
        pub struct $name$(<const $kinds: usize>)? { $($(#[$doc])* pub $field: $type,)* }

        impl$(<const $kinds: usize>)? $crate::counts::Sum for $name$(<$kinds>)? {
            fn add(&mut self, other: &Self) {
                $($crate::counts::Sum::add(&mut self.$field, &other.$field);)*
            }
        }
    };
}
pub(crate) use counts;

impl Sum for u64 {
    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

/// Counts by kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Kinds<const N: usize>(pub [u64; N]);

impl<const N: usize> Default for Kinds<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Sum for Kinds<N> {
    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }
}

impl<const N: usize> FromIterator<usize> for Kinds<N> {
    /// Counts indices of kinds.
    fn from_iter<I: IntoIterator<Item = usize>>(kinds: I) -> Self {
        let mut counts = Self::default();
        kinds.into_iter().for_each(|kind| counts.0[kind] += 1);
        counts
    }
}

impl<const N: usize> Kinds<N> {
    /// Returns the counts behind their names.
    pub fn named<D: fmt::Display>(&self, names: &[D]) -> String {
        let all = names.iter().zip(self.0).map(|(name, count)| format!("{name} {count}"));
        all.collect::<Vec<_>>().join(", ")
    }
}

counts! {
    /// What is counted of most runs, with `N` kinds of faults.
    pub struct Basics[N] {
        /// Steps.
        pub steps: u64,
        /// Virtual time.
        pub virtual_ns: u64,
        /// Runs with faults.
        pub with_faults: u64,
        /// Faults that happened, by kind.
        pub faults: Kinds<N>,
    }
}

impl<const N: usize> Basics<N> {
    /// Makes those of one run, with the indices of its faults' kinds.
    pub fn new(steps: u64, virtual_ns: u64, faults: impl IntoIterator<Item = usize>) -> Self {
        let faults: Kinds<N> = faults.into_iter().collect();
        let with_faults = u64::from(faults.0.iter().any(|&count| count > 0));
        Self { steps, virtual_ns, with_faults, faults }
    }

    /// Writes them of this many runs, in three lines; `successes` is what there was besides runs with faults.
    pub fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        runs: u64,
        names: &[&str; N],
        successes: fmt::Arguments<'_>,
    ) -> fmt::Result {
        write_runs(f, runs, self.steps, self.virtual_ns)?;
        writeln!(f, "with faults: {} runs; {successes}", self.with_faults)?;
        writeln!(f, "faults: {}", self.faults.named(names))
    }
}

/// Writes how many runs there were, and how long they were in steps and in virtual time.
pub fn write_runs(
    f: &mut fmt::Formatter<'_>,
    runs: u64,
    steps: u64,
    virtual_ns: u64,
) -> fmt::Result {
    let virtual_s = virtual_ns as f64 / 1e9;
    writeln!(f, "{runs} runs, {steps} steps, {virtual_s:.0} s in virtual time")
}

/// The most of something in a run, and the seed of that run.
#[derive(Clone, Default, PartialEq, PartialOrd, Debug)]
pub struct Most<T> {
    /// How much.
    pub value: T,
    /// The seed.
    pub seed: u64,
}

impl<T: Clone + Default + PartialOrd> Sum for Most<T> {
    fn add(&mut self, other: &Self) {
        if other > self && other.value > T::default() {
            *self = other.clone();
        }
    }
}

impl fmt::Display for Most<u64> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (seed {})", self.value, self.seed)
    }
}

/// The most that a run took after its last disturbance, in parts of what it may take.
impl fmt::Display for Most<f64> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.value;
        write!(f, "slowest end: {percent:.0} % of the time allowed (seed {})", self.seed)
    }
}

/// How a group or team ends at a member.
#[derive(Clone, PartialEq, Debug)]
pub enum End<F> {
    /// With success.
    Closed,
    /// With the first cause that this member learned of.
    Failed(F),
}

/// Kinds of failures, in the order in which they are printed.
const FAILURES: [FailureKind; 7] = [
    FailureKind::Lost,
    FailureKind::Silent,
    FailureKind::Stalled,
    FailureKind::Application,
    FailureKind::Protocol,
    FailureKind::Memory,
    FailureKind::Differs,
];

counts! {
    /// How groups or teams ended, with the first `N` kinds of failures.
    pub struct Ends[N] {
        /// Members at which they closed with success.
        pub closed: u64,
        /// Members at which they failed, by kind of failure; other kinds count as the last.
        pub failed: Kinds<N>,
        /// Runs in which all closed everywhere.
        pub successes: u64,
    }
}

impl<const N: usize> Ends<N> {
    /// Counts those of a run.
    pub fn of<F>(ends: &[End<F>], kind: impl Fn(&F) -> FailureKind) -> Self {
        let index = |failure| FAILURES[..N].iter().position(|&it| it == kind(failure));
        let failed = ends.iter().filter_map(|end| match end {
            End::Closed => None,
            End::Failed(failure) => Some(index(failure).unwrap_or(N - 1)),
        });
        let failed: Kinds<N> = failed.collect();
        let closed = ends.len() as u64 - failed.0.iter().sum::<u64>();
        Self { closed, failed, successes: u64::from(closed == ends.len() as u64) }
    }

    /// Writes them in a line; `of` is what has ended.
    pub fn write(&self, f: &mut fmt::Formatter<'_>, of: &str) -> fmt::Result {
        let failed = self.failed.named(&FAILURES);
        writeln!(f, "{of} ended: closed {}; member {failed}", self.closed)
    }
}

counts! {
    /// How exactly failures named the member that caused them.
    pub struct Blame {
        /// How many failures named a member that a fault had hit, or whose application had aborted.
        pub exact: u64,
        /// How many failures named a member that waited for such a member, or was waited for by one.
        pub behind: u64,
    }
}
