//! `rdmc plan`: the schedule of one message, as a table, as JSON or as a picture; or where switches copy it.
//!
//! Nothing is sent. The table and the JSON are streamed: memory grows with the members, not with the transfers.

mod explain;
mod in_switch;
mod json;
mod svg;
mod table;
mod transfers;

use std::{
    io::{BufWriter, Write},
    path::PathBuf,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use plan::size;
use schedule::{Algorithm, MAX_MEMBERS, Schedule};

use crate::{
    failure::{Exit, Failure},
    output::{self, InUse},
};

/// More transfers than anybody reads: at this size the table is about a gigabyte.
const MAX_TRANSFERS: u64 = 50_000_000;

/// Show who sends which block to whom at which step, or where switches copy
#[derive(Debug, clap::Args)]
#[command(after_help = in_switch::EXAMPLES)]
pub struct Args {
    /// How many members the group has, the root included
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "in_switch",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_MEMBERS))
    )]
    members: Option<u32>,

    /// How many blocks the message has
    #[arg(long, value_name = "K", required_unless_present_any = ["explain", "in_switch"])]
    blocks: Option<u32>,

    /// How blocks travel; chain-of-racks and nested-pipelines need --racks; of in-switch all copies
    /// are steps, though switches make those of a block of one transmission
    /// [default: binomial-pipeline; with --explain: any]
    #[arg(long, value_name = "NAME", value_parser = algorithms())]
    algorithm: Option<Algorithm>,

    /// The rank that has the message at the start
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,

    /// The size of each rack, in rank order: 4,4,2 puts ranks 0-3, 4-7 and 8-9 in racks of their own
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    racks: Option<Vec<u32>>,

    /// Say instead which algorithm and block size `auto` picks for a message of --bytes, and why
    #[arg(long, requires = "bytes", conflicts_with_all = ["blocks", "root", "racks", "svg"])]
    explain: bool,

    /// Length of the message
    #[arg(long, value_name = "SIZE", requires = "explain", value_parser = size::parse)]
    bytes: Option<u64>,

    /// Only with this block size
    #[arg(long, value_name = "SIZE", requires = "explain", value_parser = size::parse_block)]
    block_size: Option<u64>,

    /// What one link carries, such as 250mbit or 10gbit [default: 10gbit]
    #[arg(long, value_name = "RATE", requires = "explain", value_parser = size::parse_rate)]
    rate: Option<u64>,

    /// What links let through at once above --rate, as token buckets do
    #[arg(long, value_name = "SIZE", requires = "rate", value_parser = size::parse, default_value = "0")]
    burst: u64,

    /// All members share this machine, as with `rdmc push --local`
    #[arg(long, requires = "explain", conflicts_with = "rate")]
    local: bool,

    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,

    /// Draw the plan into this SVG file instead of printing the table
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    #[command(flatten)]
    in_switch: in_switch::Options,
}

impl Args {
    /// Only `--in-switch` does without.
    fn members(&self) -> u32 {
        self.members.unwrap_or(1)
    }
}

fn algorithms() -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new(Algorithm::ALL.map(Algorithm::name)).try_map(|name| name.parse())
}

/// A schedule and the number of blocks to plan for.
struct Plan {
    schedule: Schedule,
    blocks: u32,
}

impl Plan {
    fn new(args: &Args) -> Result<Self, Failure> {
        let members = args.members();
        let algorithm = args.algorithm.unwrap_or(Algorithm::BinomialPipeline);
        let blocks = args.blocks.unwrap_or(0);
        let transfers = u64::from(members - 1) * u64::from(blocks);
        if transfers > MAX_TRANSFERS {
            return Err(Failure::Usage(format!(
                "this plan has {transfers} transfers, and rdmc plan shows at most {MAX_TRANSFERS}: \
                 ask for fewer --blocks or --members"
            )));
        }
        let schedule = match &args.racks {
            Some(sizes) => {
                Schedule::with_racks(algorithm, &rack_of_each(sizes, members)?, args.root)
            }
            None if algorithm.needs_racks() => {
                return Err(Failure::Usage(format!(
                    "{algorithm} needs to know the racks: add for example --racks {},{}",
                    members.div_ceil(2),
                    members / 2
                )));
            }
            None => Schedule::new(algorithm, members, args.root),
        };
        let schedule = schedule.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Self { schedule, blocks })
    }

    fn steps(&self) -> u64 {
        self.schedule.steps(self.blocks)
    }

    /// Of an in-switch plan: how many blocks pass the root's link where switches copy, while the
    /// steps count each copy.
    fn block_times_with_copies(&self) -> Option<u64> {
        let is_in_switch = self.schedule.algorithm() == Algorithm::InSwitch;
        (is_in_switch && self.schedule.members() > 1).then_some(self.blocks.into())
    }
}

/// The rack of each rank, from the racks' sizes in rank order.
fn rack_of_each(sizes: &[u32], members: u32) -> Result<Vec<u32>, Failure> {
    let total: u64 = sizes.iter().copied().map(u64::from).sum();
    if total != u64::from(members) {
        return Err(Failure::Usage(format!(
            "the racks hold {total} members and the group has {members}: the sizes in --racks must add up to --members"
        )));
    }
    Ok((0..)
        .zip(sizes)
        .flat_map(|(rack, &size)| std::iter::repeat_n(rack, size as usize))
        .collect())
}

/// Prints or draws the plan.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.in_switch.are_given() {
        in_switch::run(&args.in_switch, args.members, args.json)?;
    } else if args.explain {
        explain::run(args)?;
    } else {
        show(args)?;
    }
    Ok(Exit::Done)
}

fn show(args: &Args) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    if let Some(path) = &args.svg {
        let picture = svg::draw(&plan)?;
        output::create("--svg", path, &InUse::default())?
            .write_all(picture.as_bytes())
            .map_err(Failure::while_doing(format_args!("--svg {}", path.display())))?;
        if !args.json {
            return Ok(());
        }
    }
    output::print(|out| {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let written =
            if args.json { json::write(&plan, &mut out) } else { table::write(&plan, &mut out) };
        written.and_then(|()| out.flush())
    })
}
