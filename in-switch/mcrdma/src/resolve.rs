//! Answers requests for the Ethernet address of a group's virtual address: ARP (RFC 826) and neighbour
//! discovery (RFC 4861).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roce::{
    Mac,
    ethernet::{self, TYPE_ARP, TYPE_IPV6},
    icmpv6_checksum,
};

/// Ethernet and IPv4, addresses of 6 and 4 bytes, a request.
const ARP_REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
const ARP_BYTES: usize = 28;
const IPV6_BYTES: usize = 40;
const ICMPV6: u8 = 58;
/// Neighbour discovery is valid only with this hop limit (RFC 4861, section 7.1).
const HOP_LIMIT: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// A neighbour advertisement with one option.
const ADVERTISEMENT_BYTES: usize = 32;
/// Flags S and O: solicited, and overrides the cache.
const SOLICITED_OVERRIDE: u8 = 0x60;
/// Target link-layer address option, one unit of 8 bytes.
const TARGET_OPTION: [u8; 2] = [2, 1];

/// Turns a request for an address that `known` has into its reply. Whether it was one.
pub(crate) fn resolve(frame: &mut Vec<u8>, known: impl Fn(IpAddr) -> Option<Mac>) -> bool {
    match ethernet::contents(frame) {
        Some((TYPE_ARP, at)) => resolve_arp(frame, at, known),
        Some((TYPE_IPV6, at)) => resolve_neighbour(frame, at, known),
        _ => false,
    }
}

fn resolve_arp(frame: &mut [u8], at: usize, known: impl Fn(IpAddr) -> Option<Mac>) -> bool {
    let Some(arp) = frame.get(at..at + ARP_BYTES) else {
        return false;
    };
    if arp[..8] != ARP_REQUEST {
        return false;
    }
    let asked = Ipv4Addr::new(arp[24], arp[25], arp[26], arp[27]);
    let Some(mac) = known(asked.into()) else {
        return false;
    };
    ethernet::swap_addresses(frame);
    frame[6..12].copy_from_slice(&mac.0);
    let arp = &mut frame[at..];
    arp[7] = 2;
    arp.copy_within(8..18, 18);
    arp[8..14].copy_from_slice(&mac.0);
    arp[14..18].copy_from_slice(&asked.octets());
    true
}

fn resolve_neighbour(
    frame: &mut Vec<u8>,
    at: usize,
    known: impl Fn(IpAddr) -> Option<Mac>,
) -> bool {
    let Some((ip, message)) = frame[at..].split_at_checked(IPV6_BYTES) else {
        return false;
    };
    let is_asked = ip[0] >> 4 == 6 && ip[6] == ICMPV6 && ip[7] == HOP_LIMIT;
    if !is_asked || message.len() < 24 || message[..2] != [SOLICITATION, 0] {
        return false;
    }
    let address = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map(Ipv6Addr::from);
    let (Ok(asker), Ok(asked)) = (address(&ip[8..24]), address(&message[8..24])) else {
        return false;
    };
    // An unspecified source is duplicate address detection (RFC 4862): not answered.
    let Some(mac) = known(asked.into()).filter(|_| !asker.is_unspecified()) else {
        return false;
    };
    ethernet::swap_addresses(frame);
    frame[6..12].copy_from_slice(&mac.0);
    frame.resize(at + IPV6_BYTES + ADVERTISEMENT_BYTES, 0);
    let (ip, message) = frame[at..].split_at_mut(IPV6_BYTES);
    ip[4..6].copy_from_slice(&(ADVERTISEMENT_BYTES as u16).to_be_bytes());
    ip[8..24].copy_from_slice(&asked.octets());
    ip[24..40].copy_from_slice(&asker.octets());
    message[..8].copy_from_slice(&[ADVERTISEMENT, 0, 0, 0, SOLICITED_OVERRIDE, 0, 0, 0]);
    message[24..26].copy_from_slice(&TARGET_OPTION);
    message[26..32].copy_from_slice(&mac.0);
    let checksum = icmpv6_checksum(&ip[8..40], message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce::ETHERNET_BYTES;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);
    const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn known(address: IpAddr) -> Option<Mac> {
        let known: [IpAddr; 2] = ["10.0.0.9".parse().unwrap(), "fd00::9".parse().unwrap()];
        known.contains(&address).then_some(MAC)
    }

    fn arp(asked: [u8; 4]) -> Vec<u8> {
        let mut frame = [[0xff; 6], ASKER].concat();
        frame.extend([8, 6]);
        frame.extend(ARP_REQUEST);
        frame.extend(ASKER);
        frame.extend([10, 0, 0, 1]);
        frame.extend([0; 6]);
        frame.extend(asked);
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn arp_is_answered_for_virtual_addresses_alone() {
        let mut frame = arp([10, 0, 0, 9]);
        assert!(resolve(&mut frame, known));
        let mut answer = [ASKER, MAC.0].concat();
        answer.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        answer.extend(MAC.0);
        answer.extend([10, 0, 0, 9]);
        answer.extend(ASKER);
        answer.extend([10, 0, 0, 1]);
        assert_eq!(frame[..42], answer);

        let others = [arp([10, 0, 0, 8]), arp([10, 0, 0, 9])[..41].to_vec(), vec![], vec![0; 13]];
        for mut frame in others {
            let before = frame.clone();
            assert!(!resolve(&mut frame, known));
            assert_eq!(frame, before);
        }
    }

    /// Asked by `fd00::1`, with the source link-layer address option, as Linux does.
    fn solicitation(asked: &str) -> Vec<u8> {
        let address = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        let mut frame = [[0x33, 0x33, 0xff, 0, 0, 9], ASKER].concat();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, ICMPV6, HOP_LIMIT]);
        frame.extend(address("fd00::1"));
        frame.extend(address("ff02::1:ff00:9"));
        frame.extend([SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(address(asked));
        frame.extend([1, 1]);
        frame.extend(ASKER);
        frame
    }

    #[test]
    fn neighbours_are_answered_with_a_right_checksum() {
        for bytes in [86, 78] {
            let mut frame = solicitation("fd00::9");
            frame.truncate(bytes);
            assert!(resolve(&mut frame, known));
            assert_eq!((frame.len(), &frame[..12]), (86, &[ASKER, MAC.0].concat()[..]));
            let (ip, message) = frame[ETHERNET_BYTES..].split_at(IPV6_BYTES);
            assert_eq!((ip[4..6].to_vec(), ip[23], ip[39]), (vec![0, 32], 9, 1));
            assert_eq!((message[0], message[4], message[23]), (ADVERTISEMENT, 0x60, 9));
            assert_eq!(message[24..], [&TARGET_OPTION[..], &MAC.0].concat());
            assert_eq!(icmpv6_checksum(&ip[8..40], message), 0, "what is right sums up to nothing");
        }
        let mut without_address = solicitation("fd00::9");
        without_address[22..38].fill(0);
        for mut frame in [solicitation("fd00::8"), without_address] {
            assert!(!resolve(&mut frame, known));
        }
    }
}
