//! Many jobs, several times each, in alternating order.

use std::io::{IsTerminal, Write};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use plan::size;
use rdmc::Algorithm;

use crate::{
    member::Job,
    member_processes::{Measured, MemberProcesses},
    outcome::Outcome,
    report::median,
};

/// Options of every sweep over algorithms and block sizes.
#[derive(Clone, Debug, clap::Args)]
pub struct Choice {
    /// Block sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_nonzero,
          default_value = "64KiB,256KiB,1MiB,4MiB")]
    pub blocks: Vec<u64>,
    /// Receives and sends that each member posts ahead [default: half a megabyte of blocks, 8 to 64
    /// and 4 for each partner]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub window: Option<u32>,
    /// How often each is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
}

impl Choice {
    /// One message of this length to so many members by every algorithm, with every block size.
    pub fn jobs(&self, algorithms: &[Algorithm], members: u32, message_bytes: u64) -> Vec<Job> {
        let job = |&algorithm: &Algorithm, &block_bytes: &u64| {
            Job::one(algorithm, block_bytes, message_bytes).in_group(members, self.window)
        };
        let with_blocks = |algorithm| self.blocks.iter().map(move |block| job(algorithm, block));
        algorithms.iter().flat_map(with_blocks).collect()
    }
}

/// Parses the name of an algorithm, and lists the names where it is none.
pub fn algorithms() -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new(Algorithm::ALL.map(Algorithm::name)).try_map(|name| name.parse())
}

/// The results of one job.
#[derive(Debug)]
pub struct Repeated(Vec<Measured>);

impl Repeated {
    pub fn seconds(&self) -> f64 {
        self.median_of(|measured| measured.seconds)
    }

    pub fn skew_seconds(&self) -> f64 {
        self.median_of(|measured| measured.skew_seconds)
    }

    pub fn cpu_seconds(&self) -> f64 {
        self.median_of(|measured| measured.cpu_seconds)
    }

    /// Of each run, in their order.
    pub fn all_seconds(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|measured| measured.seconds)
    }

    /// From the fastest to the slowest.
    pub fn range(&self) -> (f64, f64) {
        (self.all_seconds().fold(f64::INFINITY, f64::min), self.all_seconds().fold(0.0, f64::max))
    }

    fn median_of(&self, what: impl Fn(&Measured) -> f64) -> f64 {
        median(self.0.iter().map(what).collect())
    }
}

/// Runs all jobs several times, in [alternating](alternate) order.
pub fn sweep(
    processes: &mut MemberProcesses,
    jobs: &[Job],
    repeats: u32,
    name: &str,
) -> Outcome<Vec<Repeated>> {
    let results = alternate(jobs.len(), repeats, name, |index| processes.run(&jobs[index]))?;
    Ok(results.into_iter().map(Repeated).collect())
}

/// Does `count` things once, then once more in the opposite order, and so on, so that
/// drift affects all of them equally. Answers the results of each, in the order of the runs.
pub fn alternate<T>(
    count: usize,
    repeats: u32,
    name: &str,
    mut run: impl FnMut(usize) -> Outcome<T>,
) -> Outcome<Vec<Vec<T>>> {
    let mut results: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
    for round in 0..repeats as usize {
        for position in 0..count {
            let index = if round % 2 == 0 { position } else { count - 1 - position };
            progress(name, round * count + position + 1, count * repeats as usize);
            results[index].push(run(index)?);
        }
    }
    Ok(results)
}

/// One line that replaces itself, in a terminal only.
pub fn progress(name: &str, done: usize, total: usize) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let end = if done == total { "\r\x1b[K" } else { "" };
        let _ = write!(err, "\r{name}: {done} of {total}{end}");
    }
}
