//! Fuzz target (`./dev fuzz`): a sequence of arbitrary frames at a switch with groups.

use std::net::IpAddr;

use roce::{Mac, Packet, Serial, Syndrome, ethernet, icrc};

use crate::{
    Branch, GroupKey, MEMBERS_MAX, Merging, Region, Replication, Rewriting, Source, Switch, Verdict,
};

const ID: u32 = 0x80_0001;
const SENDER_QPN: u32 = 17;

fn address(is_v6: bool, host: u8) -> IpAddr {
    match is_v6 {
        true => [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host].into(),
        false => [10, 0, 0, host].into(),
    }
}

/// A group in each address family: sender 1, members 2 to 4, virtual address 9.
fn switch() -> Switch {
    let mut switch = Switch::new();
    for is_v6 in [false, true] {
        let branch = |host: u8| Branch {
            port: host.into(),
            mac: Mac([2, 0, 0, 0, 0, host]),
            target: address(is_v6, host),
            rewriting: Some(Rewriting {
                qpn: 0x30,
                psn_offset: u32::from(host) << 20,
                regions: vec![Region {
                    start: 64,
                    bytes: 64,
                    member_start: 1 << 40,
                    member_key: 5,
                }],
            }),
        };
        let source = |host: u8| Source {
            address: address(is_v6, host),
            psn_offset: u32::from(host) << 20,
            ports: vec![1],
        };
        let merging = Merging {
            psn_first: Serial::new(Serial::COUNT - 2),
            virtual_address: address(is_v6, 9),
            virtual_mac: Some(Mac([2, 0, 0, 0, 0, 9])),
            members: (2..5).map(source).collect(),
            all_notifications: false,
        };
        let replication = Replication {
            sender_qpn: SENDER_QPN,
            inputs: vec![1],
            branches: (2..5).map(branch).collect(),
        };
        let key = GroupKey { sender: address(is_v6, 1), id: ID };
        assert!(switch.tables.insert(key, replication, Some(merging)).is_ok());
    }
    switch
}

/// Frames, each preceded by its length (two bytes) and a byte with the time since the previous one and,
/// in bit 0, whether to fix its ICRC first. Checks that only the sender's frames are copied, that a
/// copy's ICRC is correct exactly if the original's is, and that no packet is acknowledged that a member
/// lacks. True if something was copied, forwarded or answered.
pub fn frames(mut bytes: &[u8]) -> bool {
    let (mut switch, mut now_ns, mut has_acted) = (switch(), 0, false);
    while let [high, low, how, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (frame, after) = rest.split_at(length);
        (bytes, now_ns) = (after, now_ns + (u64::from(how >> 1) << 12));
        let mut frame = frame.to_vec();
        if how & 1 == 1 {
            fix_icrc(&mut frame);
        }
        has_acted |= check(&mut switch, now_ns, frame);
    }
    has_acted
}

fn fix_icrc(frame: &mut [u8]) {
    let Some(inner) = ethernet::contents(frame).and_then(|(_, at)| frame.get_mut(at..)) else {
        return;
    };
    if Packet::parse(inner).is_err() {
        return;
    }
    // Only of frames without padding behind the packet.
    let at = inner.len() - 4;
    let right = icrc(&inner[..at]);
    inner[at..].copy_from_slice(&right.to_le_bytes());
}

fn contents(frame: &[u8]) -> Option<&[u8]> {
    frame.get(ethernet::contents(frame)?.1..)
}

fn intact(frame: &[u8]) -> Option<bool> {
    Packet::parse(contents(frame)?).ok().map(|packet| packet.is_intact())
}

fn check(switch: &mut Switch, now_ns: u64, mut frame: Vec<u8>) -> bool {
    let before = frame.clone();
    let mut copies = 0;
    let verdict = switch.handle(now_ns, 1, &mut frame, |port, copy| {
        copies += 1;
        assert!((2..5).contains(&port));
        assert_eq!(intact(&copy.concat()), intact(&before), "copies are as intact as what came");
        true
    });
    assert!(copies <= MEMBERS_MAX && (copies == 0 || verdict == Verdict::Drop));
    if verdict == Verdict::Reflect && intact(&frame).is_some() {
        assert_eq!(intact(&frame), Some(true), "the NAK has a correct ICRC");
    }
    if verdict == Verdict::Pass && frame != before {
        check_forwarded(switch, &frame);
    }
    copies > 0 || verdict == Verdict::Reflect || frame != before
}

