//! IPv4, IPv6 and UDP, as far as RoCEv2 needs them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Malformed;

/// The UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
/// Length of a UDP header.
pub const UDP_BYTES: usize = 8;
pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const IPV6_BYTES: usize = 40;
const ICMPV6: u8 = 58;
const UDP: u8 = 17;

/// An IP header with a UDP header. Options and extension headers are not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpHeader {
    /// Source address.
    pub source: IpAddr,
    /// Destination address; of the same family.
    pub target: IpAddr,
    /// Differentiated services and, in the lowest two bits, congestion notification (ECN).
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv4: the identification; IPv6: the flow label, of 20 bits.
    pub label: u32,
    /// Source port, by which ECMP chooses a path.
    pub source_port: u16,
}

impl IpHeader {
    /// With defaults: ECN-capable, 64 hops.
    ///
    /// Errors: addresses of different families.
    pub fn new(source: IpAddr, target: IpAddr) -> Result<Self, Malformed> {
        if source.is_ipv4() != target.is_ipv4() {
            return Err(Malformed::Families);
        }
        let (traffic_class, hop_limit, label, source_port) = (2, 64, 0, 0xc000);
        Ok(Self { source, target, traffic_class, hop_limit, label, source_port })
    }

    /// Whether it is marked with congestion experienced (ECN).
    #[must_use]
    pub const fn is_congested(&self) -> bool {
        self.traffic_class & 3 == 3
    }

