//! Whole packets, from their IP header on.

use crate::{
    Aeth, BTH_BYTES, Bth, ICRC_BYTES, IpHeader, Malformed, Reth, UDP_BYTES, headers::RETH_BYTES,
    icrc, icrc::icrc_of_parts, ip::IPV6_BYTES,
};

/// The longest headers from the IP header up to the payload: IPv6, UDP, BTH, and those of a WRITE with an immediate.
pub const HEAD_BYTES_MAX: usize = IPV6_BYTES + UDP_BYTES + BTH_BYTES + RETH_BYTES + 4;
/// Padding and CRC at most.
pub const TAIL_BYTES_MAX: usize = 3 + ICRC_BYTES;

/// All headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// IP and UDP.
    pub ip: IpHeader,
    /// The transport's.
    pub bth: Bth,
    /// Of a WRITE's first packet.
    pub reth: Option<Reth>,
    /// Of a message's last packet, if it has one.
    pub immediate: Option<u32>,
    /// Of answers.
    pub aeth: Option<Aeth>,
}

/// A packet that was parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Its headers.
    pub headers: Headers,
    /// Without padding.
    pub payload: &'a [u8],
    /// Its ICRC, which may be wrong.
    pub icrc: u32,
    /// From the IP header up to the CRC.
    covered: &'a [u8],
}

impl Headers {
    /// Without extended headers.
    #[must_use]
    pub const fn new(ip: IpHeader, bth: Bth) -> Self {
        Self { ip, bth, reth: None, immediate: None, aeth: None }
    }

    /// Length of a packet with these headers and this many bytes of payload, from the IP header on.
    #[must_use]
    pub const fn packet_bytes(&self, payload_bytes: usize) -> usize {
        self.head_bytes() + payload_bytes.next_multiple_of(4) + ICRC_BYTES
    }

    const fn head_bytes(&self) -> usize {
        self.ip.bytes() + UDP_BYTES + BTH_BYTES + self.bth.opcode.extended_bytes()
    }

    /// Writes a packet, with its CRC. Answers its length.
    ///
    /// The BTH's `pad_bytes` is ignored, and computed from the payload.
    ///
    /// Errors: `into` is too small; extended headers that are not those of the opcode; too long for an IP
    /// packet; addresses of different families.
    pub fn write(&self, payload: &[u8], into: &mut [u8]) -> Result<usize, Malformed> {
        let needed = self.packet_bytes(payload.len());
        let Some(packet) = into.get_mut(..needed) else {
            self.check(payload)?;
            return Err(Malformed::BufferTooSmall { needed });
        };
        let (head, rest) = packet.split_at_mut(self.head_bytes());
        let (body, tail) = rest.split_at_mut(payload.len());
        self.write_around(payload, head, tail)?;
        body.copy_from_slice(payload);
        Ok(needed)
    }

    /// Writes a packet but for its payload, which is read for the CRC: the headers to the front of `head`; padding and
    /// the CRC to that of `tail`. Answers both lengths, at most [`HEAD_BYTES_MAX`] and [`TAIL_BYTES_MAX`].
    ///
    /// Errors: as for [`Headers::write`].
    pub fn write_around(
        &self,
        payload: &[u8],
        head: &mut [u8],
        tail: &mut [u8],
    ) -> Result<(usize, usize), Malformed> {
        self.check(payload)?;
        let pad_bytes = payload.len().next_multiple_of(4) - payload.len();
        let (head_bytes, tail_bytes) = (self.head_bytes(), pad_bytes + ICRC_BYTES);
        let (Some(head), Some(tail)) = (head.get_mut(..head_bytes), tail.get_mut(..tail_bytes))
        else {
            return Err(Malformed::BufferTooSmall { needed: head_bytes + tail_bytes });
        };
        let at = self.ip.bytes() + UDP_BYTES;
        self.ip.write(self.packet_bytes(payload.len()) - at, head);
        let bth = Bth { pad_bytes: pad_bytes as u8, ..self.bth };
        head[at..at + BTH_BYTES].copy_from_slice(&bth.to_bytes());
        self.write_extended(&mut head[at + BTH_BYTES..]);
        let (padding, crc) = tail.split_at_mut(pad_bytes);
        padding.fill(0);
        crc.copy_from_slice(&icrc_of_parts(head, [payload, padding]).to_le_bytes());
        Ok((head_bytes, tail_bytes))
    }

