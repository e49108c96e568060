//! Options of `rdmc plan --collective`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use collective::{MEMBERS_MAX, model::WriteCosts};

/// Options for replication only. They exclude `--collective`, so options that require it must conflict with them too;
/// otherwise the parser would not report that it is missing.
const OF_REPLICATION: [&str; 7] =
    ["blocks", "algorithm", "racks", "block_size", "rate", "burst", "local"];

/// A collective operation of a team.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// The root's message goes to all members.
    Broadcast,
    /// Contributions of all members are reduced at rank 0.
    Reduce,
    /// Contributions of all members are reduced, and all members get the result.
    Allreduce,
    /// Contributions of all members are reduced, and each member gets its part of the result.
    ReduceScatter,
    /// Each member gets its part of the root's message.
    Scatter,
    /// The root gets the parts of all members.
    Gather,
}

impl Operation {
    const ALL: [Self; 6] = [
        Self::Broadcast,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatter,
        Self::Scatter,
        Self::Gather,
    ];

    /// Whether contributions are reduced.
    pub const fn folds(self) -> bool {
        matches!(self, Self::Reduce | Self::Allreduce | Self::ReduceScatter)
    }

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::Scatter => "scatter",
            Self::Gather => "gather",
        }
    }
}

/// Options for a collective operation of a team.
#[derive(Debug, clap::Args)]
// Groups are named after types, and another type of this command has the same name.
#[group(skip)]
#[command(next_help_heading = "Operations of a team")]
pub struct Options {
    /// Show the writes of each step of a collective operation instead, by the way that the library takes for --bytes,
    /// and its time by a cost model; with --explain, compare all ways
    #[arg(long, value_name = "NAME", conflicts_with_all = OF_REPLICATION, value_parser = operations())]
    pub collective: Option<Operation>,

    /// Show a reduction along trees in which at most K members write to one member in a step
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
    /// (Ts), adapter (Tn), posting (Td), call (Tm), acknowledgement (Ta) and of processors (Tw), and members per core
    /// (Mc), such as Tt=0.001,Ts=0.5
    /// [default: TCP between hosts at 10 Gbit/s; for omitted costs those of the network in the model's publication]
    #[arg(
        long,
        value_name = "COSTS",
        requires = "collective",
        requires = "bytes",
        conflicts_with_all = OF_REPLICATION
    )]
    pub costs: Option<WriteCosts>,
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