    /// Length on the wire, without UDP.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        if self.source.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES }
    }

    /// Writes IP and UDP for this many bytes in the datagram. The UDP checksum stays 0, as RoCEv2
    /// has it. `into` has room for both.
    pub(crate) fn write(&self, datagram_bytes: usize, into: &mut [u8]) {
        let udp_bytes = (UDP_BYTES + datagram_bytes) as u16;
        let at = self.bytes();
        match (self.source, self.target) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                self.write_v4(source, target, udp_bytes, into);
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                self.write_v6(source, target, udp_bytes, into);
            }
            // `new` does not make such, and `Headers::write` asks.
            _ => {}
        }
        into[at..at + 2].copy_from_slice(&self.source_port.to_be_bytes());
        into[at + 2..at + 4].copy_from_slice(&ROCE_PORT.to_be_bytes());
        into[at + 4..at + 6].copy_from_slice(&udp_bytes.to_be_bytes());
        into[at + 6..at + 8].fill(0);
    }

    fn write_v4(&self, source: Ipv4Addr, target: Ipv4Addr, udp_bytes: u16, into: &mut [u8]) {
        let total = udp_bytes + IPV4_BYTES as u16;
        into[0] = 0x45;
        into[1] = self.traffic_class;
        into[2..4].copy_from_slice(&total.to_be_bytes());
        into[4..6].copy_from_slice(&(self.label as u16).to_be_bytes());
        // Don't fragment: fragments are not supported.
        into[6..8].copy_from_slice(&[0x40, 0]);
        into[8] = self.hop_limit;
        into[9] = UDP;
        into[10..12].fill(0);
        into[12..16].copy_from_slice(&source.octets());
        into[16..20].copy_from_slice(&target.octets());
        let checksum = internet_checksum([&into[..IPV4_BYTES]]);
        into[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn write_v6(&self, source: Ipv6Addr, target: Ipv6Addr, udp_bytes: u16, into: &mut [u8]) {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.label & 0xf_ffff;
        into[..4].copy_from_slice(&first.to_be_bytes());
        into[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        into[6] = UDP;
        into[7] = self.hop_limit;
        into[8..24].copy_from_slice(&source.octets());
        into[24..40].copy_from_slice(&target.octets());
    }

    /// The headers, and the UDP payload without padding of the link.
    ///
    /// Errors: it is no UDP to RoCE's port, a fragment, cut off, or has options.
    pub(crate) fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (ip, datagram) = match packet.first().map(|first| first >> 4) {
            Some(4) => Self::parse_v4(packet)?,
            Some(6) => Self::parse_v6(packet)?,
            Some(_) => return Err(Malformed::Foreign("not IP")),
            None => return Err(Malformed::Truncated("IP header")),
        };
        let udp: &[u8; UDP_BYTES] =
            datagram.first_chunk().ok_or(Malformed::Truncated("UDP header"))?;
        let &[s0, s1, t0, t1, l0, l1, _, _] = udp;
        if u16::from_be_bytes([t0, t1]) != ROCE_PORT {
            return Err(Malformed::Foreign("another UDP port"));
        }
        if usize::from(u16::from_be_bytes([l0, l1])) != datagram.len() {
            return Err(Malformed::Length("IP and UDP headers"));
        }
        let source_port = u16::from_be_bytes([s0, s1]);
        Ok((Self { source_port, ..ip }, &datagram[UDP_BYTES..]))
    }

    fn parse_v4(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let header: &[u8; IPV4_BYTES] =
            packet.first_chunk().ok_or(Malformed::Truncated("IPv4 header"))?;
        if header[9] != UDP {
            return Err(Malformed::Foreign("not UDP"));
        }
        if header[0] != 0x45 {
            return Err(Malformed::Foreign("IPv4 options"));
        }
        // More fragments, or an offset.
        if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
            return Err(Malformed::Fragment);
        }
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let inner = packet.get(IPV4_BYTES..total).ok_or(Malformed::Truncated("IPv4 packet"))?;
        let address =
            |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let ip = Self {
            source: address(12).into(),
            target: address(16).into(),
            traffic_class: header[1],
            hop_limit: header[8],
            label: u32::from(u16::from_be_bytes([header[4], header[5]])),
            source_port: 0,
        };
        Ok((ip, inner))
    }

    fn parse_v6(packet: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let header: &[u8; IPV6_BYTES] =
            packet.first_chunk().ok_or(Malformed::Truncated("IPv6 header"))?;
        match header[6] {
            UDP => {}
            44 => return Err(Malformed::Fragment),
            _ => return Err(Malformed::Foreign("not UDP right behind IPv6")),
        }
        let bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let inner = packet
            .get(IPV6_BYTES..IPV6_BYTES + bytes)
            .ok_or(Malformed::Truncated("IPv6 packet"))?;
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            Ipv6Addr::from(octets)
        };
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let ip = Self {
            source: address(8).into(),
            target: address(24).into(),
            traffic_class: (first >> 20) as u8,
            hop_limit: header[7],
            label: first & 0xf_ffff,
            source_port: 0,
        };
        Ok((ip, inner))
    }
}

/// The Internet checksum (RFC 1071) of some parts one after another, each of an even length.
#[must_use]
pub fn internet_checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u16 {
    folded(parts.into_iter().map(|part| sum(part, 0)).sum())
}

/// The checksum of an ICMPv6 message of an even length, which is below 2^16 (RFC 8200, section 8.1).
/// `addresses`: source and target, as in the IPv6 header.
#[must_use]
pub fn icmpv6_checksum(addresses: &[u8], message: &[u8]) -> u16 {
    let [high, low] = (message.len() as u16).to_be_bytes();
    internet_checksum([addresses, &[0, 0, high, low, 0, 0, 0, ICMPV6], message])
}

/// IPv4's checksum after some of its bytes have become others (RFC 1624, equation 3).
pub(crate) fn checksum_after(checksum: &[u8], old: &[u8], new: &[u8]) -> [u8; 2] {
    folded(sum(checksum, 0xffff) + sum(old, 0xffff) + sum(new, 0)).to_be_bytes()
}

/// Of words of 16 bits, some of whose bits are flipped.
fn sum(bytes: &[u8], flip: u16) -> u32 {
    let words = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]) ^ flip);
    words.map(u32::from).sum()
}

const fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
