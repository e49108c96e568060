//! Names of planted bugs between connections and their streams, clock or owner.

use clap::ValueEnum;

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WireCanary {
    /// A stream takes a byte more than it says, so that it is sent again.
    RepeatsBytes,
    /// Two bytes on the way change places.
    SwapsBytes,
    /// The completion of a post is not reported.
    LosesCompletion,
    /// The completion of a post is reported twice.
    CompletesTwice,
    /// Two control words are reported in the opposite order.
    ReordersWords,
    /// The end of a channel is not reported.
    MissesEnds,
    /// A close is forgotten.
    ForgetsClose,
    /// Memory stays leased after its post has completed.
    KeepsMemory,
    /// A block is sent on before it has arrived.
    SendsTooSoon,
    /// Streams are not protected, although both ends take them to be.
    LeavesUnprotected,
    /// Timers are not handled.
    MissesTimeouts,
    /// Timers are handled before it is told what has come.
    TellsLate,
    /// A thread looks at what was read before it has taken the commands that its owner had given until then.
    TakesCommandsLate,
}
