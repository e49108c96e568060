//! Options of `rdmc plan --collective`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use collective::{MEMBERS_MAX, model::Parameters};

/// Options of replication alone. They exclude `--collective`, so options that require it conflict with them as well;
/// otherwise the parser would not report its absence.
const OF_REPLICATION: [&str; 7] =
    ["blocks", "algorithm", "racks", "block_size", "rate", "burst", "local"];

/// An operation of a team.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// The root's message goes to all members.
    Broadcast,
    /// Contributions of all members come together at rank 0.
    Reduce,
    /// Contributions of all members come together, and all get the result.
    Allreduce,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Broadcast, Self::Reduce, Self::Allreduce];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
        }
    }
}

/// An operation of a team.
#[derive(Debug, clap::Args)]
// Groups are named after types, and another type of this command has the same name.
#[group(skip)]
#[command(next_help_heading = "Operations of a team")]
pub struct Options {
    /// Show instead who writes to whom in which step of a collective operation, by the way that the library takes for
    /// --bytes, and how long it takes by a cost model; with --explain all ways are compared
    #[arg(long, value_name = "NAME", conflicts_with_all = OF_REPLICATION, value_parser = operations())]
    pub collective: Option<Operation>,

    /// Show a reduction along trees, in which at most so many members write to one in a step
    /// [default: the way that the library takes for --bytes]
    #[arg(
        long,
        value_name = "K",
        requires = "collective",
        conflicts_with = "explain",
        conflicts_with_all = OF_REPLICATION,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MEMBERS_MAX - 1))
    )]
    pub degree: Option<u32>,

    /// Costs for the model, in microseconds: per byte transmitted (Tt), copied (Tc) and folded (To), per DMA start
    /// (Ts), adapter (Tn), posting (Td), call (Tm) and acknowledgement (Ta), such as Tt=0.001,Ts=0.5
    /// [default: those of the network that the model was published with, also for what is left out]
    #[arg(
        long,
        value_name = "COSTS",
        requires = "collective",
        requires = "bytes",
        conflicts_with_all = OF_REPLICATION
    )]
    pub parameters: Option<Parameters>,
}

impl Options {
    /// Whether `--collective` was given.
    pub const fn are_given(&self) -> bool {
        self.collective.is_some()
    }
}

fn operations() -> impl TypedValueParser<Value = Operation> {
    PossibleValuesParser::new(Operation::ALL.map(Operation::name)).map(|name| {
        let known = Operation::ALL.into_iter().find(|operation| operation.name() == name);
        known.expect("only these names are parsed")
    })
}
