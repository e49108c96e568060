//! Collective operations of a team, measured by the rules of the OSU benchmarks: every member runs [`measure`].

use std::{
    fmt,
    str::FromStr,
    time::{Duration, Instant},
};

use files::join_predicate;
use rdmc::{Error, Op, Team};
use serde::{Deserialize, Serialize};

/// The longest message of a measured collective operation, in bytes.
pub const COLLECTIVE_BYTES_MAX: u64 = 1 << 30;

/// The most measurements of one operation: members collect the times of all.
pub const COLLECTIVE_REPEATS_MAX: u32 = 10_000;

/// Up to this length OSU's benchmarks measure more often.
const SHORT_BYTES_MAX: u64 = 8 << 10;

/// How long one operation may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a team may take to close.
pub(crate) const TEAM_CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The operations that are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Collective {
    /// A message from this machine to all members.
    Broadcast,
    /// Sums of numbers of 4 bytes, to all.
    AllReduce,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Broadcast, Self::AllReduce];

    /// Returns the name, as in `allreduce`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::AllReduce => "allreduce",
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Collective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|operation| operation.name() == text);
        found.ok_or_else(|| format!("{text:?} cannot be measured; use one of {}", names()))
    }
}

/// What is measured; the same at all members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CollectivePlan {
    /// The operation.
    pub operation: Collective,
    /// Lengths of messages in bytes, at most [`COLLECTIVE_BYTES_MAX`]; multiples of 4 for an all-reduce.
    pub sizes: Vec<u64>,
    /// Measurements of each length, 1 to [`COLLECTIVE_REPEATS_MAX`]; `None` for OSU's: 1,000 to 8 KiB, 100 beyond.
    pub repeats: Option<u32>,
    /// The degree of the reduction tree; `None` for the library's choice.
    pub degree: Option<u32>,
}

