//! The configuration of rdmc's members in measurements beside other programs: `rdmc-bench jobs` prints it for `./dev bench peers`
//! (tools/compare).

use lab::{Link, Rate};
use plan::{
    choice::{Choice, ChoiceRequest},
    costs::Machine,
    size,
};
use rdmc::{Algorithm, Fabric};
use serde_json::{Value, json};

use crate::{
    links,
    member::{Job, why_through_memory},
    outcome::Outcome,
};

/// Print orders for members, which take one message with these settings
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=64))]
    members: u32,
    #[arg(long, value_parser = size::parse_nonzero)]
    bytes: u64,
    /// Rate of the links, of TCP payload; on this machine unless given
    #[arg(long)]
    rate: Option<Rate>,
    #[arg(long, requires = "rate")]
    small_burst: bool,
    /// Unless given: what the cost model takes, and the other of pipeline and chain
    #[arg(long, value_name = "ALGORITHM:BLOCK[:WINDOW]", value_parser = settings)]
    rdmc: Vec<Settings>,
}

/// How a message is sent.
#[derive(Clone, Copy, Debug)]
struct Settings {
    algorithm: Algorithm,
    block_bytes: u64,
    /// Receives and sends that each member posts ahead; `None`: the library's choice.
    window: Option<u32>,
    path: Path,
}

/// What blocks move over on one machine.
#[derive(Clone, Copy, Debug)]
enum Path {
    /// The library's choice: between hosts sockets.
    Usual,
    Sockets,
    SharedMemory,
}

fn settings(text: &str) -> Result<Settings, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (algorithm, block, window) = match parts[..] {
        [algorithm, block] => (algorithm, block, None),
        [algorithm, block, window] => {
            let window = window.parse().ok().filter(|window| (1..=1024).contains(window));
            (algorithm, block, Some(window.ok_or("a window is 1 to 1024")?))
        }
        _ => return Err("ALGORITHM:BLOCK[:WINDOW], such as chain:64KiB".to_owned()),
    };
    let algorithm = algorithm.parse().map_err(|error| format!("{error}"))?;
    let block_bytes = size::parse_nonzero(block).map_err(|error| error.to_string())?;
    Ok(Settings { algorithm, block_bytes, window, path: Path::Usual })
}

/// Prints a list in JSON.
pub fn run(args: &Args) -> Outcome<()> {
    let all = if args.rdmc.is_empty() { args.picked() } else { args.rdmc.clone() };
    let jobs: Vec<Value> = all.iter().map(|one| one.to_json(args)).collect::<Outcome<_>>()?;
    println!("{}", Value::from(jobs));
    Ok(())
}

impl Args {
    /// The cost model's choice, the other of pipeline and chain, and on one machine the model's choices through sockets and over
    /// libfabric's shared memory.
    fn picked(&self) -> Vec<Settings> {
        let best = self.pick(None, Path::Usual);
        let other = match best.algorithm {
            Algorithm::Chain => Algorithm::BinomialPipeline,
            _ => Algorithm::Chain,
        };
        let mut all = vec![best, self.pick(Some(other), Path::Usual)];
        if self.rate.is_none() {
            all.extend([Path::Sockets, Path::SharedMemory].map(|path| self.pick(None, path)));
        }
        all
    }

    fn pick(&self, algorithm: Option<Algorithm>, path: Path) -> Settings {
        let (members, machine) = (self.members, Fabric::this_machine());
        let costs = match (self.rate, path) {
            (Some(rate), _) => {
                let link = Link::of_rate(rate);
                links::costs(members, if self.small_burst { link.with_small_burst() } else { link })
            }
            (None, Path::Usual) => Fabric::Tcp.costs_of_one_machine(members, machine),
            (None, Path::Sockets) => {
                let machine = Machine { copies_directly: false, ..machine };
                Fabric::Tcp.costs_of_one_machine(members, machine)
            }
            (None, Path::SharedMemory) => {
                Fabric::libfabric("shm").costs_of_one_machine(members, machine)
            }
        };
        let message_bytes = self.bytes;
        let request =
            ChoiceRequest { members, racks: &[], message_bytes, algorithm, block_bytes: None };
        let Choice { algorithm, block_bytes, .. } = request.choose(&costs);
        Settings { algorithm, block_bytes, window: None, path }
    }
}

impl Settings {
    fn to_json(self, args: &Args) -> Outcome<Value> {
        let job = Job::one(self.algorithm, self.block_bytes, args.bytes);
        let job = serde_json::to_value(job.in_group(args.members, self.window))?;
        let mut settings = format!("{}, {}", self.algorithm.name(), size::show(self.block_bytes));
        if let Some(window) = self.window {
            settings += &format!(", window {window}");
        }
        let (path, arguments): (&str, &[&str]) = match self.path {
            Path::Usual if args.rate.is_some() => ("", &[]),
            Path::Usual => (&why_through_memory(&Fabric::Tcp), &[]),
            Path::Sockets => (", sockets", &["--through-sockets"]),
            Path::SharedMemory => (", libfabric's shared memory", &["--fabric", "shm"]),
        };
        settings += path;
        Ok(json!({ "settings": settings, "job": job, "arguments": arguments }))
    }
}
