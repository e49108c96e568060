//! What groups cost: many overlapping ones, one of each size, idle ones.

mod idle;
mod sets;
mod sizes;

use crate::outcome::Outcome;

pub use sets::all_groups;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[group(id = "groups-mod")]
pub struct Args {
    #[command(subcommand)]
    cost: Option<Cost>,
    #[command(flatten)]
    sets: sets::Args,
}

/// What is measured instead of many overlapping groups.
#[derive(Debug, clap::Subcommand)]
enum Cost {
    /// How long creating and closing a group takes, by its size, on cold and on warm contexts
    Sizes(sizes::Args),
    /// Memory, descriptors and threads of groups that send nothing
    Idle(idle::Args),
}

pub fn run(args: &Args) -> Outcome<()> {
    match &args.cost {
        None => sets::run(&args.sets),
        Some(Cost::Sizes(args)) => sizes::run(args),
        Some(Cost::Idle(args)) => idle::run(args),
    }
}
