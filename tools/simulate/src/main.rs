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
    Campaign, CopyScenario, CreationScenario, Limits, Options, OutcomeOf, PushScenario, Scenario,
    Subject, Tally, TeamScenario, WireScenario, canary, caught, shrink,
};

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
    /// Stop after this time, and continue with new seeds until then
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
    /// Print the scenario and this many of its last events even if all is well; one seed
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
    let outcome = match &arguments {
        Arguments { pushes: true, .. } => command::<PushScenario>(&arguments),
        Arguments { teams: true, .. } => command::<TeamScenario>(&arguments),
        Arguments { copies: true, .. } => command::<CopyScenario>(&arguments),
        Arguments { creations: true, .. } => command::<CreationScenario>(&arguments),
        Arguments { wire: true, .. } => command::<WireScenario>(&arguments),
        _ => command::<Scenario>(&arguments),
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
    let canary = arguments.canary.as_deref().map(canary::<S>).transpose()?;
    let runner = Runner::<S> { arguments, canary };
    match (&arguments.scenario, arguments.trace) {
        (Some(path), _) => read(path).map(|scenario| runner.show(&scenario)),
        (None, Some(_)) => {
            Ok(runner.show(&S::draw(arguments.first_seed(), &runner.campaign(1).limits)))
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
}

/// Runs the requested scenarios.
struct Runner<'a, S: Subject> {
    arguments: &'a Arguments,
    canary: Option<S::Canary>,
}

impl<S: Subject> Runner<'_, S> {
    fn options(&self, trace_events: usize) -> Options<S::Canary> {
        Options { canary: self.canary, trace_events, ..Options::default() }
    }

    /// Returns a campaign of this many seeds.
    fn campaign(&self, count: u64) -> Campaign<S> {
        let Arguments { members, minutes, jobs, .. } = self.arguments;
        let campaign = Campaign::new(self.arguments.first_seed(), count);
        Campaign {
            time_limit: minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
            limits: members.clone().map_or(campaign.limits, |members| Limits { members }),
            options: self.options(0),
            jobs: *jobs,
            ..campaign
        }
    }

    /// Runs one scenario and prints everything. Returns `false` if it failed.
    fn show(&self, scenario: &S) -> bool {
        let outcome = self.print(scenario, self.arguments.trace.unwrap_or(200));
        let mut tally = Tally::default();
        tally.count(&outcome.counts);
        println!("{tally}");
        outcome.violations.is_empty()
    }

    fn print(&self, scenario: &S, trace_events: usize) -> OutcomeOf<S> {
        let outcome = scenario.run(self.options(trace_events));
        print!("{scenario}\n{}", outcome.trace);
        for violation in &outcome.violations {
            println!("VIOLATION: {violation}");
        }
        outcome
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
        let campaign = self.campaign(count);
        let start = Instant::now();
        let (tally, failed) = campaign.run();
        println!("{tally}");
        println!("{:.0} runs per second", tally.runs as f64 / start.elapsed().as_secs_f64());
        if let Some(seed) = failed {
            self.explain(seed, &campaign);
        }
        failed.is_none()
    }

    /// Runs a failing seed again to print it, and shrinks it if requested.
    fn explain(&self, seed: u64, campaign: &Campaign<S>) {
        let canary = self.arguments.canary.as_ref().map(|name| format!(" --canary {name}"));
        let again = campaign.replay(seed) + &canary.unwrap_or_default();
        println!();
        let drawn = caught(|| {
            let scenario = S::draw(seed, &campaign.limits);
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
        let smaller = shrink(&scenario, self.options(0), SHRINKING);
        print!("\nsmaller: ");
        self.print(&smaller, 200);
        let path = PathBuf::from(format!("seed-{seed}.json"));
        let text = serde_json::to_string_pretty(&smaller).expect("scenarios are plain data");
        match fs::write(&path, text) {
            Ok(()) => println!("again: ./dev sim{} --scenario {}", S::OPTION, path.display()),
            Err(error) => println!("{}: {error}", path.display()),
        }
    }
}
