//! Names of planted bugs between a member of a team and its network, or its application.

use clap::ValueEnum;

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TeamCanary {
    /// Contributions are not folded in the order of ranks.
    FoldsAsTheyCome,
    /// A scatter sends each member the part of another.
    ShiftsParts,
    /// A piece is sent before it is complete: with the contents of the one before.
    SendsTooEarly,
    /// A block is sent before it is complete: with the contents of the one before.
    SendsOldBlocks,
    /// More blocks are granted than there is memory for.
    GrantsTooMany,
    /// A slot is written before it was freed.
    ReusesSlots,
    /// Freed slots are not reported.
    KeepsSlots,
    /// A write goes to the slot beside its own.
    MisplacesWrite,
    /// The arrival of a write is reported twice.
    ReportsTwice,
    /// The arrival of a write is never reported.
    LosesWrite,
    /// A write has completed twice, so that its staged slot is used by two.
    CompletesTwice,
    /// The completion of a write is never reported.
    LosesCompletion,
    /// Others are not told of a failure.
    DropsNotice,
    /// The notice of a failure names another member.
    BlamesAnother,
    /// The end of a connection is never reported.
    MissesEnds,
    /// Others are not told that this member has left.
    ForgetsBye,
    /// Others are not told what this member waits for.
    NeverAsks,
    /// Others are told that this member waits for another than it does.
    AwaitsAnother,
    /// No operation times out.
    MissesTimeouts,
}
