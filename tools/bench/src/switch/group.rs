//! The group whose packets are copied.

use std::net::IpAddr;

use mcrdma::{Branch, GroupKey, Port, Replication, Rewriting};
use roce::{Bth, ETHERNET_BYTES, Headers, IpHeader, Mac, Opcode, Serial};

use super::args::Plane;

const SENDER_QPN: u32 = 17;
const VIRTUAL_HOST: u8 = 200;

/// What is measured in one row.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub plane: Plane,
    pub members: usize,
    pub payload_bytes: usize,
}

impl Case {
    pub fn key(&self) -> GroupKey {
        GroupKey { sender: address(1), id: 0x80_0001 }
    }

    /// Each member is behind a port of its own; the first port is the sender's.
    pub fn replication(&self, ports: &[Port]) -> Replication {
        let branch = |(host, &port): (u8, &Port)| Branch {
            port,
            mac: mac(host),
            target: address(host),
            rewriting: Some(Rewriting {
                qpn: 0x30 + u32::from(host),
                psn_offset: 0x1000 * u32::from(host),
                regions: Vec::new(),
            }),
        };
        let branches = (2..).zip(&ports[1..=self.members]).map(branch).collect();
        Replication { sender_qpn: SENDER_QPN, inputs: vec![ports[0]], branches }
    }

    /// A whole message, from the Ethernet header on. Data planes do not read its serial number, so all
    /// packets have the same.
    pub fn frame(&self) -> Vec<u8> {
        let ip = IpHeader::new(address(1), address(VIRTUAL_HOST)).expect("one family");
        let headers = Headers::new(ip, Bth::new(Opcode::SendOnly, self.key().id, Serial::new(9)));
        let payload: Vec<u8> = (0..self.payload_bytes).map(|at| (at * 7) as u8).collect();
        let mut frame = vec![0; ETHERNET_BYTES + headers.packet_bytes(payload.len())];
        frame[..6].copy_from_slice(&mac(VIRTUAL_HOST).0);
        frame[6..12].copy_from_slice(&mac(1).0);
        frame[12..14].copy_from_slice(&[8, 0]);
        headers.write(&payload, &mut frame[ETHERNET_BYTES..]).expect("room");
        frame
    }
}

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

/// Not those of the ports' other ends, so that the kernel there drops frames at once.
const fn mac(host: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, host])
}
