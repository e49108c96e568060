//! Packets without payload.

use std::net::IpAddr;

use mcrdma::plan::Node;
use roce::{Headers, Patch, Serial};

/// Ethernet header and check sequence; preamble and gap, which take time on a link as well.
const FRAME_BYTES: u64 = 14 + 4 + 20;
/// The shortest frame, with preamble and gap.
const FRAME_BYTES_MIN: u64 = 64 + 20;
/// Bytes of a pause frame on a link.
pub const PAUSE_BYTES: u64 = FRAME_BYTES_MIN;

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub headers: Headers,
    pub payload_bytes: u32,
    /// Index of its entry in the switch's buffer, shared with its other copies.
    pub held: u32,
}

impl Packet {
    /// On a link.
    pub fn wire_bytes(&self) -> u64 {
        let packet = self.headers.packet_bytes(self.payload_bytes as usize);
        (packet as u64 + FRAME_BYTES).max(FRAME_BYTES_MIN)
    }
}

/// The headers as [`Patch::apply`] would leave them.
pub fn patched(mut headers: Headers, patch: &Patch) -> Headers {
    headers.ip.source = patch.source.unwrap_or(headers.ip.source);
    headers.ip.target = patch.target.unwrap_or(headers.ip.target);
    headers.ip.hop_limit = patch.hop_limit.unwrap_or(headers.ip.hop_limit);
    if let Some(qpn) = patch.target_qpn {
        headers.bth.target_qpn = Serial::new(qpn).get();
    }
    headers.bth.psn = patch.psn.unwrap_or(headers.bth.psn);
    if let (Some(reth), Some((address, key))) = (&mut headers.reth, patch.memory) {
        (reth.address, reth.key) = (address, key);
    }
    headers.aeth = headers.aeth.map(|aeth| patch.aeth.unwrap_or(aeth));
    headers
}

/// A host's address.
pub fn address(node: Node) -> IpAddr {
    IpAddr::from([10, (node >> 16) as u8, (node >> 8) as u8, node as u8])
}

/// The virtual address of a group. It belongs to no host.
pub fn virtual_address(group: usize) -> IpAddr {
    IpAddr::from([11, (group >> 16) as u8, (group >> 8) as u8, group as u8])
}

/// The node that has this address.
pub fn node_of(address: IpAddr) -> Option<Node> {
    match address {
        IpAddr::V4(address) => match address.octets() {
            [10, a, b, c] => Some(usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)),
            _ => None,
        },
        IpAddr::V6(_) => None,
    }
}

/// ECMP: chooses one of the equal-cost ports, the same for each packet of a flow at a switch.
pub fn chosen(headers: &Headers, node: Node, count: usize) -> usize {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(_) => 0,
    };
    let ip = headers.ip;
    let flow = number(ip.source) << 32 | number(ip.target);
    let hash = mixed(mixed(flow) ^ u64::from(ip.source_port) << 32 ^ node as u64);
    (hash % count as u64) as usize
}

/// SplitMix64's finalizer: every bit of the input changes half of the output's.
pub const fn mixed(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
