//! Opcodes of the base transport header.

/// Opcodes of reliable connections (IBA table 38), and CNP (annex A17).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// The first packet of a SEND of several.
    SendFirst = 0x00,
    /// One between the first and the last.
    SendMiddle = 0x01,
    /// The last.
    SendLast = 0x02,
    /// The last, with an immediate.
    SendLastImmediate = 0x03,
    /// All of a SEND.
    SendOnly = 0x04,
    /// All of a SEND, with an immediate.
    SendOnlyImmediate = 0x05,
    /// The first packet of a WRITE of several, with its address.
    WriteFirst = 0x06,
    /// One between the first and the last.
    WriteMiddle = 0x07,
    /// The last.
    WriteLast = 0x08,
    /// The last, with an immediate.
    WriteLastImmediate = 0x09,
    /// All of a WRITE.
    WriteOnly = 0x0a,
    /// All of a WRITE, with an immediate.
    WriteOnlyImmediate = 0x0b,
    /// A READ.
    ReadRequest = 0x0c,
    /// ACK, NAK or RNR NAK, by its AETH.
    Acknowledge = 0x11,
    /// An atomic: compare and swap.
    CompareSwap = 0x13,
    /// An atomic: fetch and add.
    FetchAdd = 0x14,
    /// The last packet of a SEND that invalidates a key.
    SendLastInvalidate = 0x16,
    /// All of a SEND that invalidates a key.
    SendOnlyInvalidate = 0x17,
    /// Congestion notification packet.
    Cnp = 0x81,
}

impl Opcode {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::SendFirst,
        Self::SendMiddle,
        Self::SendLast,
        Self::SendLastImmediate,
        Self::SendOnly,
        Self::SendOnlyImmediate,
        Self::WriteFirst,
        Self::WriteMiddle,
        Self::WriteLast,
        Self::WriteLastImmediate,
        Self::WriteOnly,
        Self::WriteOnlyImmediate,
        Self::ReadRequest,
        Self::Acknowledge,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::SendLastInvalidate,
        Self::SendOnlyInvalidate,
        Self::Cnp,
    ];

    /// `None` for others.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|opcode| *opcode as u8 == byte)
    }

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendFirst => "SEND first",
            Self::SendMiddle => "SEND middle",
            Self::SendLast => "SEND last",
            Self::SendLastImmediate => "SEND last with immediate",
            Self::SendOnly => "SEND only",
            Self::SendOnlyImmediate => "SEND only with immediate",
            Self::WriteFirst => "WRITE first",
            Self::WriteMiddle => "WRITE middle",
            Self::WriteLast => "WRITE last",
            Self::WriteLastImmediate => "WRITE last with immediate",
            Self::WriteOnly => "WRITE only",
            Self::WriteOnlyImmediate => "WRITE only with immediate",
            Self::ReadRequest => "READ",
            Self::Acknowledge => "acknowledge",
            Self::CompareSwap => "compare and swap",
            Self::FetchAdd => "fetch and add",
            Self::SendLastInvalidate => "SEND last with invalidate",
            Self::SendOnlyInvalidate => "SEND only with invalidate",
            Self::Cnp => "CNP",
        }
    }

    /// It begins a message.
    #[must_use]
    pub const fn begins(self) -> bool {
        use Opcode::*;
        matches!(
            self,
            SendFirst | SendOnly | SendOnlyImmediate | WriteFirst | WriteOnly | WriteOnlyImmediate
        )
    }

    /// It ends a message.
    #[must_use]
    pub const fn ends(self) -> bool {
        self.is_request()
            && !matches!(
                self,
                Self::SendFirst | Self::SendMiddle | Self::WriteFirst | Self::WriteMiddle
            )
    }

    /// A part of a SEND or a WRITE.
    #[must_use]
    pub const fn is_request(self) -> bool {
        self as u8 <= Self::WriteOnlyImmediate as u8
    }

    /// A request that only one receiver can carry out: READs and atomics, whose answers hold data, and SENDs that
    /// name a receiver's key. Not supported: their extended headers are not decoded, and count as payload.
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        use Opcode::*;
        matches!(
            self,
            ReadRequest | CompareSwap | FetchAdd | SendLastInvalidate | SendOnlyInvalidate
        )
    }

    /// A payload may follow.
    #[must_use]
    pub const fn has_payload(self) -> bool {
        self.is_request() || self.is_unicast()
    }

    /// A part of a WRITE.
    #[must_use]
    pub const fn is_write(self) -> bool {
        self.is_request() && self as u8 >= Self::WriteFirst as u8
    }

    /// An RDMA extended header follows: address, key and length of a WRITE.
    #[must_use]
    pub const fn has_reth(self) -> bool {
        self.is_write() && self.begins()
    }

    /// An immediate follows.
    #[must_use]
    pub const fn has_immediate(self) -> bool {
        use Opcode::*;
        matches!(
            self,
            SendLastImmediate | SendOnlyImmediate | WriteLastImmediate | WriteOnlyImmediate
        )
    }

    /// An ACK extended header follows.
    #[must_use]
    pub const fn has_aeth(self) -> bool {
        matches!(self, Self::Acknowledge)
    }

    /// Bytes of all extended headers, the 16 reserved ones of a CNP included.
    #[must_use]
    pub const fn extended_bytes(self) -> usize {
        let reth = if self.has_reth() { 16 } else { 0 };
        let immediate = if self.has_immediate() { 4 } else { 0 };
        let aeth = if self.has_aeth() { 4 } else { 0 };
        let reserved = if matches!(self, Self::Cnp) { 16 } else { 0 };
        reth + immediate + aeth + reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_round_trip_and_other_bytes_are_unknown() {
        for byte in 0..=255 {
            match Opcode::from_byte(byte) {
                Some(opcode) => assert_eq!(opcode as u8, byte),
                None => assert!(!Opcode::ALL.iter().any(|opcode| *opcode as u8 == byte)),
            }
        }
    }

    #[test]
    fn extended_headers_follow_the_specification() {
        let with = |has: fn(Opcode) -> bool| {
            Opcode::ALL.into_iter().filter(move |&opcode| has(opcode)).map(|opcode| opcode as u8)
        };
        assert!(with(Opcode::has_reth).eq([0x06, 0x0a, 0x0b]));
        assert!(with(Opcode::has_immediate).eq([0x03, 0x05, 0x09, 0x0b]));
        assert!(with(Opcode::begins).eq([0x00, 0x04, 0x05, 0x06, 0x0a, 0x0b]));
        assert!(with(Opcode::ends).eq([0x02, 0x03, 0x04, 0x05, 0x08, 0x09, 0x0a, 0x0b]));
        assert_eq!(Opcode::WriteOnlyImmediate.extended_bytes(), 20);
    }
}
