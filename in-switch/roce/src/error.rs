//! Errors of packets.

/// Why a packet cannot be parsed, written or patched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Not RoCEv2: another protocol or port.
    #[error("no RoCEv2 packet: {0}")]
    Foreign(&'static str),
    /// An IP fragment.
    #[error("a fragment of an IP packet")]
    Fragment,
    /// It ends within this.
    #[error("the packet ends within its {0}")]
    Truncated(&'static str),
    /// Lengths that contradict each other.
    #[error("the lengths of the {0} do not fit")]
    Length(&'static str),
    /// An unsupported opcode.
    #[error("opcode {0:#04x} is not supported")]
    Opcode(u8),
    /// An extended header is missing, or is not one of the opcode's.
    #[error("the opcode and the extended headers do not fit: {0}")]
    Headers(&'static str),
    /// Addresses of different families.
    #[error("the addresses are of different families")]
    Families,
    /// The buffer is too small.
    #[error("the buffer is too small: it takes {needed} bytes")]
    BufferTooSmall {
        /// How many bytes it takes.
        needed: usize,
    },
}
