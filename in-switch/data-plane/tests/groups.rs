//! `Groups` with either data plane: validated before the plane is written, and found by the next agent.

use std::{net::IpAddr, path::PathBuf};

use data_plane::{DataPlane, Groups, KernelPlane, PlaneError, UserspacePlane};
use mcrdma::{
    Branch, Counter, GroupKey, MEMBERS_MAX, Merging, PLACES_MAX, Refused, Region, Replication,
    Rewriting, Source, Traced,
};
use roce::{Mac, Serial};

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

fn key(id: u32) -> GroupKey {
    GroupKey { sender: address(1), id }
}

fn group(sender_qpn: u32, members: &[u8]) -> (Replication, Merging) {
    let branch = |&host: &u8| Branch {
        port: host.into(),
        mac: Mac([2, 0, 0, 0, 0, host]),
        target: address(host),
        rewriting: Some(Rewriting {
            qpn: 20 + u32::from(host),
            psn_offset: 7,
            regions: vec![Region { start: 1, bytes: 2, member_start: 3, member_key: 4 }],
        }),
    };
    let merging = Merging {
        psn_first: Serial::new(100),
        virtual_address: address(200),
        virtual_mac: Some(Mac([2, 0, 0, 0, 0, 200])),
        members: members
            .iter()
            .map(|&host| Source {
                address: address(host),
                psn_offset: 7,
                ports: vec![1, host.into()],
            })
            .collect(),
        all_notifications: true,
    };
    {
        let branches = members.iter().map(branch).collect();
        (Replication { sender_qpn, inputs: vec![1, 2], branches }, merging)
    }
}

fn directory(name: &str) -> PathBuf {
    format!("/sys/fs/bpf/rdmc-test-groups-{name}-{}", std::process::id()).into()
}

/// A switch's groups with each plane that this machine supports.
fn planes(name: &str) -> Vec<Groups> {
    let mut planes = Vec::new();
    // Without ports it needs no privilege.
    planes.push(Groups::in_userspace(UserspacePlane::open([]).unwrap().tables()));
    match KernelPlane::check() {
        Ok(()) => planes.push(Groups::in_kernel(&directory(name)).unwrap()),
        Err(error) => println!("SKIPPED: the switch in the kernel: {error}"),
    }
    planes
}

struct Unpin(PathBuf);

