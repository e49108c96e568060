//! Neighbour resolution: ARP (RFC 826) and neighbour discovery (RFC 4861). The kernel answers for the
//! host's own address.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use roce::{ETHERNET_BYTES, Mac, icmpv6_checksum};

/// Interval of retransmitted requests.
const AGAIN_NS: u64 = 100_000_000;
const BROADCAST: [u8; 6] = [0xff; 6];

/// The neighbour cache, and pending requests.
#[derive(Default)]
pub(crate) struct Neighbours {
    known: HashMap<IpAddr, Mac>,
    asked_ns: HashMap<IpAddr, u64>,
}

impl Neighbours {
    /// A neighbour's Ethernet address, if it is known.
    pub(crate) fn get(&self, address: IpAddr) -> Option<Mac> {
        self.known.get(&address).copied()
    }

    /// The request to send, if one is due.
    pub(crate) fn ask(
        &mut self,
        now_ns: u64,
        own: IpAddr,
        own_mac: Mac,
        address: IpAddr,
    ) -> Option<Vec<u8>> {
        let is_due = self.asked_ns.get(&address).is_none_or(|asked| now_ns >= asked + AGAIN_NS);
        if !is_due {
            return None;
        }
        self.asked_ns.insert(address, now_ns);
        match (own, address) {
            (IpAddr::V4(own), IpAddr::V4(address)) => Some(arp(own, own_mac, address)),
            (IpAddr::V6(own), IpAddr::V6(address)) => Some(solicitation(own, own_mac, address)),
            _ => None,
        }
    }

    /// Takes the answer to a request, if a frame is one. Whether that has changed an address.
    pub(crate) fn learn(&mut self, frame: &[u8]) -> bool {
        let learnt = match frame.get(12..14) {
            Some([8, 6]) => answer_of_arp(&frame[ETHERNET_BYTES..]),
            Some([0x86, 0xdd]) => answer_of_neighbour(&frame[ETHERNET_BYTES..]),
            _ => None,
        };
        // Unsolicited answers are ignored: they may be spoofed.
        learnt.is_some_and(|(address, mac)| {
            self.asked_ns.contains_key(&address) && self.known.insert(address, mac) != Some(mac)
        })
    }
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok().map(Mac)
}

fn arp(own: Ipv4Addr, own_mac: Mac, asked: Ipv4Addr) -> Vec<u8> {
    let mut frame = [BROADCAST, own_mac.0].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(own_mac.0);
    frame.extend(own.octets());
    frame.extend([0; 6]);
    frame.extend(asked.octets());
    frame
}

fn answer_of_arp(arp: &[u8]) -> Option<(IpAddr, Mac)> {
    let is_answer = arp.get(..8)? == [0, 1, 8, 0, 6, 4, 0, 2];
    let address: [u8; 4] = arp.get(14..18)?.try_into().ok()?;
    is_answer.then_some((address.into(), mac(arp.get(8..14)?)?))
}

fn solicitation(own: Ipv6Addr, own_mac: Mac, asked: Ipv6Addr) -> Vec<u8> {
    // The solicited-node multicast address (RFC 4291, section 2.7.1).
    let end = asked.octets();
    let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
    group[13..].copy_from_slice(&end[13..]);
    let mut frame = [0x33, 0x33, 0xff, end[13], end[14], end[15]].to_vec();
    frame.extend(own_mac.0);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]);
    frame.extend(own.octets());
    frame.extend(group);
    let message_at = frame.len();
    frame.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend(end);
    frame.extend([1, 1]);
    frame.extend(own_mac.0);
    let (before, message) = frame.split_at(message_at);
    let checksum = icmpv6_checksum(&before[message_at - 32..], message);
    frame[message_at + 2..message_at + 4].copy_from_slice(&checksum.to_be_bytes());
    frame
}

fn answer_of_neighbour(packet: &[u8]) -> Option<(IpAddr, Mac)> {
    let message = packet.get(40..)?;
    let is_answer = packet[6] == 58 && packet[7] == 255 && message.get(..2)? == [136, 0];
    let address: [u8; 16] = message.get(8..24)?.try_into().ok()?;
    let option = message.get(24..32)?;
    let is_mac = option[..2] == [2, 1];
    (is_answer && is_mac).then_some((address.into(), mac(&option[2..])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcrdma::{Branch, GroupKey, Merging, Replication, Source, Switch, Verdict};
    use roce::Serial;

    /// Takes the switch's answers, and no unsolicited ones.
    #[test]
    fn answers_to_requests_are_learnt() {
        let pairs: [(IpAddr, IpAddr); 2] = [
            ("10.0.0.1".parse().unwrap(), "10.0.0.9".parse().unwrap()),
            ("fd00::1".parse().unwrap(), "fd00::9".parse().unwrap()),
        ];
        for (own, peer) in pairs {
            let (own_mac, peer_mac) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 9]));
            let branch = Branch { port: 1, mac: own_mac, target: own, rewriting: None };
            let merging = Merging {
                psn_first: Serial::new(0),
                virtual_address: peer,
                virtual_mac: Some(peer_mac),
                members: vec![Source { address: own, psn_offset: 0, ports: Vec::new() }],
                all_notifications: false,
            };
            let mut switch = Switch::new();
            let replication =
                Replication { sender_qpn: 17, inputs: Vec::new(), branches: vec![branch] };
            let key = GroupKey { sender: own, id: 99 };
            switch.tables.insert(key, replication, Some(merging)).unwrap();
            let mut neighbours = Neighbours::default();
            let mut frame = neighbours.ask(0, own, own_mac, peer).unwrap();
            assert_eq!(neighbours.ask(1, own, own_mac, peer), None, "not due yet");
            assert_eq!(switch.handle(0, 1, &mut frame, |_, _| true), Verdict::Reflect);
            let mut others = Neighbours::default();
            assert!(!others.learn(&frame));
            assert_eq!(others.get(peer), None, "unsolicited");
            assert!(neighbours.learn(&frame));
            assert!(!neighbours.learn(&frame), "nothing has changed");
            assert_eq!(neighbours.get(peer), Some(peer_mac));
        }
    }
}