    fn check(&self, payload: &[u8]) -> Result<(), Malformed> {
        let opcode = self.bth.opcode;
        if self.ip.source.is_ipv4() != self.ip.target.is_ipv4() {
            return Err(Malformed::Families);
        }
        for (has, given, what) in [
            (opcode.has_reth(), self.reth.is_some(), "RETH"),
            (opcode.has_immediate(), self.immediate.is_some(), "immediate"),
            (opcode.has_aeth(), self.aeth.is_some(), "AETH"),
            (true, opcode.has_payload() || payload.is_empty(), "payload"),
        ] {
            if has != given {
                return Err(Malformed::Headers(what));
            }
        }
        if self.packet_bytes(payload.len()) > usize::from(u16::MAX) {
            return Err(Malformed::Length("payload"));
        }
        Ok(())
    }

    fn write_extended(&self, into: &mut [u8]) {
        into.fill(0);
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            into[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(reth) = self.reth {
            put(&reth.to_bytes());
        }
        if let Some(immediate) = self.immediate {
            put(&immediate.to_be_bytes());
        }
        if let Some(aeth) = self.aeth {
            put(&aeth.to_bytes());
        }
    }
}

impl<'a> Packet<'a> {
    /// Parses a packet from its IP header on; padding of the link may follow.
    ///
    /// Does not check the ICRC: [`Packet::is_intact`].
    ///
    /// Errors: it is malformed or not supported.
    pub fn parse(packet: &'a [u8]) -> Result<Self, Malformed> {
        let (ip, datagram) = IpHeader::parse(packet)?;
        let covered_bytes = ip.bytes() + UDP_BYTES + datagram.len();
        let (bth, rest) = datagram.split_first_chunk().ok_or(Malformed::Truncated("BTH"))?;
        let bth = Bth::from_bytes(bth)?;
        let (rest, icrc) =
            rest.split_last_chunk::<ICRC_BYTES>().ok_or(Malformed::Truncated("ICRC"))?;
        let opcode = bth.opcode;
        if rest.len() < opcode.extended_bytes() {
            return Err(Malformed::Truncated("extended headers"));
        }
        let (extended, body) = rest.split_at(opcode.extended_bytes());
        let padded = body.len().is_multiple_of(4) && usize::from(bth.pad_bytes) <= body.len();
        if !padded || !opcode.has_payload() && !body.is_empty() {
            return Err(Malformed::Length("payload"));
        }
        let mut headers = Headers::new(ip, bth);
        headers.read_extended(extended);
        Ok(Self {
            headers,
            payload: &body[..body.len() - usize::from(bth.pad_bytes)],
            icrc: u32::from_le_bytes(*icrc),
            covered: &packet[..covered_bytes - ICRC_BYTES],
        })
    }

    /// Whether the ICRC is correct.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        icrc(self.covered) == self.icrc
    }
}

impl Headers {
    /// `extended` has as many bytes as the opcode asks for.
    fn read_extended(&mut self, extended: &[u8]) {
        let opcode = self.bth.opcode;
        let at = if opcode.has_reth() { RETH_BYTES } else { 0 };
        self.reth = extended.first_chunk().filter(|_| opcode.has_reth()).map(Reth::from_bytes);
        let word = extended.get(at..).and_then(<[u8]>::first_chunk);
        self.immediate =
            word.filter(|_| opcode.has_immediate()).map(|bytes| u32::from_be_bytes(*bytes));
        self.aeth = word.filter(|_| opcode.has_aeth()).map(Aeth::from_bytes);
    }
}
