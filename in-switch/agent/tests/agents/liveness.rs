//! Members that an agent suspects.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use agent::{Clock, Liveness, ManualClock};
use control::{AgentSwitches, Claim, ErrorKind, proto::Suspicion};
use mcrdma::{
    Switches,
    plan::{Device, Topology},
};
use roce::rc::{Kind, Work};

use testing_switch::flow::{self, Flow};

use crate::world::{self, INSERT_TIMEOUT, PORT, World, link};

const STALE_AFTER: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);
/// Subtracted from a time: shortly before it.
const MOMENT: Duration = Duration::from_millis(1);

fn racks() -> (World, ManualClock) {
    let (topology, clock) = (Topology::racks(2, 2, Device::Copies), ManualClock::new());
    (World::bridged(topology, STALE_AFTER, Clock::Manual(clock.clone())), clock)
}

/// Changes the port of a switch to a neighbour.
fn change(world: &World, switch: &str, neighbour: &str, how: &str) {
    let port = link(world.find(switch), world.find(neighbour));
    let command = format!("link set {port} {how}");
    world.networks[world.find(switch)].run(move || lab::ip(&command).unwrap());
}

/// Watches a group while the agents' clock goes by these times, one after another. Returns the first report.
fn first_report(
    world: &World,
    clock: &ManualClock,
    claim: &Claim,
    times: Vec<Duration>,
) -> Suspicion {
    let (clock, claim) = (clock.clone(), claim.clone());
    world.ask(world.find("a1"), "tor-a", async move |agent| {
        let mut reports = agent.watch(&claim).await.unwrap();
        times.into_iter().for_each(|time| assert!(clock.advance(time, PATIENCE)));
        let report = tokio::time::timeout(PATIENCE, reports.message()).await;
        report.expect("a report comes").unwrap().unwrap()
    })
}

#[test]
fn a_silent_member_is_reported_when_that_lasts() {
    if !world::is_possible() {
        return;
    }
    let (mut world, clock) = racks();
    let (group, queue_pairs) = world.connect(0, &["a1", "a2", "b1"]);
    let claim = world.insert(&group, "tor-a").unwrap();
    flow::run(&mut [Flow::new(0, queue_pairs.clone())], &mut world.endpoints);
    // One more message, which the first member does not take.
    let [(sender, sender_qpn), (silent, _), (other, qpn)] = queue_pairs[..] else { panic!() };
    let bytes = vec![1; 1000];
    world.endpoints.get_mut(&other).unwrap().receive(qpn, 0, vec![0; bytes.len()]).unwrap();
    let work = Work { id: 0, kind: Kind::Send, bytes: bytes.len() as u32, immediate: None };
    world.endpoints.get_mut(&sender).unwrap().send(sender_qpn, work, bytes).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let is_behind = |world: &World| {
        let groups = world.ask(world.find("a1"), "tor-a", async |agent| agent.groups().await);
        let members = groups.unwrap().remove(0).members;
        members[0].expected_psn != members[1].expected_psn
    };
    while !is_behind(&world) {
        assert!(Instant::now() < deadline, "nothing is acknowledged by the other member");
        for (_, endpoint) in world.endpoints.iter_mut().filter(|(node, _)| **node != silent) {
            endpoint.progress(Duration::ZERO).unwrap();
        }
    }
    let Liveness { interval, silent_after, .. } = Liveness::default();
    let times = vec![interval, silent_after - MOMENT, interval];
    let report = first_report(&world, &clock, &claim, times);
    let lasting = (silent_after - MOMENT + interval).as_millis();
    let why = format!("switch tor-a: it has not acknowledged what others have for {lasting} ms");
    let member = world.address(world.find("a2")).to_string();
    assert_eq!(report, Suspicion { member, reason: why, is_cut_off: false });
}

#[test]
fn a_port_without_a_carrier_is_reported_when_that_lasts() {
    if !world::is_possible() {
        return;
    }
    let (mut world, clock) = racks();
    let (group, _) = world.connect(0, &["a1", "a2", "b1"]);
    let claim = world.insert(&group, "tor-a").unwrap();
    change(&world, "tor-a", "a2", "down");
    let Liveness { interval, carrier_lost_after, .. } = Liveness::default();
    let times = vec![interval, carrier_lost_after - MOMENT, interval];
    let report = first_report(&world, &clock, &claim, times);
    let lasting = (carrier_lost_after - MOMENT + interval).as_millis();
    let why = format!("switch tor-a: the port to it has had no carrier for {lasting} ms");
    let member = world.address(world.find("a2")).to_string();
    assert_eq!(report, Suspicion { member, reason: why, is_cut_off: true });
    // Another group's reports, and those without a lease, are not for this caller.
    let foreign = Claim { instance: claim.instance + 1, ..claim };
    let refused = world.ask(world.find("a1"), "tor-a", async move |agent| {
        agent.watch(&foreign).await.map(drop).unwrap_err()
    });
    assert_eq!(refused.kind, ErrorKind::Unknown);
}

/// The library's groups have no daemon that watches them.
#[test]
fn reports_come_to_groups_of_the_library() {
    if !world::is_possible() {
        return;
    }
    let (mut world, clock) = racks();
    let (group, _) = world.connect(0, &["a1", "a2", "b1"]);
    let sender = world.find("a1");
    let group = world.signed_for(&group, world::AGREED_FOR);
    let files = world.authority.issue(&world.address(sender).to_string());
    let agent = SocketAddr::new(world.address(world.find("tor-a")), PORT).to_string();
    let inserted = world.networks[sender].run(move || {
        let switches = AgentSwitches::start(&agent, &world::certificates(files)).unwrap();
        switches.insert(&group, INSERT_TIMEOUT).unwrap()
    });
    change(&world, "tor-a", "a2", "down");
    let deadline = Instant::now() + PATIENCE;
    let suspicion = loop {
        if let Some(suspicion) = inserted.suspicions().pop() {
            break suspicion;
        }
        assert!(Instant::now() < deadline, "no report comes");
        assert!(clock.advance(Liveness::default().interval, PATIENCE));
    };
    assert_eq!(suspicion.member, world.address(world.find("a2")));
    let why = "switch tor-a: the port to it has had no carrier for ";
    assert!(suspicion.reason.starts_with(why), "{suspicion:?}");
}
