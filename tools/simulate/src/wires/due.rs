//! What is planned between two ends.

/// Something that is planned; within an instant in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    /// An end begins to use a connection.
    Connect { connection: usize, end: usize },
    /// An end asks for a channel of a shared connection.
    Ask { connection: usize, channel: usize },
    /// The other end answers.
    Answer { connection: usize, channel: usize },
    /// An end sends a message.
    Send { connection: usize, message: usize },
    /// An application closes a channel early.
    Close { connection: usize, channel: usize, end: usize },
    /// A fault happens.
    Fault { number: usize },
    /// The applications wait no longer.
    LosePatience,
}
