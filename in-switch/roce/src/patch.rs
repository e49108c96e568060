//! In-place rewrites of packets, as switches make them.

use core::net::IpAddr;

use crate::{
    Aeth, BTH_BYTES, HEAD_BYTES_MAX, ICRC_BYTES, Malformed, Packet, Serial, ShiftTables, UDP_BYTES,
    ip,
};

/// A rewrite of a packet's headers; `None` leaves a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Patch {
    /// Source address; of the packet's family.
    pub source: Option<IpAddr>,
    /// Destination address; of the packet's family.
    pub target: Option<IpAddr>,
    /// TTL or hop limit.
    pub hop_limit: Option<u8>,
    /// Destination queue pair.
    pub target_qpn: Option<u32>,
    /// Packet sequence number.
    pub psn: Option<Serial>,
    /// Address and key of a WRITE's memory, for packets with a RETH.
    pub memory: Option<(u64, u32)>,
    /// ACK extended header, for answers.
    pub aeth: Option<Aeth>,
}

/// What a rewrite makes of a packet's headers and CRC; the bytes between them stay.
#[derive(Clone, Copy, Debug)]
pub struct Patched {
    headers: [u8; HEAD_BYTES_MAX],
    headers_bytes: usize,
    bytes_after: usize,
    icrc: [u8; ICRC_BYTES],
}

impl Patched {
    /// The headers, from the IP header on.
    #[must_use]
    pub fn headers(&self) -> &[u8] {
        &self.headers[..self.headers_bytes]
    }

    /// The CRC, as on the wire.
    #[must_use]
    pub const fn icrc(&self) -> [u8; ICRC_BYTES] {
        self.icrc
    }

    /// Where the CRC begins, behind the start of the IP header.
    #[must_use]
    pub const fn icrc_at(&self) -> usize {
        self.headers_bytes + self.bytes_after
    }
}

impl Patch {
    /// Rewrites a packet, from its IP header on.
    ///
    /// ICRC and IPv4 checksum (RFC 1624) are updated incrementally, so that corruption stays detectable. A UDP
    /// checksum is cleared. Memory and AETH are ignored for packets without such a header.
    ///
    /// Errors: the packet cannot be parsed, or is of another family. It is unchanged then.
    pub fn apply(&self, packet: &mut [u8], tables: &ShiftTables) -> Result<(), Malformed> {
        let patched = self.of(packet, tables)?;
        packet[..patched.headers_bytes].copy_from_slice(patched.headers());
        packet[patched.icrc_at()..][..ICRC_BYTES].copy_from_slice(&patched.icrc);
        Ok(())
    }

    /// What [`Patch::apply`] changes in a packet, without a copy of its payload.
    ///
    /// Errors: as [`Patch::apply`].
    pub fn of(&self, packet: &[u8], tables: &ShiftTables) -> Result<Patched, Malformed> {
        let parsed = Packet::parse(packet)?;
        let ip = parsed.headers.ip;
        if [self.source, self.target]
            .into_iter()
            .flatten()
            .any(|a| a.is_ipv4() != ip.source.is_ipv4())
        {
            return Err(Malformed::Families);
        }
        let opcode = parsed.headers.bth.opcode;
        let bth_at = ip.bytes() + UDP_BYTES;
        let extended_at = bth_at + BTH_BYTES;
        let headers_bytes = extended_at + opcode.extended_bytes();
        let bytes_after = parsed.payload.len() + usize::from(parsed.headers.bth.pad_bytes);
        let before = &packet[..headers_bytes];
        let mut all = [0; HEAD_BYTES_MAX];
        let headers = &mut all[..headers_bytes];
        headers.copy_from_slice(before);
        self.change_addresses(headers, ip.bytes());
        self.change_hop_limit(headers, ip.bytes());
        if let Some(qpn) = self.target_qpn {
            headers[bth_at + 5..bth_at + 8].copy_from_slice(&Serial::new(qpn).to_bytes());
        }
        if let Some(psn) = self.psn {
            headers[bth_at + 9..bth_at + 12].copy_from_slice(&psn.to_bytes());
        }
        if let Some((address, key)) = self.memory.filter(|_| opcode.has_reth()) {
            headers[extended_at..extended_at + 8].copy_from_slice(&address.to_be_bytes());
            headers[extended_at + 8..extended_at + 12].copy_from_slice(&key.to_be_bytes());
        }
        if let Some(aeth) = self.aeth.filter(|_| opcode.has_aeth()) {
            headers[extended_at..extended_at + 4].copy_from_slice(&aeth.to_bytes());
        }
        let icrc = tables
            .update(parsed.icrc, before, headers, bytes_after)
            .ok_or(Malformed::Length("headers and payload"))?;
        Ok(Patched { headers: all, headers_bytes, bytes_after, icrc: icrc.to_le_bytes() })
    }

    /// With IPv4's checksum.
    fn change_hop_limit(&self, packet: &mut [u8], ip_bytes: usize) {
        match self.hop_limit {
            Some(hop_limit) if ip_bytes == ip::IPV4_BYTES => {
                // The checksum is of words: the protocol is in the same.
                let new = [hop_limit, packet[9]];
                let checksum = ip::checksum_after(&packet[10..12], &packet[8..10], &new);
                packet[10..12].copy_from_slice(&checksum);
                packet[8] = hop_limit;
            }
            Some(hop_limit) => packet[7] = hop_limit,
            None => {}
        }
    }

