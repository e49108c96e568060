//! One write of an operation.

/// A part of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Reduce,
    Broadcast,
    Exchange,
    ReduceScatter,
    AllGather,
    Scatter,
    Gather,
}

impl Phase {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reduce => "reduce",
            Self::Broadcast => "broadcast",
            Self::Exchange => "exchange",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::Scatter => "scatter",
            Self::Gather => "gather",
        }
    }
}

/// The part of a long message or of contributions that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    All,
    Block(u32),
    /// One of as many chunks as there are members; a member's part, if there are parts.
    Chunk(u32),
    /// Several of these: the first and the last; behind the last one of all comes chunk 0.
    Chunks(u32, u32),
}

/// A member writes what it has, or a part of it, to another one's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// The step, from 0 over all phases.
    pub step: u64,
    pub phase: Phase,
    pub source: u32,
    pub target: u32,
    pub part: Part,
}
