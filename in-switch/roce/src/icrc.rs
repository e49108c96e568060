//! The invariant CRC: computed in full, and updated incrementally.
//!
//! It is Ethernet's CRC-32 over eight bytes of ones and the packet from its IP header on, with variant fields
//! masked by ones (IBA 7.8.1, annex A17), least significant byte first. It covers addresses, queue pair,
//! packet number and RETH, so a switch that rewrites them has to update it (which the MC-RDMA paper omits).
//!
//! A CRC is linear: a change of headers adds the CRC of the difference, advanced over the bytes that follow.
//! So the payload need not be read, and the CRC of a corrupt packet stays wrong.

use alloc::{boxed::Box, vec};

use crate::{UDP_BYTES, ip};

/// Length of the CRC at the packet's end.
pub const ICRC_BYTES: usize = 4;

/// In place of the local route header, which RoCEv2 does not have.
const LOCAL_HEADER: [u8; 8] = [0xff; 8];
/// Headers up to the BTH, with IPv6.
const MASKED_BYTES_MAX: usize = ip::IPV6_BYTES + UDP_BYTES + crate::BTH_BYTES;

/// The CRC of a packet from its IP header up to where its CRC is, or will be.
///
/// The packet has an IP header without options, UDP and BTH: as [`crate::Packet::parse`] and
/// [`crate::Headers::write`] have them. What is shorter has some CRC, too.
#[must_use]
pub fn icrc(packet: &[u8]) -> u32 {
    let (headers, rest) = packet.split_at(masked_bytes(packet).min(packet.len()));
    icrc_of_parts(headers, [rest])
}

/// As [`icrc`], of a packet in several places: the first has all headers up to the BTH.
pub(crate) fn icrc_of_parts<const N: usize>(headers: &[u8], rest: [&[u8]; N]) -> u32 {
    let mut masked = [0; MASKED_BYTES_MAX];
    let (first, extended) = headers.split_at(masked_bytes(headers).min(headers.len()));
    let masked = &mut masked[..first.len()];
    masked.copy_from_slice(first);
    mask(masked);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&LOCAL_HEADER);
    hasher.update(masked);
    [extended].iter().chain(&rest).for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Length of the headers with variant fields: up to the BTH.
fn masked_bytes(packet: &[u8]) -> usize {
    let is_v6 = packet.first().is_some_and(|first| first >> 4 == 6);
    let ip = if is_v6 { ip::IPV6_BYTES } else { ip::IPV4_BYTES };
    ip + UDP_BYTES + crate::BTH_BYTES
}

/// Masks variant fields with ones.
fn mask(headers: &mut [u8]) {
    for &(at, bits) in routers_bits(headers) {
        if let Some(byte) = headers.get_mut(at) {
            *byte |= bits;
        }
    }
}

/// Variant fields, as offsets and bits: IPv4's service, TTL and checksum, or IPv6's class, flow label and hop
/// limit; the UDP checksum; the BTH's congestion and reserved bits.
fn routers_bits(headers: &[u8]) -> &'static [(usize, u8)] {
    const ALL: u8 = 0xff;
    match headers.first().is_some_and(|first| first >> 4 == 6) {
        false => &[(1, ALL), (8, ALL), (10, ALL), (11, ALL), (26, ALL), (27, ALL), (32, ALL)],
        true => {
            &[(0, 0x0f), (1, ALL), (2, ALL), (3, ALL), (7, ALL), (46, ALL), (47, ALL), (52, ALL)]
        }
    }
}

/// CRC-32, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Bases of a distance's digits, lowest first.
const DIGITS: [usize; 3] = [16, 16, 32];
const DIGIT_BITS: u32 = 4;

/// Advances a CRC over a number of zero bytes: a table for each of its four bytes.
type Step = [[u32; 256]; 4];

/// Tables that advance a CRC over any number of zero bytes in three steps.
///
/// 256 KiB; made once in less than a millisecond, and shared.
pub struct ShiftTables {
    stages: [Box<[Step]>; 3],
}

impl Default for ShiftTables {
    fn default() -> Self {
        Self::new()
    }
}

impl ShiftTables {
    /// The longest distance from the changed headers to the CRC, in bytes.
    pub const BYTES_MAX: usize = DIGITS[0] * DIGITS[1] * DIGITS[2] - 1;

    /// Makes the tables.
    #[must_use]
    pub fn new() -> Self {
        let mut unit = by_one_byte();
        let stages = DIGITS.map(|digits| {
            let mut steps = vec![identity()];
            for digit in 1..digits {
                let before = &steps[digit - 1];
                let next = before.map(|column| column.map(|crc| apply(&unit, crc)));
                steps.push(next);
            }
            unit = steps[digits - 1].map(|column| column.map(|crc| apply(&unit, crc)));
            steps.into_boxed_slice()
        });
        Self { stages }
    }

    /// The tables as words, for the eBPF program: 64 digits (16 for units of 1 byte, 16 of 16, 32 of 256), each
    /// with four columns of 256.
    pub fn words(&self) -> impl Iterator<Item = u32> {
        self.stages.iter().flatten().flatten().flatten().copied()
    }

