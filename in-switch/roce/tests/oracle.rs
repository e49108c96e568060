//! Packets that another program has built (`scapy_vectors.py`) are understood, and ours are equal.

use std::net::IpAddr;

use roce::{
    Aeth, Bth, HEAD_BYTES_MAX, Headers, IpHeader, Malformed, Opcode, Packet, Reth, Serial,
    ShiftTables, TAIL_BYTES_MAX,
};
use serde_json::Value;

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap().as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn headers(said: &Value) -> Headers {
    let address = |name: &str| said[name].as_str().unwrap().parse::<IpAddr>().unwrap();
    let ip = IpHeader {
        traffic_class: number(&said["traffic_class"]) as u8,
        hop_limit: number(&said["hop_limit"]) as u8,
        label: number(&said["label"]) as u32,
        source_port: number(&said["source_port"]) as u16,
        ..IpHeader::new(address("source"), address("target")).unwrap()
    };
    let opcode = Opcode::from_byte(number(&said["opcode"]) as u8).unwrap();
    let psn = Serial::new(number(&said["psn"]) as u32);
    let bth = Bth {
        solicited: said["solicited"].as_bool().unwrap(),
        ack_requested: said["ack_requested"].as_bool().unwrap(),
        pad_bytes: (bytes(&said["payload"]).len().wrapping_neg() % 4) as u8,
        ..Bth::new(opcode, number(&said["target_qpn"]) as u32, psn)
    };
    let reth = said.get("reth").map(|reth| Reth {
        address: number(&reth[0]),
        key: number(&reth[1]) as u32,
        bytes: number(&reth[2]) as u32,
    });
    let aeth = said.get("aeth").map(|aeth| {
        Aeth::from_bytes(&((number(&aeth[0]) << 24 | number(&aeth[1])) as u32).to_be_bytes())
    });
    let immediate = said.get("immediate").map(|immediate| number(immediate) as u32);
    Headers { ip, bth, reth, immediate, aeth }
}

fn vectors() -> Vec<Value> {
    serde_json::from_str(include_str!("scapy.json")).unwrap()
}

#[test]
fn packets_of_scapy_are_understood_and_ours_are_the_same() {
    let all = vectors();
    assert!(all.len() > 50);
    for said in &all {
        let (packet, payload) = (bytes(&said["packet"]), bytes(&said["payload"]));
        let parsed = Packet::parse(&packet).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert_eq!(parsed.headers, headers(said), "{said}");
        assert_eq!(parsed.payload, payload);
        assert!(parsed.is_intact(), "{said}");
        let mut own = vec![0xee; packet.len() + 3];
        assert_eq!(headers(said).write(&payload, &mut own), Ok(packet.len()));
        assert_eq!(own[..packet.len()], packet, "{said}");
        let (mut head, mut tail) = ([0xee; HEAD_BYTES_MAX], [0xee; TAIL_BYTES_MAX]);
        let around = headers(said).write_around(&payload, &mut head, &mut tail);
        let (head_bytes, tail_bytes) = around.unwrap();
        assert_eq!([&head[..head_bytes], &payload, &tail[..tail_bytes]].concat(), packet, "{said}");
    }
}

#[test]
fn truncated_packets_are_refused_and_link_padding_is_ignored() {
    for said in vectors() {
        let mut packet = bytes(&said["packet"]);
        for length in 0..packet.len().min(120) {
            assert!(Packet::parse(&packet[..length]).is_err(), "{length} bytes of {said}");
        }
        packet.extend([0; 18]);
        assert!(Packet::parse(&packet).unwrap().is_intact());
    }
}

#[test]
fn every_flipped_bit_is_noticed_but_those_that_routers_may_change() {
    let vectors = vectors();
    for said in vectors.iter().filter(|said| bytes(&said["packet"]).len() < 200) {
        let packet = bytes(&said["packet"]);
        // IPv4: class, hops, checksum; IPv6: class and flow label, hops. Then the UDP checksum, and
        // the congestion bits of the BTH with the reserved ones beside them.
        let free: &[(usize, u8)] = match packet[0] >> 4 {
            4 => {
                &[(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff), (26, 0xff), (27, 0xff), (32, 0xff)]
            }
            _ => &[
                (0, 0x0f),
                (1, 0xff),
                (2, 0xff),
                (3, 0xff),
                (7, 0xff),
                (46, 0xff),
                (47, 0xff),
                (52, 0xff),
            ],
        };
        for bit in 0..packet.len() * 8 {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let may = free.iter().any(|&(at, mask)| at == bit / 8 && mask >> (bit % 8) & 1 == 1);
            let is_taken = Packet::parse(&damaged).is_ok_and(|packet| packet.is_intact());
            assert_eq!(is_taken, may, "bit {bit} of {said}");
        }
    }
}

#[test]
fn a_rewritten_packet_equals_the_one_built_by_scapy() {
    let (tables, all) = (ShiftTables::new(), vectors());
    let mut rewritten = 0;
    for (from, to) in all.iter().zip(all.iter().skip(1)) {
        let (old, new) = (bytes(&from["packet"]), bytes(&to["packet"]));
        let (was, becomes) = (Packet::parse(&old).unwrap(), Packet::parse(&new).unwrap());
        let is_v4 = was.headers.ip.source.is_ipv4();
        let alike = was.headers.bth.opcode == becomes.headers.bth.opcode
            && is_v4 == becomes.headers.ip.source.is_ipv4();
        if !alike || becomes.payload.is_empty() {
            continue;
        }
        // The new packet's headers in front of the old one's payload, lengths apart.
        let mut headers = becomes.headers;
        headers.ip.label = was.headers.ip.label;
        let mut whole = vec![0; 4400];
        let length = headers.write(was.payload, &mut whole).unwrap();
        let behind = if is_v4 { 40 } else { 60 } + if headers.reth.is_some() { 16 } else { 0 };
        let after = old.len() - 4 - behind;
        let icrc = tables.update(was.icrc, &old[..behind], &whole[..behind], after);
        // An immediate that differs stands behind what was rewritten.
        if headers.immediate == was.headers.immediate {
            assert_eq!(icrc, Some(Packet::parse(&whole[..length]).unwrap().icrc));
            rewritten += 1;
        }
    }
    assert!(rewritten > 5, "{rewritten}");
}

#[test]
fn impossible_packets_are_refused() {
    let ip = IpHeader::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).unwrap();
    let write = |opcode, payload: &[u8], room: usize| {
        let mut into = vec![0; room];
        Headers::new(ip, Bth::new(opcode, 1, Serial::new(1))).write(payload, &mut into)
    };
    assert_eq!(write(Opcode::SendOnly, &[0; 9], 56), Ok(56));
    assert_eq!(write(Opcode::SendOnly, &[0; 9], 55), Err(Malformed::BufferTooSmall { needed: 56 }));
    assert_eq!(write(Opcode::WriteOnly, &[], 500), Err(Malformed::Headers("RETH")));
    assert_eq!(write(Opcode::Cnp, &[1], 500), Err(Malformed::Headers("payload")));
    assert_eq!(write(Opcode::SendOnly, &[0; 70_000], 80_000), Err(Malformed::Length("payload")));
    assert_eq!(IpHeader::new([10, 0, 0, 1].into(), [0; 16].into()), Err(Malformed::Families));
}
