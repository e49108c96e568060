//! Broadcasts and sums of arrays between processes in Python: `rdmc.Group` beside torch.distributed and mpi4py, and beside the same in
//! Rust (docs/results/python.md).

mod member;
mod way;
mod work;

use std::{
    fs,
    hint::black_box,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use plan::size;
use serde_json::{Value, json};

use self::{
    way::Way,
    work::{Operation, Work},
};
use crate::{
    collectives::{
        site::with_site,
        times::{PREFIX, Statistics, TimeTable},
    },
    interrupt::Interrupt,
    outcome::Outcome,
    peers::{site::Site, turn, versions, workspace::Workspace},
    report::{Output, Report, median, number},
    sweep::alternate,
};

pub use self::member::{Args as MemberArgs, run as run_member};

/// The longest that one turn takes.
const TURN_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of groups
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4,8",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    members: Vec<u32>,
    /// Lengths of one array; of `float`s for all-reduce
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_nonzero,
          default_value = "1KiB,16KiB,256KiB,4MiB,64MiB,256MiB")]
    bytes: Vec<u64>,
    /// Number of shorter arrays, one after another; none: 0
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=10_000))]
    count: u32,
    /// Length of each of them
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "4MiB")]
    each: u64,
    /// Only these operations
    #[arg(
        long,
        value_name = "OPERATIONS",
        value_delimiter = ',',
        default_value = "broadcast,all-reduce"
    )]
    operations: Vec<Operation>,
    /// Only these programs
    #[arg(
        long,
        value_name = "WAYS",
        value_delimiter = ',',
        default_value = "rdmc,rdmc-default,rdmc-shared,gloo,mpi,mpi-shared"
    )]
    ways: Vec<Way>,
    /// Members of the groups in Python and in Rust
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    overhead_members: u32,
    /// Lengths of one array in Python and in Rust; none: 0
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse, default_value = "1KiB,1GiB")]
    overhead_bytes: Vec<u64>,
    /// How many turns each has, alternating; medians are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    turns: u32,
    /// Operations in a turn, of arrays of 1 MiB or more; of shorter ones a hundred times as many
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repeats: u32,
    /// Members on hosts of a lab, over links of a known rate (needs root)
    #[arg(long)]
    lab: bool,
    /// The Python that has rdmc, numpy, torch and mpi4py
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Times in us: of all works of a turn, or of all turns of a work.
type Times = Vec<f64>;

/// Variables of members' environment.
type Environment = [(&'static str, &'static str)];

/// What was measured with so many members.
struct Measured {
    /// By way, by turn, by work; `None`: a turn that failed.
    turns: Vec<Vec<Option<Times>>>,
    /// Why they failed.
    troubles: Vec<String>,
}

impl Measured {
    /// All turns of a way for one work.
    fn of(&self, way: usize, work: usize) -> Times {
        self.turns[way].iter().flatten().map(|turn| turn[work]).collect()
    }
}

/// Measures and prints. Errors: a member fails or has wrong bytes; Python lacks rdmc; not root, for a lab.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let place = if args.lab { "hosts of a lab" } else { "this machine" };
    let what = format!(
        "operations on arrays, a process per member on {place}, from rank 0's start to the last member's end, ms; median of {} \
         turns with {} operations each",
        args.turns, args.repeats
    );
    let mut report = Report::new("python", what);
    let (ways, missing) = args.usable_ways()?;
    let works = args.works()?;
    args.beside(&ways, &works, &interrupt, &mut report)?;
    args.overhead(&interrupt, &mut report)?;
    report.note(format!("Load before the run (1, 5 and 15 minutes): {}.", load.trim()));
    report.note(
        "times gloo's: torch.distributed's time in parts of this one's. A barrier of the program's own before each operation. \
         All bytes are compared before and after. rdmc protects nothing (protection=\"none\"), as the others, but for the rows of \
         its default.",
    );
    report.note(format!(
        "The copy limit of this machine: one core copies 256 MiB, between memory that was touched before, in {:.0} ms.",
        copying_ms()
    ));
    missing.into_iter().for_each(|line| report.note(line));
    if let Some(list) =
        versions(&["python3-torch", "python3-mpi4py", "openmpi-bin", "python3-numpy"])
    {
        report.note(format!("Installed: {list}."));
    }
    report.print(&args.output);
    Ok(())
}

impl Args {
    fn work(&self, operation: Operation, count: u32, bytes: u64) -> Work {
        let factor = if bytes < 1 << 20 { 100 } else { 1 };
        Work { operation, count, bytes, repeats: self.repeats * factor }
    }

    /// Everything that is measured beside others. Errors: a length that no `float`s have.
    fn works(&self) -> Outcome<Vec<Work>> {
        let lengths = self.bytes.iter().map(|&bytes| (1, bytes));
        let several = (self.count > 0).then_some((self.count, self.each));
        let lengths: Vec<(u32, u64)> = lengths.chain(several).collect();
        let sums = self.operations.contains(&Operation::AllReduce);
        if let Some((_, odd)) = lengths.iter().find(|(_, bytes)| sums && bytes % 4 != 0) {
            return Err(format!("{odd} bytes are no floats: give multiples of 4").into());
        }
        let of = |&operation| {
            lengths.iter().map(move |&(count, bytes)| self.work(operation, count, bytes))
        };
        Ok(self.operations.iter().flat_map(of).collect())
    }

