//! What is wrong with a packet.

/// Why something is no packet of ours, or cannot be made one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It is no RoCEv2: another protocol or port.
    #[error("no RoCEv2 packet: {0}")]
    Foreign(&'static str),
    /// A fragment, of which nobody can say what it carries.
    #[error("a fragment of an IP packet")]
    Fragment,
    /// It ends within this.
    #[error("the packet ends within its {0}")]
    Truncated(&'static str),
    /// Lengths that contradict each other.
    #[error("the lengths of the {0} do not fit")]
    Length(&'static str),
    /// An opcode that is not known here.
    #[error("opcode {0:#04x} is not known here")]
    Opcode(u8),
    /// A header that the opcode asks for was not given, or one that it has no room for.
    #[error("the opcode and the extended headers do not fit: {0}")]
    Headers(&'static str),
    /// Addresses of different families.
    #[error("the addresses are of different families")]
    Families,
    /// There is no room for it.
    #[error("no room: it takes {needed} bytes")]
    BufferTooSmall {
        /// How many bytes it takes.
        needed: usize,
    },
}
