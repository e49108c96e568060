//! Groups whose members have agreed, and groups whose members have not.

use std::time::Duration;

use agent::{Clock, ManualClock};
use control::{Claim, ErrorKind};
use mcrdma::plan::{Device, Group, Topology};
use testing_switch::flow;

use crate::world::{self, AGREED_FOR, INSERT_TIMEOUT, World, claim};

const STALE_AFTER: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);

fn racks() -> (World, ManualClock) {
    let (topology, clock) = (Topology::racks(2, 2, Device::Copies), ManualClock::new());
    (World::bridged(topology, STALE_AFTER, Clock::Manual(clock.clone())), clock)
}

/// How many groups this switch has.
fn count(world: &World, switch: &str) -> usize {
    world.ask(world.find("a1"), switch, async |agent| agent.groups().await.unwrap()).len()
}

#[track_caller]
fn assert_not_agreed(world: &World, group: &Group, member: usize, why: &str) {
    let error = world.insert_signed(group, "tor-a").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    let who = format!("{} has not agreed to receive", group.members[member].address);
    for words in ["switch tor-a", &who, why, "has to sign that, with a certificate for"] {
        assert!(error.message.contains(words), "{words}: {error}");
    }
}

/// Otherwise a host with a certificate could let switches send 64 packets for each of its own, to hosts that have
/// never heard of it.
#[test]
fn switches_copy_only_to_members_that_have_agreed() {
    if !world::is_possible() {
        return;
    }
    let (mut world, _) = racks();
    let (group, _) = world.connect(0, &["a1", "b1", "b2"]);
    assert_not_agreed(&world, &group, 0, "it has signed nothing");
    let signed = world.signed_for(&group, AGREED_FOR);
    let others = world.signed_for(&Group { instance: 77, ..group.clone() }, AGREED_FOR);
    let ended = world.signed_for(&group, Duration::ZERO);
    let with = |place: usize, from: &Group| {
        let mut group = signed.clone();
        group.members[place].delegation.clone_from(&from.members[place].delegation);
        group
    };
    assert_not_agreed(&world, &with(1, &group), 1, "it has signed nothing");
    assert_not_agreed(&world, &with(1, &others), 1, "something else");
    assert_not_agreed(&world, &with(0, &ended), 0, "has ended");
    let mut others = signed.clone();
    others.members[1].delegation.clone_from(&signed.members[0].delegation);
    assert_not_agreed(&world, &others, 1, "signed by another host");
    let mut another_queue_pair = signed.clone();
    another_queue_pair.members[1].qpn += 1;
    assert_not_agreed(&world, &another_queue_pair, 1, "something else");
    let mut another_packet = signed.clone();
    another_packet.members[0].psn_offset = 1;
    assert_not_agreed(&world, &another_packet, 0, "something else");
    assert_eq!(count(&world, "tor-a"), 0);

    // Nor at a switch that is not the sender's first.
    let (bare, inserted) = (group.clone(), claim(&group));
    let a1 = world.find("a1");
    let error = world.ask(a1, "tor-b", async move |agent| {
        agent.insert_at(&bare, &inserted, false, 1, INSERT_TIMEOUT).await
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    assert!(error.message.contains("switch tor-b") && error.message.contains("has not agreed"));

    // Nor by replacing a group that is installed, which stays.
    world.insert_signed(&signed, "tor-a").unwrap();
    assert_not_agreed(&world, &another_queue_pair, 1, "something else");
    assert_eq!(["tor-a", "tor-b"].map(|switch| count(&world, switch)), [1, 1]);
}

/// Nobody needs to remember ended groups: what a member has signed is of no use for long.
#[test]
fn a_group_ends_in_all_switches_when_a_member_does_not_renew() {
    if !world::is_possible() {
        return;
    }
    let (mut world, clock) = racks();
    let (group, _) = world.connect(0, &["a1", "b1", "b2"]);
    let lasts = 2 * STALE_AFTER;
    let claim: Claim = world.insert_signed(&world.signed_for(&group, lasts), "tor-a").unwrap();
    let keep = |world: &World| {
        let claim = claim.clone();
        world.ask(world.find("a1"), "tor-a", async move |agent| agent.keep(&claim).await)
    };
    let advance = |world: &World, steps: u32| {
        for _ in 0..steps {
            assert!(clock.advance(STALE_AFTER / 4, PATIENCE));
            keep(world).unwrap();
        }
    };
    advance(&world, 6);
    // All sign again, so that it goes on.
    world.insert_signed(&world.signed_for(&group, lasts), "tor-a").unwrap();
    advance(&world, 6);
    assert_eq!(["tor-a", "spine", "tor-b"].map(|switch| count(&world, switch)), [1; 3]);
    // One does not.
    let mut renewed = world.signed_for(&group, AGREED_FOR);
    let old = world.signed_for(&group, STALE_AFTER / 2);
    renewed.members[1].delegation.clone_from(&old.members[1].delegation);
    world.insert_signed(&renewed, "tor-a").unwrap();
    assert!(clock.advance(STALE_AFTER / 2, PATIENCE));
    assert_eq!(keep(&world).unwrap_err().kind, ErrorKind::Unknown);
    // The others get to know it at once, or by the same end.
    for _ in 0..8 {
        assert!(clock.advance(STALE_AFTER / 4, PATIENCE));
    }
    assert_eq!(["tor-a", "spine", "tor-b"].map(|switch| count(&world, switch)), [0; 3]);
}

/// New delegations change no entry of a switch, and those of a smaller group do not bring a removed member back.
#[test]
fn packets_are_copied_while_members_renew_and_go() {
    if !world::is_possible() {
        return;
    }
    let (mut world, _) = racks();
    // The first member has the addresses of the virtual peer.
    let (mut group, flow) = world.connect_writing(0, &["a1", "b1", "b2", "a2"]);
    let mut flows = [flow];
    let claim = world.insert(&group, "tor-a").unwrap();
    let until = |world: &mut World, flows: &mut [flow::Flow; 1], done| {
        while flows[0].done < done {
            flow::turn(flows, &mut world.endpoints);
        }
    };
    until(&mut world, &mut flows, flow::MESSAGES / 3);
    world.insert(&group, "tor-a").unwrap();
    until(&mut world, &mut flows, flow::MESSAGES / 2);
    let (node, queue_pair) = flows[0].queue_pairs[1];
    assert!(world.endpoints.get_mut(&node).unwrap().remove(queue_pair));
    flows[0].lose(1);
    let gone = group.members.remove(0);
    let removed = world.ask(world.find("a1"), "tor-a", async move |agent| {
        agent.remove_member(&claim, gone.address).await
    });
    assert!(removed.unwrap());
    world.insert(&group, "tor-a").unwrap();
    flow::run(&mut flows, &mut world.endpoints);
    let mut as_before = group.clone();
    as_before.members.insert(0, gone);
    let error = world.insert(&as_before, "tor-a").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
}