/// A rewritten answer acknowledges no more than every member has.
fn check_forwarded(switch: &Switch, frame: &[u8]) {
    let packet = Packet::parse(contents(frame).expect("it has contents"))
        .expect("it was changed as a packet");
    assert!(packet.is_intact(), "forwarded answers are intact");
    let headers = packet.headers;
    let key = GroupKey { sender: headers.ip.target, id: ID };
    let merger = switch.tables.merger(key).expect("it is for a sender");
    let Some(aeth) = headers.aeth else { return };
    let number = match aeth.syndrome {
        Syndrome::Ack(_) => headers.bth.psn.plus(1),
        _ => headers.bth.psn,
    };
    for (member, expected, _) in merger.members() {
        assert!(!number.is_after(expected), "{member} lacks what was acknowledged");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce::{Aeth, Bth, ETHERNET_BYTES, Headers, IpHeader, NakCode, Opcode, Reth};

    fn frame(headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET_BYTES + headers.packet_bytes(payload.len())];
        let kind: [u8; 2] = if headers.ip.source.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
        frame[12..14].copy_from_slice(&kind);
        headers.write(payload, &mut frame[ETHERNET_BYTES..]).expect("room");
        frame
    }

    fn request(is_v6: bool, opcode: Opcode, address_of_write: u64) -> Vec<u8> {
        let ip = IpHeader::new(address(is_v6, 1), address(is_v6, 9)).expect("one family");
        let mut headers = Headers::new(ip, Bth::new(opcode, ID, Serial::new(3)));
        headers.reth =
            opcode.has_reth().then_some(Reth { address: address_of_write, key: 1, bytes: 5 });
        frame(&headers, b"block")
    }

    fn answer(is_v6: bool, host: u8, syndrome: Option<Syndrome>, psn: u32) -> Vec<u8> {
        let ip = IpHeader::new(address(is_v6, host), address(is_v6, 1)).expect("one family");
        let opcode = if syndrome.is_some() { Opcode::Acknowledge } else { Opcode::Cnp };
        let psn = Serial::new(psn).plus(u32::from(host) << 20);
        let mut headers = Headers::new(ip, Bth::new(opcode, SENDER_QPN, psn));
        headers.aeth = syndrome.map(|syndrome| Aeth { syndrome, msn: Serial::new(1) });
        frame(&headers, &[])
    }

    fn sequence(frames: &[Vec<u8>]) -> Vec<u8> {
        let with_length = |frame: &Vec<u8>| {
            let [high, low] = (frame.len() as u16).to_be_bytes();
            [&[high, low, 9][..], frame].concat()
        };
        frames.iter().flat_map(with_length).collect()
    }

    #[test]
    fn the_corpus_passes() {
        let (ack, nak) = (Some(Syndrome::Ack(31)), Some(Syndrome::Nak(NakCode::Sequence)));
        let not_ready = Some(Syndrome::ReceiverNotReady(3));
        let answers = |is_v6| {
            sequence(&[
                answer(is_v6, 2, ack, 2),
                answer(is_v6, 3, nak, 1),
                answer(is_v6, 4, ack, 0),
                answer(is_v6, 4, not_ready, 1),
                answer(is_v6, 2, None, 0),
            ])
        };
        let requests = |is_v6| {
            sequence(&[
                request(is_v6, Opcode::SendOnly, 0),
                request(is_v6, Opcode::WriteOnly, 70),
                request(is_v6, Opcode::WriteOnly, 200),
            ])
        };
        let seeds = [
            ("answers-v4", answers(false)),
            ("answers-v6", answers(true)),
            ("requests-v4", requests(false)),
            ("requests-v6", requests(true)),
        ];
        testing::replay("switch_frames", &seeds, frames);
    }
}
