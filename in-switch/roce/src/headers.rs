//! The transport's headers: BTH, RETH, AETH.

use crate::{Malformed, Opcode, Serial};

/// Length of the base transport header.
pub const BTH_BYTES: usize = 12;
pub(crate) const RETH_BYTES: usize = 16;

/// The base transport header (IBA 9.2). Reserved bits are not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// Opcode.
    pub opcode: Opcode,
    /// Solicited event: wakes the receiving program.
    pub solicited: bool,
    /// MigReq: state of path migration; set without migration.
    pub migrated: bool,
    /// Bytes behind the payload that make its length a multiple of 4: 0 to 3.
    pub pad_bytes: u8,
    /// Partition key.
    pub partition: u16,
    /// FECN; RoCEv2 uses the IP header's ECN instead.
    pub forward_congestion: bool,
    /// BECN: set in CNPs.
    pub backward_congestion: bool,
    /// Destination queue pair, 24 bits.
    pub target_qpn: u32,
    /// AckReq: the receiver has to answer.
    pub ack_requested: bool,
    /// Packet sequence number.
    pub psn: Serial,
}

impl Bth {
    /// With the default partition and MigReq, all other flags clear.
    #[must_use]
    pub const fn new(opcode: Opcode, target_qpn: u32, psn: Serial) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad_bytes: 0,
            partition: 0xffff,
            forward_congestion: false,
            backward_congestion: matches!(opcode, Opcode::Cnp),
            target_qpn,
            ack_requested: false,
            psn,
        }
    }

    /// As on the wire.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; BTH_BYTES] {
        let flags = (self.solicited as u8) << 7 | (self.migrated as u8) << 6;
        let congestion =
            (self.forward_congestion as u8) << 7 | (self.backward_congestion as u8) << 6;
        let [partition_high, partition_low] = self.partition.to_be_bytes();
        let [q0, q1, q2] = Serial::new(self.target_qpn).to_bytes();
        let [p0, p1, p2] = self.psn.to_bytes();
        [
            self.opcode as u8,
            flags | (self.pad_bytes & 3) << 4,
            partition_high,
            partition_low,
            congestion,
            q0,
            q1,
            q2,
            (self.ack_requested as u8) << 7,
            p0,
            p1,
            p2,
        ]
    }

    /// Errors: unsupported opcode or version.
    pub fn from_bytes(bytes: &[u8; BTH_BYTES]) -> Result<Self, Malformed> {
        let &[
            opcode,
            flags,
            partition_high,
            partition_low,
            congestion,
            q0,
            q1,
            q2,
            ack,
            p0,
            p1,
            p2,
        ] = bytes;
        if flags & 0x0f != 0 {
            return Err(Malformed::Foreign("another version of the transport"));
        }
        Ok(Self {
            opcode: Opcode::from_byte(opcode).ok_or(Malformed::Opcode(opcode))?,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pad_bytes: flags >> 4 & 3,
            partition: u16::from_be_bytes([partition_high, partition_low]),
            forward_congestion: congestion & 0x80 != 0,
            backward_congestion: congestion & 0x40 != 0,
            target_qpn: Serial::from_bytes([q0, q1, q2]).get(),
            ack_requested: ack & 0x80 != 0,
            psn: Serial::from_bytes([p0, p1, p2]),
        })
    }
}

/// The RDMA extended header: the memory of a WRITE (IBA 9.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reth {
    /// The receiver's virtual address.
    pub address: u64,
    /// The key of its memory.
    pub key: u32,
    /// Length of the whole message, in bytes.
    pub bytes: u32,
}

impl Reth {
    /// As on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; RETH_BYTES] {
        let mut bytes = [0; RETH_BYTES];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
        bytes[12..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    /// Any bytes are one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RETH_BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let address = u64::from(word(0)) << 32 | u64::from(word(4));
        Self { address, key: word(8), bytes: word(12) }
    }
}

/// The ACK extended header (IBA 9.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// ACK, NAK or RNR NAK.
    pub syndrome: Syndrome,
    /// Message sequence number: messages completed.
    pub msn: Serial,
}

/// The syndrome of an answer (IBA table 45).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// Acknowledges all packets up to this one; with a credit code, 31: no limit.
    Ack(u8),
    /// No receive is posted: retry after the time of this code (IBA table 46).
    ReceiverNotReady(u8),
    /// The packet is missing or refused.
    Nak(NakCode),
    /// A reserved value.
    Reserved(u8),
}

/// NAK codes (IBA table 47).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// PSN sequence error: go back to the answer's PSN.
    Sequence = 0,
    /// Invalid request.
    InvalidRequest = 1,
    /// Remote access error.
    RemoteAccess = 2,
    /// Remote operational error.
    RemoteOperational = 3,
}

impl Syndrome {
    /// The time of an RNR timer code (IBA table 46).
    #[must_use]
    pub const fn not_ready_ns(timer: u8) -> u64 {
        // In units of 10 µs: 655.36 ms, then from 0.01 ms on, doubled in steps of two.
        const UNITS: [u64; 32] = [
            65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
            1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
        ];
        UNITS[(timer & 0x1f) as usize] * 10_000
    }

    const fn to_byte(self) -> u8 {
        match self {
            Self::Ack(credits) => credits & 0x1f,
            Self::ReceiverNotReady(timer) => 0x20 | timer & 0x1f,
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }

    const fn from_byte(byte: u8) -> Self {
        match (byte >> 5, byte & 0x1f) {
            (0, credits) => Self::Ack(credits),
            (1, timer) => Self::ReceiverNotReady(timer),
            (3, 0) => Self::Nak(NakCode::Sequence),
            (3, 1) => Self::Nak(NakCode::InvalidRequest),
            (3, 2) => Self::Nak(NakCode::RemoteAccess),
            (3, 3) => Self::Nak(NakCode::RemoteOperational),
            _ => Self::Reserved(byte),
        }
    }
}

impl Aeth {
    /// As on the wire.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 4] {
        let [m0, m1, m2] = self.msn.to_bytes();
        [self.syndrome.to_byte(), m0, m1, m2]
    }

    /// Any bytes are one.
    #[must_use]
    pub const fn from_bytes(bytes: &[u8; 4]) -> Self {
        let &[syndrome, m0, m1, m2] = bytes;
        Self { syndrome: Syndrome::from_byte(syndrome), msn: Serial::from_bytes([m0, m1, m2]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_round_trip(
            bth in any::<[u8; BTH_BYTES]>(),
            reth in any::<[u8; RETH_BYTES]>(),
            aeth in any::<[u8; 4]>(),
        ) {
            prop_assert_eq!(Reth::from_bytes(&reth).to_bytes(), reth);
            prop_assert_eq!(Aeth::from_bytes(&aeth).to_bytes(), aeth);
            if let Ok(header) = Bth::from_bytes(&bth) {
                prop_assert_eq!(Bth::from_bytes(&header.to_bytes()), Ok(header));
            }
        }
    }
}