impl Drop for Unpin {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn both_planes_insert_and_remove_the_same_groups() {
    let _unpin = Unpin(directory("same"));
    for mut groups in planes("same") {
        let (replication, merging) = group(17, &[2, 3]);
        groups.insert(key(9), replication.clone(), Some(merging.clone())).unwrap();
        let again = groups.insert(key(9), replication.clone(), Some(merging.clone())).unwrap_err();
        assert!(matches!(again, PlaneError::Refused(Refused::Duplicate { .. })), "{again}");
        let taken = groups.insert(key(10), replication.clone(), Some(merging.clone())).unwrap_err();
        assert!(matches!(taken, PlaneError::Refused(Refused::QueuePairTaken { .. })), "{taken}");
        // The refused group has not changed the installed one.
        let all = groups.all();
        assert_eq!((all.len(), &all[0].replication), (1, &replication));
        let expected: Vec<_> = all[0].members.iter().map(|m| (m.address, m.expected)).collect();
        assert_eq!(expected, [(address(2), Serial::new(100)), (address(3), Serial::new(100))]);

        let (other, _) = group(17, &[3]);
        assert!(groups.replace(key(9), other.clone()).unwrap());
        assert!(!groups.replace(key(11), other.clone()).unwrap());
        let empty = Replication { branches: vec![], ..other.clone() };
        assert!(groups.replace(key(9), empty).is_err());
        let moved = Source { ports: vec![8, 9], ..merging.members[1].clone() };
        assert!(groups.relocate(key(9), std::slice::from_ref(&moved)).unwrap());
        assert!(!groups.relocate(key(11), std::slice::from_ref(&moved)).unwrap());
        let now = groups.get(key(9)).unwrap().1.unwrap().members;
        assert_eq!(now, [merging.members[0].clone(), moved]);
        assert_eq!(groups.all()[0].replication, other);
        let counted = groups.group_counters(key(9)).unwrap().unwrap();
        assert_eq!(counted.members.len(), 2);
        assert_eq!(groups.group_counters(key(11)).unwrap(), None);
        assert!(groups.trace(key(9), true).unwrap() && !groups.trace(key(11), true).unwrap());
        assert_eq!(groups.take_traced(key(9)).unwrap(), Some(Traced::default()));
        assert_eq!(groups.take_traced(key(11)).unwrap(), None);
        assert!(groups.trace(key(9), false).unwrap());
        assert_eq!(groups.take_traced(key(9)).unwrap(), None);
        assert!(groups.remove_member(key(9), address(2)).unwrap());
        assert!(!groups.remove_member(key(9), address(3)).unwrap(), "the last stays");
        assert!(!groups.remove_member(key(11), address(3)).unwrap());

        let (second, second_merging) = group(18, &[2]);
        groups.insert(key(8), second, Some(second_merging)).unwrap();
        assert_eq!(groups.all().iter().map(|g| g.key.id).collect::<Vec<_>>(), [8, 9]);
        assert!(groups.remove(key(9)).unwrap() && !groups.remove(key(9)).unwrap());
        assert!(groups.remove(key(8)).unwrap());
        assert!(groups.all().is_empty());
        assert_eq!(groups.counters().unwrap().counted(Counter::Request), 0);
        groups.insert(key(9), replication, Some(merging)).unwrap();
    }
}

#[test]
fn the_next_agent_finds_the_groups_in_the_kernel() {
    if let Err(error) = KernelPlane::check() {
        println!("SKIPPED: the switch in the kernel: {error}");
        return;
    }
    let _unpin = Unpin(directory("next"));
    let mut groups = Groups::in_kernel(&directory("next")).unwrap();
    let (replication, merging) = group(17, &[2, 3, 4]);
    groups.insert(key(9), replication.clone(), Some(merging)).unwrap();
    let (only_copies, _) = group(19, &[5]);
    groups.insert(key(10), only_copies, None).unwrap();
    let before = groups.all();
    drop(groups);
    let mut groups = Groups::in_kernel(&directory("next")).unwrap();
    assert_eq!(groups.all(), before);
    let taken = groups.insert(key(11), replication, None);
    assert!(taken.is_ok(), "without answers to merge the queue pair is not taken");
    assert!(!groups.remove_member(key(11), address(2)).unwrap(), "it is not merged");
    let with_both = groups.all();
    drop(groups);
    let mut groups = Groups::in_kernel(&directory("next")).unwrap();
    assert_eq!(groups.all(), with_both, "each has its own");
    assert!(groups.remove(key(11)).unwrap());
    assert_eq!(groups.all(), before, "it took nothing with it");
    let (replication, merging) = group(17, &[2]);
    let taken = groups.insert(key(12), replication, Some(merging)).unwrap_err();
    assert!(matches!(taken, PlaneError::Refused(Refused::QueuePairTaken { .. })), "{taken}");
}

#[test]
fn a_partial_group_of_a_killed_agent_is_removed_by_the_next() {
    if let Err(error) = KernelPlane::check() {
        println!("SKIPPED: the switch in the kernel: {error}");
        return;
    }
    let _unpin = Unpin(directory("killed"));
    let mut plane = KernelPlane::open(&directory("killed")).unwrap();
    let (whole, whole_merging) = group(17, &[2, 3]);
    plane.insert(key(9), &whole, Some(&whole_merging)).unwrap();
    let (half, half_merging) = group(18, &[2, 3]);
    plane.insert(key(10), &half, Some(&half_merging)).unwrap();
    // Without its merging: as if the agent had been killed before.
    plane.remove(key(10), &half, None).unwrap();
    assert_eq!(plane.members(key(10), 18, &half_merging).len(), 2);
    drop(plane);
    let plane = KernelPlane::open(&directory("killed")).unwrap();
    assert_eq!(plane.members(key(10), 18, &half_merging), []);
    assert_eq!(plane.members(key(9), 17, &whole_merging).len(), 2);
    let [(found, replication, Some(_))] = &plane.groups().unwrap()[..] else { panic!("one") };
    assert_eq!((*found, replication), (key(9), &whole));
}

/// 4,096 groups of 64: the next is refused with the number, and nothing of it is left.
#[test]
fn a_full_switch_refuses_the_next_group_with_the_limit_in_both_planes() {
    let _unpin = Unpin(directory("full"));
    let members: Vec<u8> = (2..2 + MEMBERS_MAX as u8).collect();
    let full = |qpn: u32| {
        let (mut replication, merging) = group(qpn, &members);
        for branch in &mut replication.branches {
            // Regions would take too much memory.
            branch.rewriting = None;
        }
        (replication, merging)
    };
    for mut groups in planes("full") {
        let last = 2 + (PLACES_MAX / MEMBERS_MAX) as u32;
        for number in 2..last {
            let (replication, merging) = full(number);
            groups.insert(key(number), replication, Some(merging)).unwrap();
        }
        for (replication, merging) in [full(last), group(last, &[2])] {
            let count = replication.branches.len();
            let refused = groups.insert(key(last), replication, Some(merging)).unwrap_err();
            let what = "copies";
            let expected = Refused::CapacityExceeded {
                key: key(last),
                what,
                count,
                free: 0,
                most: PLACES_MAX,
            };
            assert!(matches!(&refused, PlaneError::Refused(why) if *why == expected), "{refused}");
        }
        assert!(groups.get(key(last)).is_none() && groups.members(key(last)).is_empty());
        // A full table can change, and takes others after a removal.
        let (replication, _) = group(7, &members);
        assert!(groups.replace(key(7), replication.clone()).unwrap());
        assert_eq!(groups.get(key(7)).unwrap().0, replication);
        assert!(groups.remove(key(7)).unwrap());
        let (replication, merging) = full(last);
        groups.insert(key(last), replication, Some(merging)).unwrap();
        assert_eq!(groups.count(), PLACES_MAX / MEMBERS_MAX);
        assert_eq!(groups.members(key(last)).len(), MEMBERS_MAX);
    }
}