impl CollectivePlan {
    /// Errors: a value is out of range, with what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let is_cut = |bytes: &u64| {
            self.operation == Collective::AllReduce
                && !bytes.is_multiple_of(size_of::<f32>() as u64)
        };
        if let Some(bytes) = self.sizes.iter().find(|bytes| is_cut(bytes)) {
            return Err(format!(
                "allreduce adds numbers of 4 bytes, and {bytes} is not a multiple of that"
            ));
        }
        if let Some(bytes) = self.sizes.iter().find(|&&bytes| bytes > COLLECTIVE_BYTES_MAX) {
            return Err(format!("{bytes} bytes are too long; use {COLLECTIVE_BYTES_MAX} or less"));
        }
        if self.sizes.is_empty() {
            return Err("no length of messages is given".to_owned());
        }
        if self.degree.is_some() && self.operation != Collective::AllReduce {
            return Err(format!("a {} has no degree; allreduce has one", self.operation));
        }
        match self.repeats {
            Some(repeats) if !(1..=COLLECTIVE_REPEATS_MAX).contains(&repeats) => {
                Err(format!("{repeats} repeats; use 1 to {COLLECTIVE_REPEATS_MAX}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns how often a length is measured, and how often it is run before that.
    pub fn repeats(&self, bytes: u64) -> (u32, u32) {
        let repeats = self.repeats.unwrap_or(if bytes > SHORT_BYTES_MAX { 100 } else { 1_000 });
        (repeats, repeats.div_ceil(10))
    }
}

/// One measured length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectiveMeasurement {
    /// Length of the message in bytes.
    pub bytes: u64,
    /// The times of each member, by rank: those of this machine first.
    pub times: Vec<Vec<Duration>>,
}

/// Returns how long each operation took at each member, those of one member after those of another by rank. Checks one
/// result. Blocks until all members are done, one operation for a minute at most.
///
/// Errors: the team has failed, a result is wrong, or there is no memory, which fails the team.
pub(crate) fn measure(team: &Team, plan: &CollectivePlan, bytes: u64) -> Result<Vec<u64>, Error> {
    let (repeats, warm_up) = plan.repeats(bytes);
    let (repeats, rank) = (repeats as usize, team.rank() as usize);
    let memory = Memory::new(plan.operation, bytes);
    let mut memory = memory.map_err(|why| failed(team, &why))?;
    let mut all = vec![0; repeats * team.members() as usize];
    let own = &mut all[repeats * rank..][..repeats];
    for _ in 0..warm_up {
        memory.run(team)?;
        team.barrier(TIMEOUT)?;
    }
    for time_ns in own {
        let start = Instant::now();
        memory.run(team)?;
        *time_ns = start.elapsed().as_nanos() as u64;
        team.barrier(TIMEOUT)?;
    }
    memory.check(team)?;
    team.all_gather(&mut all, TIMEOUT)?;
    Ok(all)
}

/// The member that has failed a team, or could not be joined.
pub(crate) fn blamed(error: &Error) -> Option<u32> {
    match error {
        Error::TeamFailed(failure) => failure.member,
        Error::Member { member, .. } => Some(*member),
        _ => None,
    }
}

/// The predicate of a sentence about that member, without ranks.
pub(crate) fn team_predicate(error: &Error) -> String {
    match error {
        Error::TeamFailed(failure) => match failure.detail.as_str() {
            "" => failure.kind.to_string(),
            detail => format!("{}: {detail}", failure.kind),
        },
        other => join_predicate(other),
    }
}

/// Fails the team because of this member. Returns the error.
fn failed(team: &Team, why: &str) -> Error {
    team.abort(why);
    // A failed team reports that at once.
    team.barrier(TIMEOUT).err().unwrap_or_else(|| Error::TeamCall(why.to_owned()))
}

/// What an operation works on.
enum Memory {
    Message(Vec<u8>),
    Numbers(Vec<f32>),
}

impl Memory {
    /// Errors: there is too little.
    fn new(operation: Collective, bytes: u64) -> Result<Self, String> {
        fn zeros<T: Clone + Default>(count: u64) -> Result<Vec<T>, String> {
            let refused =
                || format!("no memory for messages of {} bytes", count * size_of::<T>() as u64);
            let count = usize::try_from(count).map_err(|_| refused())?;
            let mut all = Vec::new();
            all.try_reserve_exact(count).map_err(|_| refused())?;
            all.resize(count, T::default());
            Ok(all)
        }
        Ok(match operation {
            Collective::Broadcast => Self::Message(zeros(bytes)?),
            Collective::AllReduce => Self::Numbers(zeros(bytes / size_of::<f32>() as u64)?),
        })
    }

    fn run(&mut self, team: &Team) -> Result<(), Error> {
        match self {
            Self::Message(message) => team.broadcast(0, message, TIMEOUT),
            Self::Numbers(numbers) => team.all_reduce(numbers, Op::Sum, TIMEOUT),
        }
    }

    /// Runs the operation with contents that differ from member to member, and compares the result.
    fn check(&mut self, team: &Team) -> Result<(), Error> {
        let (rank, members) = (team.rank(), team.members());
        let is_right = match self {
            Self::Message(message) => {
                message.fill(if rank == 0 { 0xA5 } else { 0 });
                team.broadcast(0, message, TIMEOUT)?;
                message.iter().all(|&byte| byte == 0xA5)
            }
            Self::Numbers(numbers) => {
                numbers.fill(rank as f32);
                team.all_reduce(numbers, Op::Sum, TIMEOUT)?;
                // Exact to 5,793 members: sums stay below 2^24.
                let sum = (f64::from(members) * f64::from(members - 1) / 2.0) as f32;
                numbers.iter().all(|&number| (number - sum).abs() <= sum * 1e-3)
            }
        };
        if is_right { Ok(()) } else { Err(failed(team, "it got a wrong result")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(operation: Collective, sizes: &[u64]) -> CollectivePlan {
        CollectivePlan { operation, sizes: sizes.to_vec(), repeats: None, degree: None }
    }

    #[test]
    fn plans_that_make_no_sense_are_refused() {
        assert_eq!(plan(Collective::AllReduce, &[4, 1 << 20]).check(), Ok(()));
        assert_eq!(plan(Collective::Broadcast, &[0, 3]).check(), Ok(()));
        let refused = |plan: CollectivePlan, part: &str| {
            let error = plan.check().unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        refused(plan(Collective::AllReduce, &[4, 6]), "6 is not a multiple");
        refused(plan(Collective::Broadcast, &[COLLECTIVE_BYTES_MAX + 1]), "too long");
        refused(plan(Collective::Broadcast, &[]), "no length");
        let repeats = Some(COLLECTIVE_REPEATS_MAX + 1);
        refused(CollectivePlan { repeats, ..plan(Collective::Broadcast, &[4]) }, "1 to 10000");
        let degree = Some(3);
        refused(CollectivePlan { degree, ..plan(Collective::Broadcast, &[4]) }, "has no degree");
    }

    #[test]
    fn repeats_are_those_of_osu() {
        let plan = plan(Collective::Broadcast, &[4]);
        assert_eq!(plan.repeats(8 << 10), (1_000, 100));
        assert_eq!(plan.repeats((8 << 10) + 1), (100, 10));
        assert_eq!(CollectivePlan { repeats: Some(5), ..plan }.repeats(4), (5, 1));
    }

    #[test]
    fn names_are_parsed() {
        for operation in Collective::ALL {
            assert_eq!(operation.name().parse(), Ok(operation));
        }
        assert!("scan".parse::<Collective>().unwrap_err().contains("broadcast, allreduce"));
    }
}