    /// Ways whose modules Python has, and a line for each that it lacks. Errors: Python has no rdmc.
    fn usable_ways(&self) -> Outcome<(Vec<Way>, Vec<String>)> {
        let (mut ways, mut missing) = (Vec::new(), Vec::new());
        for &way in &self.ways {
            let Some((modules, packages)) = way.needs() else {
                ways.push(way);
                continue;
            };
            match has_modules(&self.python, modules) {
                Ok(()) => ways.push(way),
                Err(error) if way == Way::Rdmc => return Err(error),
                Err(_) => missing.push(format!(
                    "Left out: {} ({modules} cannot be imported; Debian packages: {packages}).",
                    way.name()
                )),
            }
        }
        Ok((ways, missing))
    }

    /// One array, and several one after another, by each way.
    fn beside(
        &self,
        ways: &[Way],
        works: &[Work],
        interrupt: &Interrupt,
        report: &mut Report,
    ) -> Outcome<()> {
        for &members in &self.members {
            let times = self.measure(ways, members, (works, &[]), interrupt)?;
            for (index, work) in works.iter().enumerate() {
                let gloo = ways.iter().position(|&way| way == Way::Gloo);
                let gloo = gloo.map_or(f64::NAN, |way| median(times.of(way, index)));
                for (position, way) in ways.iter().enumerate() {
                    let all = times.of(position, index);
                    let middle = median(all.clone());
                    report.row([
                        ("operation", json!(work.operation.name())),
                        ("arrays", json!(work.name())),
                        ("members", json!(members)),
                        ("network", json!(way.network())),
                        ("program", json!(way.name())),
                        ("ms", ms(middle)),
                        ("fastest_ms", ms(all.iter().copied().fold(f64::NAN, f64::min))),
                        ("slowest_ms", ms(all.iter().copied().fold(f64::NAN, f64::max))),
                        ("times_gloo's", number(gloo / middle)),
                    ]);
                }
            }
            times.troubles.into_iter().for_each(|line| report.note(line));
        }
        Ok(())
    }

    /// The same broadcasts in Python and in Rust.
    fn overhead(&self, interrupt: &Interrupt, report: &mut Report) -> Outcome<()> {
        let lengths = self.overhead_bytes.iter().filter(|&&bytes| bytes > 0);
        let work = |&bytes| self.work(Operation::Broadcast, 1, bytes);
        let works: Vec<Work> = lengths.map(work).collect();
        if works.is_empty() {
            return Ok(());
        }
        let members = self.overhead_members;
        // Pages as Rust has them: for long arrays numpy asks the kernel for larger ones.
        let same = (&works[..], &[("NUMPY_MADVISE_HUGEPAGE", "0")][..]);
        let times = self.measure(&[Way::Rust, Way::Rdmc], members, same, interrupt)?;
        report.table("overhead", "rdmc.Group with numpy beside a team of the library in Rust:");
        for (index, work) in works.iter().enumerate() {
            let (rust, python) = (median(times.of(0, index)), median(times.of(1, index)));
            let pairs = times.of(0, index).into_iter().zip(times.of(1, index));
            let differences: Times = pairs.map(|(rust, python)| python - rust).collect();
            report.row([
                ("array", json!(work.name())),
                ("members", json!(members)),
                ("Rust_us", number(rust)),
                ("Python_us", number(python)),
                ("difference_us", number(python - rust)),
                ("median_difference_us", number(median(differences))),
                ("ratio", number(python / rust)),
            ]);
        }
        Ok(())
    }

    /// Turns of each way, alternating.
    ///
    /// Errors: an interrupt; a turn of rdmc's own over TCP fails.
    fn measure(
        &self,
        ways: &[Way],
        members: u32,
        load: (&[Work], &Environment),
        interrupt: &Interrupt,
    ) -> Outcome<Measured> {
        let mut workspace = Workspace::open()?;
        let mut troubles = Vec::new();
        let turns = with_site(self.lab, members, |site| {
            alternate(ways.len(), self.turns, &format!("{members} members"), |index| {
                let way = ways[index];
                let turn = self.take_turn(way, site, &mut workspace, load, interrupt);
                interrupt.check()?;
                turn.map(Some).or_else(|error| {
                    let line =
                        format!("{}, {}, {members} members: {error}", way.name(), way.network());
                    if matches!(way, Way::Rdmc | Way::Rust) {
                        return Err(line.into());
                    }
                    troubles.push(line);
                    Ok(None)
                })
            })
        })?;
        Ok(Measured { turns, troubles })
    }

    fn take_turn(
        &self,
        way: Way,
        site: &Site,
        workspace: &mut Workspace,
        (works, environment): (&[Work], &Environment),
        interrupt: &Interrupt,
    ) -> Outcome<Times> {
        let mut launches = way.launches(&self.python, site, workspace, works)?;
        for launch in &mut launches {
            launch
                .environment
                .extend(environment.iter().map(|(name, value)| (*name, (*value).to_owned())));
        }
        let mut table = TimeTable::new(works.len(), u32::try_from(site.hosts.len())?);
        turn::run(&launches, TURN_TIMEOUT, interrupt, PREFIX, |line| {
            table.note(line)?;
            Ok(table.is_full())
        })?;
        let leaf = |found: &Statistics| found.leaf_us;
        Ok(table.statistics()?.iter().map(leaf).collect())
    }
}

/// How long one core takes to copy 256 MiB, at best of a few times.
fn copying_ms() -> f64 {
    let from = vec![1_u8; 256 << 20];
    let mut to = vec![2_u8; from.len()];
    let copy = |_| {
        let start = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..5).map(copy).fold(f64::INFINITY, f64::min)
}

fn ms(us: f64) -> Value {
    number(us / 1e3)
}

/// Errors: Python does not run, or cannot import one of these modules.
fn has_modules(python: &Path, modules: &str) -> Outcome<()> {
    let output = Command::new(python)
        .args(["-c", &format!("import {modules}")])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", python.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap_or("no reason given");
    Err(format!("{} cannot import {modules}: {last}", python.display()).into())
}