    /// IP addresses, IPv4's checksum and UDP's.
    fn change_addresses(&self, packet: &mut [u8], ip_bytes: usize) {
        let is_v4 = ip_bytes == ip::IPV4_BYTES;
        let (source_at, target_at) = if is_v4 { (12, 16) } else { (8, 24) };
        for (at, address) in [(source_at, self.source), (target_at, self.target)] {
            match address {
                Some(IpAddr::V4(address)) => {
                    let (old, new) = (&packet[at..at + 4], address.octets());
                    let checksum = ip::checksum_after(&packet[10..12], old, &new);
                    packet[10..12].copy_from_slice(&checksum);
                    packet[at..at + 4].copy_from_slice(&new);
                }
                Some(IpAddr::V6(address)) => {
                    packet[at..at + 16].copy_from_slice(&address.octets());
                }
                None => {}
            }
        }
        packet[ip_bytes + 6..ip_bytes + 8].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bth, Headers, IpHeader, NakCode, Opcode, Reth, Syndrome};
    use alloc::{vec, vec::Vec};
    use proptest::prelude::*;

    fn address(is_v6: bool, host: u8) -> IpAddr {
        if is_v6 {
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)])
        } else {
            IpAddr::from([10, 0, 0, host])
        }
    }

    fn headers(is_v6: bool, opcode: Opcode) -> Headers {
        let ip = IpHeader::new(address(is_v6, 1), address(is_v6, 2)).unwrap();
        let mut headers = Headers::new(ip, Bth::new(opcode, 1 << 20, Serial::new(7)));
        headers.reth = opcode.has_reth().then_some(Reth { address: 1, key: 2, bytes: 3 });
        headers.immediate = opcode.has_immediate().then_some(9);
        let aeth = Aeth { syndrome: Syndrome::Ack(31), msn: Serial::new(4) };
        headers.aeth = opcode.has_aeth().then_some(aeth);
        headers
    }

    fn written(headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; headers.packet_bytes(payload.len())];
        headers.write(payload, &mut bytes).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn a_patched_packet_equals_one_written_anew(
            is_v6: bool,
            opcode in prop::sample::select(&Opcode::ALL[..]),
            (source, target, qpn, psn) in any::<(Option<u8>, Option<u8>, Option<u32>, Option<u32>)>(),
            (memory, msn, hop_limit) in any::<(Option<(u64, u32)>, Option<u32>, Option<u8>)>(),
            payload in prop::collection::vec(any::<u8>(), 0..5000),
        ) {
            let payload = if opcode.is_request() { &payload[..] } else { &[] };
            let old = headers(is_v6, opcode);
            let patch = Patch {
                source: source.map(|host| address(is_v6, host)),
                target: target.map(|host| address(is_v6, host)),
                hop_limit,
                target_qpn: qpn,
                psn: psn.map(Serial::new),
                memory,
                aeth: msn.map(|msn| Aeth {
                    syndrome: Syndrome::Nak(NakCode::Sequence),
                    msn: Serial::new(msn),
                }),
            };
            let mut packet = written(&old, payload);
            patch.apply(&mut packet, &ShiftTables::new()).unwrap();
            let mut new = old;
            new.ip.source = patch.source.unwrap_or(old.ip.source);
            new.ip.target = patch.target.unwrap_or(old.ip.target);
            new.ip.hop_limit = hop_limit.unwrap_or(old.ip.hop_limit);
            new.bth.target_qpn = qpn.unwrap_or(old.bth.target_qpn) % Serial::COUNT;
            new.bth.psn = patch.psn.unwrap_or(old.bth.psn);
            if let (Some(reth), Some((address, key))) = (&mut new.reth, memory) {
                (reth.address, reth.key) = (address, key);
            }
            new.aeth = old.aeth.map(|aeth| patch.aeth.unwrap_or(aeth));
            prop_assert_eq!(packet, written(&new, payload));
        }
    }

    #[test]
    fn corruption_stays_detectable() {
        let old = headers(false, Opcode::SendOnly);
        let mut packet = written(&old, &[7; 100]);
        packet[50] ^= 1;
        packet[9 + 1] ^= 1;
        let patch = Patch { target: Some(address(false, 9)), ..Patch::default() };
        patch.apply(&mut packet, &ShiftTables::new()).unwrap();
        assert!(!Packet::parse(&packet).unwrap().is_intact());
        assert_ne!(ip::internet_checksum([&packet[..20]]), 0, "IPv4's checksum was wrong, and is");
    }

    #[test]
    fn packets_that_cannot_be_patched_are_unchanged() {
        let mut packet = written(&headers(false, Opcode::SendOnly), &[1; 8]);
        let before = packet.clone();
        let patch = Patch { target: Some(address(true, 9)), ..Patch::default() };
        assert_eq!(patch.apply(&mut packet, &ShiftTables::new()), Err(Malformed::Families));
        assert_eq!(packet, before);
        packet.truncate(30);
        assert!(Patch::default().apply(&mut packet, &ShiftTables::new()).is_err());
    }
}
