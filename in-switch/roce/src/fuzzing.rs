//! Fuzz target (`./dev fuzz`): arbitrary packets.

use crate::{Headers, ICRC_BYTES, Packet, ShiftTables, icrc};
use alloc::vec;

/// Parses a packet, and writes it again: that has to parse to the same, with the same bytes except reserved
/// ones, and its ICRC has to be the incremental update of the old one. True for a packet with a correct ICRC.
pub fn packets(bytes: &[u8]) -> bool {
    let Ok(packet) = Packet::parse(bytes) else { return false };
    let Headers { ip, bth, .. } = packet.headers;
    let mut own = vec![0; packet.headers.packet_bytes(packet.payload.len())];
    let written = packet.headers.write(packet.payload, &mut own);
    // Padding that the payload does not need is not written again.
    if usize::from(bth.pad_bytes) != packet.payload.len().next_multiple_of(4) - packet.payload.len()
    {
        return packet.is_intact();
    }
    assert_eq!(written, Ok(own.len()), "what was parsed can be written");
    let again = Packet::parse(&own).expect("what was written can be parsed");
    assert_eq!((again.headers, again.payload), (packet.headers, packet.payload));
    assert!(again.is_intact());
    let headers = ip.bytes() + 20;
    let after = own.len() - ICRC_BYTES - headers;
    let old = icrc(&[&bytes[..headers], &own[headers..own.len() - ICRC_BYTES]].concat());
    let updated = ShiftTables::new().update(old, &bytes[..headers], &own[..headers], after);
    assert!(updated.is_none_or(|updated| updated == again.icrc), "updated to another CRC");
    packet.is_intact()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aeth, Bth, IpHeader, NakCode, Opcode, Reth, Serial, Syndrome};
    use alloc::vec::Vec;

    fn packet(is_v6: bool, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
        let address = |host: u8| match is_v6 {
            true => [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host].into(),
            false => [10, 0, 0, host].into(),
        };
        let ip = IpHeader::new(address(1), address(2)).expect("one family");
        let mut headers = Headers::new(ip, Bth::new(opcode, 17, Serial::new(9)));
        headers.reth = opcode.has_reth().then_some(Reth { address: 1 << 40, key: 3, bytes: 99 });
        headers.immediate = opcode.has_immediate().then_some(5);
        let syndrome = Syndrome::Nak(NakCode::Sequence);
        headers.aeth = opcode.has_aeth().then_some(Aeth { syndrome, msn: Serial::new(4) });
        let mut bytes = vec![0; headers.packet_bytes(payload.len())];
        headers.write(payload, &mut bytes).expect("room");
        bytes
    }

    #[test]
    fn the_corpus_passes() {
        let seeds = [
            ("send-v4", packet(false, Opcode::SendOnly, b"block")),
            ("send-v6", packet(true, Opcode::SendLastImmediate, b"block")),
            ("write-v4", packet(false, Opcode::WriteOnlyImmediate, b"bloc")),
            ("write-v6", packet(true, Opcode::WriteFirst, b"")),
            ("nak-v4", packet(false, Opcode::Acknowledge, b"")),
            ("cnp-v6", packet(true, Opcode::Cnp, b"")),
        ];
        testing::replay("roce_packets", &seeds, packets);
    }
}
