//! Fuzz target (`./dev fuzz`): requests to an agent.

use mcrdma::{Tables, plan::Group};
use prost::Message;
use rustls::RootCertStore;

use crate::{convert, delegation, proto};

/// Decodes a request for a group, and inserts it into a switch's tables. Checks that a valid group is the
/// same after another round trip, and that nobody has signed it. True if it is valid.
pub fn requests(bytes: &[u8]) -> bool {
    let Ok(request) = proto::InsertRequest::decode(bytes) else { return false };
    let instance = request.instance;
    let Ok(group) = convert::group(request.group.as_ref(), instance) else { return false };
    let again = convert::group(Some(&convert::group_to_proto(&group)), instance);
    assert_eq!(again.as_ref(), Ok(&group));
    let authorities = RootCertStore::empty();
    for member in &group.members {
        assert!(delegation::check(&authorities, &group.proposal(), member).is_err());
    }
    insert(&group);
    true
}

/// Each member is at a port of its own.
fn insert(group: &Group) {
    let branches = group
        .members
        .iter()
        .zip(1..)
        .enumerate()
        .map(|(member, (it, port))| group.branch(port, it.mac.unwrap_or_default(), &[member]));
    let replication = mcrdma::Replication {
        sender_qpn: group.sender_qpn,
        inputs: Vec::new(),
        branches: branches.collect(),
    };
    let mut tables = Tables::default();
    if tables.insert(group.key, replication, Some(group.merging())).is_ok() {
        assert_eq!(tables.merging(group.key), Some(&group.merging()));
        assert!(tables.remove(group.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcrdma::{GroupKey, Region, plan::Member};
    use roce::{Mac, Serial};

    fn request(sender: &str, members: &[&str]) -> Vec<u8> {
        let region = Region { start: 4096, bytes: 100, member_start: 1 << 40, member_key: 7 };
        let member = |address: &&str| Member {
            address: address.parse().unwrap(),
            mac: Some(Mac([2, 0, 0, 0, 0, 9])),
            qpn: 33,
            psn_offset: 5,
            regions: vec![region],
            delegation: vec![9; 3],
        };
        let group = Group {
            key: GroupKey { sender: sender.parse().unwrap(), id: 0x80_0001 },
            sender_mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            sender_qpn: 18,
            psn_first: Serial::new(77),
            virtual_address: members[0].parse().unwrap(),
            virtual_mac: Mac([2, 0, 0, 0, 0, 9]),
            instance: 1,
            all_notifications: false,
            members: members.iter().map(member).collect(),
        };
        let request = proto::InsertRequest {
            group: Some(convert::group_to_proto(&group)),
            caller: "tor-a".to_owned(),
            instance: group.instance,
            is_first: true,
            hops_left: 3,
        };
        request.encode_to_vec()
    }

    #[test]
    fn the_corpus_passes() {
        let seeds = [
            ("one-v4", request("10.0.0.1", &["10.0.0.2"])),
            ("two-v6", request("fd00::1", &["fd00::2", "fd00::3"])),
        ];
        testing::replay("control_requests", &seeds, requests);
    }
}
