//! `rdmc-simulate`: runs scenarios from seeds, and reports failures.

use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use serde::de::DeserializeOwned;
use simulate::{
    Campaign, Copies, Creations, Groups, Limits, Options, Pushes, Subject, Teams, Wires, caught,
    shrink,
};

/// The option of copies at one host, which have no members.
const COPIES: &str = " --copies";
/// The option of the wire, which has two ends.
const WIRE: &str = " --wire";
/// How long a failing scenario is shrunk.
const SHRINKING: Duration = Duration::from_secs(60);

/// Runs groups of real engines, whole pushes, teams, or the TCP wire in virtual time, or copies at one host, with everything that
/// can go wrong
#[derive(Debug, Parser)]
#[command(name = "rdmc-simulate")]
struct Arguments {
    /// The first seed
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds; 1 if a seed is given, otherwise 20,000
    #[arg(long)]
    count: Option<u64>,
    /// Whole pushes instead of groups, each and then the same command again
    #[arg(long)]
    pushes: bool,
    /// Teams that call collective operations instead of groups
    #[arg(long, conflicts_with = "pushes")]
    teams: bool,
    /// What receivers do with their disks, beside other processes, instead of groups
    #[arg(long, conflicts_with_all = ["pushes", "teams", "members"])]
    copies: bool,
    /// Contexts that create groups with each other, instead of groups
    #[arg(long, conflicts_with_all = ["pushes", "teams", "copies"])]
    creations: bool,
    /// Two ends of the TCP transport over streams that are cut, delayed, lost and altered, instead of groups
    #[arg(long, conflicts_with_all = ["pushes", "teams", "copies", "creations", "members"])]
    wire: bool,
    /// Sizes of groups, both ends included; of pushes, with the root; 1..9, of teams 1..33
    #[arg(long, value_name = "A..B", value_parser = range)]
    members: Option<RangeInclusive<u32>>,
    /// Threads; 0: one for each core
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Stop after so long, and go on with new seeds until then
    #[arg(long)]
    minutes: Option<f64>,
    /// Try smaller scenarios that still fail, and write the smallest into a file
    #[arg(long)]
    shrink: bool,
    /// Plant a bug, which has to be noticed
    #[arg(long, value_name = "NAME")]
    canary: Option<String>,
    /// Run the scenario of a file instead of seeds
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Print the scenario and so many of its last events even if all is well; one seed
    #[arg(long, value_name = "LINES")]
    trace: Option<usize>,
}

fn range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse::<u32>().map_err(|error| format!("{text:?}: {error}"));
    let (least, most) = (number(least)?, number(most)?);
    if least == 0 || least > most || most > 1_000 {
        return Err("use A..B, from 1 to 1000 members".to_owned());
    }
    Ok(least..=most)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.subject() {
        " --pushes" => command::<Pushes>(&arguments),
        " --teams" => command::<Teams>(&arguments),
        COPIES => command::<Copies>(&arguments),
        " --creations" => command::<Creations>(&arguments),
        WIRE => command::<Wires>(&arguments),
        _ => command::<Groups>(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("rdmc-simulate: {problem}");
            ExitCode::from(2)
        }
    }
}

/// Returns `false` if a run failed.
fn command<S: Subject>(arguments: &Arguments) -> Result<bool, String> {
    let canary = arguments.canary.as_deref().map(str::parse).transpose()?;
    let runner = Runner::<S> { arguments, canary };
    match (&arguments.scenario, arguments.trace) {
        (Some(path), _) => read(path).map(|scenario| runner.show(0, &scenario)),
        (None, Some(_)) => {
            let seed = arguments.first_seed();
            Ok(runner.show(seed, &S::draw(seed, &runner.limits())))
        }
        (None, None) => Ok(runner.run_many()),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| named(&error))?;
    serde_json::from_str(&text).map_err(|error| named(&error))
}