    /// The CRC after a change of headers.
    ///
    /// `old` and `new`: the packet from its IP header up to the same place behind all changes, a
    /// multiple of 4 bytes. `bytes_after`: from there to the CRC. `None` if these are not so.
    #[must_use]
    pub fn update(&self, icrc: u32, old: &[u8], new: &[u8], bytes_after: usize) -> Option<u32> {
        let is_whole = old.len().is_multiple_of(4) && old.len() >= masked_bytes(old);
        let fits = is_whole && old.len() == new.len();
        if !fits || bytes_after > Self::BYTES_MAX {
            return None;
        }
        let mut difference = [0; MASKED_BYTES_MAX];
        let length = masked_bytes(old);
        for ((difference, old), new) in difference.iter_mut().zip(&old[..length]).zip(new) {
            *difference = old ^ new;
        }
        for &(at, bits) in routers_bits(old) {
            difference[at] &= !bits;
        }
        let by_four_bytes = &self.stages[0][4];
        let mut crc = 0;
        // The CRC of leading zeros is 0.
        let words = difference[..length].chunks_exact(4).map(word).skip_while(|&word| word == 0);
        for word in words {
            crc = apply(by_four_bytes, crc ^ word);
        }
        for (old, new) in old[length..].chunks_exact(4).zip(new[length..].chunks_exact(4)) {
            crc = apply(by_four_bytes, crc ^ word(old) ^ word(new));
        }
        let mut distance = bytes_after;
        for (steps, digits) in self.stages.iter().zip(DIGITS) {
            crc = apply(&steps[distance % digits], crc);
            distance >>= DIGIT_BITS;
        }
        Some(icrc ^ crc)
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn apply(step: &Step, crc: u32) -> u32 {
    let [b0, b1, b2, b3] = crc.to_le_bytes().map(usize::from);
    step[0][b0] ^ step[1][b1] ^ step[2][b2] ^ step[3][b3]
}

fn each_byte(of: impl Fn(u32) -> u32) -> Step {
    let mut step = [[0; 256]; 4];
    for (place, column) in (0..).zip(&mut step) {
        for (byte, crc) in (0..).zip(column.iter_mut()) {
            *crc = of(byte << (8 * place));
        }
    }
    step
}

fn identity() -> Step {
    each_byte(|crc| crc)
}

fn by_one_byte() -> Step {
    each_byte(|crc| {
        (0..8).fold(crc, |crc, _| (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bth, Headers, IpHeader, Opcode, Packet, Reth, Serial};
    use alloc::vec::Vec;
    use core::net::IpAddr;
    use proptest::prelude::*;

    fn packet(is_v6: bool, host: u8, bth: Bth, reth: Option<Reth>, payload: &[u8]) -> Vec<u8> {
        let address = |host: u8| match is_v6 {
            true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)]),
            false => IpAddr::from([10, 0, 0, host]),
        };
        let mut headers = Headers::new(IpHeader::new(address(1), address(host)).unwrap(), bth);
        headers.reth = reth;
        let mut bytes = vec![0; 4400];
        let length = headers.write(payload, &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    proptest! {
        #[test]
        fn an_updated_checksum_equals_a_computed_one(
            is_v6: bool,
            (qpn, psn, key, address) in any::<(u32, u32, u32, u64)>(),
            payload in prop::collection::vec(any::<u8>(), 0..4097),
        ) {
            let tables = ShiftTables::new();
            let old = Bth::new(Opcode::WriteFirst, 1 << 20, Serial::new(7));
            let new = Bth { target_qpn: qpn, psn: Serial::new(psn), ..old };
            let region = Reth { address: 1, key: 2, bytes: 3 };
            let old = packet(is_v6, 2, old, Some(region), &payload);
            let new = packet(is_v6, 3, new, Some(Reth { address, key, ..region }), &payload);
            let headers = masked_bytes(&old) + 16;
            let read = |packet: &[u8]| Packet::parse(packet).unwrap().icrc;
            let after = old.len() - ICRC_BYTES - headers;
            let updated = tables.update(read(&old), &old[..headers], &new[..headers], after);
            prop_assert_eq!(updated, Some(read(&new)));
        }
    }

    #[test]
    fn corruption_stays_detectable() {
        let bth = Bth::new(Opcode::SendOnly, 5, Serial::new(1));
        let mut old = packet(false, 2, bth, None, &[7; 100]);
        let new = packet(false, 3, Bth { target_qpn: 6, ..bth }, None, &[7; 100]);
        old[60] ^= 1;
        let right = Packet::parse(&new).unwrap().icrc;
        let icrc = Packet::parse(&old).unwrap().icrc;
        let updated = ShiftTables::new().update(icrc, &old[..40], &new[..40], 100).unwrap();
        assert_eq!(updated, right, "the sender's, which the damaged payload does not have");
        let mut copy = new;
        copy[60] ^= 1;
        assert!(!Packet::parse(&copy).unwrap().is_intact());
    }

    #[test]
    fn invalid_updates_are_refused() {
        let tables = ShiftTables::new();
        let headers = [0x45; 40];
        assert_eq!(tables.update(0, &headers, &headers[..36], 0), None);
        assert_eq!(tables.update(0, &headers[..36], &headers[..36], 0), None);
        assert_eq!(tables.update(0, &headers, &headers, ShiftTables::BYTES_MAX + 1), None);
        assert_eq!(tables.update(9, &headers, &headers, ShiftTables::BYTES_MAX), Some(9));
    }
}
