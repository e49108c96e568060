//! What an agent tells a data plane that is neither the kernel's nor userspace's.

use std::time::Duration;

use agent::{Clock, ManualClock};
use data_plane::KernelPlane;
use mcrdma::plan::{Device, Topology};
use testing_switch::recording::{Call, Recording};

use crate::world::{self, World, link};

const STALE_AFTER: Duration = Duration::from_secs(60);

#[test]
fn an_agent_drives_any_data_plane() {
    if !world::is_possible() {
        return;
    }
    let (topology, plane) = (Topology::racks(2, 2, Device::Copies), Recording::default());
    let clock = Clock::Manual(ManualClock::new());
    let mut world = World::bridged(topology, STALE_AFTER, clock);
    let tor = world.find("tor-a");
    world.stop_agent(tor);
    world.record(tor, plane.clone());
    world.start_agent(tor);
    let [sender, a2, b1, spine] = ["a1", "a2", "b1", "spine"].map(|name| world.find(name));
    let shown = world.ask(sender, "tor-a", async |agent| agent.show().await.unwrap());
    assert_eq!(shown.plane, "recording");
    let port = |to| {
        let port = link(tor, to);
        world.networks[tor].run(move || KernelPlane::port_number(&port).unwrap())
    };
    let [to_sender, to_a2, to_spine] = [sender, a2, spine].map(port);
    let addresses = [a2, b1].map(|member| world.address(member));
    let (group, _) = world.connect(0, &["a1", "a2", "b1"]);
    let (key, sender_qpn) = (group.key, group.sender_qpn);

    let claim = world.insert(&group, "tor-a").unwrap();
    let calls = plane.take();
    let [Call::Insert { key: inserted, replication, merging: Some(merging) }] = &calls[..] else {
        panic!("{calls:?}");
    };
    assert_eq!((*inserted, replication.sender_qpn), (key, sender_qpn));
    assert_eq!(replication.inputs, [to_sender]);
    let ports: Vec<_> = replication.branches.iter().map(|branch| branch.port).collect();
    assert_eq!(ports, [to_a2, to_spine]);
    assert!(replication.branches.iter().all(|branch| branch.rewriting.is_some()));
    assert_eq!((merging.psn_first, merging.virtual_address), (group.psn_first, addresses[0]));
    let answers: Vec<_> =
        merging.members.iter().map(|member| (member.address, &*member.ports)).collect();
    assert_eq!(answers, [(addresses[0], &[to_a2][..]), (addresses[1], &[to_spine][..])]);

    let (removed, member) = (claim.clone(), addresses[0]);
    let remove = async move |agent: control::Agent| agent.remove_member(&removed, member).await;
    assert!(world.ask(sender, "tor-a", remove).unwrap());
    let calls = plane.take();
    assert_eq!(calls[0], Call::RemoveMember { key, sender_qpn, member }, "first of all");
    let left = calls.iter().rev().find_map(|call| match call {
        Call::Replace { replication, .. } => Some(&replication.branches),
        _ => None,
    });
    assert_eq!(left.unwrap(), &replication.branches[1..]);

    // A new agent finds the group, and takes it over from the former one.
    world.stop_agent(tor);
    world.start_agent(tor);
    let groups = world.ask(sender, "tor-a", async |agent| agent.groups().await.unwrap());
    assert_eq!(groups.len(), 1);
    assert_eq!(plane.take(), [], "reading it changes nothing");
    world.insert(&group, "tor-a").unwrap();
    plane.take();
    let remove = async move |agent: control::Agent| agent.remove(&claim).await;
    assert!(world.ask(sender, "tor-a", remove).unwrap());
    let address = addresses[0];
    assert_eq!(plane.take(), [Call::Remove { key }, Call::RemoveAddress { address }]);
}