impl Arguments {
    fn first_seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }

    /// Returns the option that selects what is simulated.
    fn subject(&self) -> &'static str {
        let chosen = [
            (self.pushes, " --pushes"),
            (self.teams, " --teams"),
            (self.copies, COPIES),
            (self.creations, " --creations"),
            (self.wire, WIRE),
        ];
        chosen.into_iter().find(|(is_chosen, _)| *is_chosen).map_or("", |(_, option)| option)
    }
}

/// Runs the requested scenarios.
struct Runner<'a, S: Subject> {
    arguments: &'a Arguments,
    canary: Option<S::Canary>,
}

impl<S: Subject> Runner<'_, S> {
    fn limits(&self) -> Limits {
        match &self.arguments.members {
            Some(members) => Limits { members: members.clone() },
            None => S::limits(),
        }
    }

    /// Returns the command that runs one seed again.
    fn replay(&self, seed: u64) -> String {
        let subject = self.arguments.subject();
        let Limits { members } = self.limits();
        let members = match subject {
            COPIES | WIRE => String::new(),
            _ => format!(" --members {}..{}", members.start(), members.end()),
        };
        let canary = self.arguments.canary.as_ref().map(|name| format!(" --canary {name}"));
        let canary = canary.unwrap_or_default();
        format!("./dev sim{subject} --seed {seed}{members}{canary}")
    }

    fn options(&self, trace_events: usize) -> Options<S::Canary> {
        Options { canary: self.canary, trace_events, ..Options::default() }
    }

    /// Runs one scenario and prints everything. Returns `false` if it failed.
    fn show(&self, seed: u64, scenario: &S::Scenario) -> bool {
        let report = self.print(scenario, self.arguments.trace.unwrap_or(200));
        let mut tally = S::Tally::default();
        S::add(&mut tally, seed, &report);
        println!("{tally}");
        S::verdict(&report).0.is_empty()
    }

    fn print(&self, scenario: &S::Scenario, trace_events: usize) -> S::Report {
        let report = S::run(scenario, self.options(trace_events));
        let (violations, trace) = S::verdict(&report);
        print!("{scenario}\n{trace}");
        for violation in violations {
            println!("VIOLATION: {violation}");
        }
        report
    }

    /// Runs seeds until one fails. Returns `false` if one did.
    fn run_many(&self) -> bool {
        let arguments = self.arguments;
        let count = match (arguments.count, arguments.minutes) {
            (Some(count), _) => count,
            (None, Some(_)) => u64::MAX,
            (None, None) if arguments.seed.is_some() => 1,
            (None, None) => 20_000,
        };
        let campaign = Campaign::<S> {
            time_limit: arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
            limits: self.limits(),
            options: self.options(0),
            jobs: arguments.jobs,
            ..Campaign::new(arguments.first_seed(), count)
        };
        let start = Instant::now();
        let (tally, failed) = campaign.run();
        println!("{tally}");
        println!("{:.0} runs per second", S::runs(&tally) as f64 / start.elapsed().as_secs_f64());
        if let Some(seed) = failed {
            self.explain(seed);
        }
        failed.is_none()
    }

    /// Runs a failing seed again to print it, and shrinks it if requested.
    fn explain(&self, seed: u64) {
        let again = self.replay(seed);
        println!();
        let drawn = caught(|| {
            let scenario = S::draw(seed, &self.limits());
            self.print(&scenario, 200);
            Ok(scenario)
        });
        println!("seed {seed} failed; again: {again}");
        // It panics where no run is, which prints why.
        let Ok(scenario) = drawn else { return };
        if !self.arguments.shrink {
            println!("smaller: {again} --shrink");
            return;
        }
        let smaller = shrink::<S>(&scenario, self.options(0), SHRINKING);
        print!("\nsmaller: ");
        self.print(&smaller, 200);
        let path = PathBuf::from(format!("seed-{seed}.json"));
        let text = serde_json::to_string_pretty(&smaller).expect("scenarios are plain data");
        let subject = self.arguments.subject();
        match fs::write(&path, text) {
            Ok(()) => println!("again: ./dev sim{subject} --scenario {}", path.display()),
            Err(error) => println!("{}: {error}", path.display()),
        }
    }
}
