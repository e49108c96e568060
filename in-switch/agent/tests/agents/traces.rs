//! Traces of a group's packets, by callers of an agent.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use agent::{Clock, ManualClock};
use control::{
    Agent, ControlError, ErrorKind, TRACE_PACKETS_MAX, TRACE_TIME_MS_MAX, proto::TracedPacket,
};
use mcrdma::{
    GroupKey,
    plan::{Device, Topology},
};
use testing_switch::flow::{self, Flow};

use crate::world::{self, World};

const STALE_AFTER: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);

fn racks() -> World {
    let topology = Topology::racks(2, 2, Device::Copies);
    World::bridged(topology, STALE_AFTER, Clock::Manual(ManualClock::new()))
}

/// The packets of a trace, and why it ended; nothing is lost.
async fn read(
    agent: Agent,
    key: GroupKey,
    packets: u32,
    begun: mpsc::Sender<()>,
) -> (Vec<TracedPacket>, String) {
    let mut reports = agent.trace(key, packets, TRACE_TIME_MS_MAX).await.unwrap();
    let mut all = Vec::new();
    while let Some(report) = agent.next(&mut reports).await.unwrap() {
        let _ = begun.send(());
        assert_eq!(report.lost, 0, "the reader is fast");
        all.extend(report.packets);
        if !report.end.is_empty() {
            return (all, report.end);
        }
    }
    panic!("it has ended without a reason")
}

#[test]
fn a_callers_trace_has_all_packets_of_a_group_and_ends_as_asked() {
    if !world::is_possible() {
        return;
    }
    const PACKETS: u32 = 300;
    let mut world = racks();
    let (group, queue_pairs) = world.connect(0, &["a1", "a2", "b1", "b2"]);
    let claim = world.insert(&group, "tor-a").unwrap();
    let (a1, key) = (world.find("a1"), group.key);
    let files = world.authority.issue(&world.address(a1).to_string());
    let at = SocketAddr::new(world.address(world.find("tor-a")), world::PORT).to_string();
    let (begun_tx, begun) = mpsc::channel();
    let (packets, end) = thread::scope(|scope| {
        let network = &world.networks[a1];
        let reader = scope.spawn(move || {
            network.run(move || {
                let certificates = world::certificates(files);
                world::runtime().block_on(async {
                    let agent = Agent::new(&at, &certificates).unwrap();
                    read(agent, key, PACKETS, begun_tx).await
                })
            })
        });
        begun.recv_timeout(PATIENCE).unwrap();
        flow::run(&mut [Flow::new(0, queue_pairs)], &mut world.endpoints);
        reader.join().unwrap()
    });
    assert_eq!((packets.len(), &*end), (PACKETS as usize, "packets"));
    let (answers, requests): (Vec<_>, Vec<_>) = packets.iter().partition(|packet| packet.is_answer);
    // The sender may repeat some; none is missing.
    let first = group.psn_first;
    let numbers: BTreeSet<u32> = requests
        .iter()
        .map(|packet| roce::Serial::new(packet.psn).minus(first.get()).get())
        .collect();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u32), "{numbers:?}");
    let port = |to| world::link(world.find("tor-a"), world.find(to));
    for request in &requests {
        assert_eq!((&request.port, &*request.decision), (&port("a1"), "copies"), "{request:?}");
        let copies: Vec<&str> = request.copies.iter().map(|copy| &*copy.port).collect();
        assert_eq!(copies, [port("a2"), port("spine")]);
    }
    assert_eq!(requests[0].operation, "SEND first");
    let members: BTreeSet<&str> = answers.iter().map(|answer| &*answer.source).collect();
    assert_eq!(members.len(), group.members.len(), "{answers:?}");
    assert!(answers.iter().any(|answer| answer.decision == "acks_forwarded"), "{answers:?}");
    assert!(answers.iter().any(|answer| answer.decision == "answers_suppressed"), "{answers:?}");

    // It ends with its time, and with its group.
    let timed = world.ask(a1, "tor-a", async move |agent| {
        let mut reports = agent.trace(key, 9, 1).await.unwrap();
        while let Some(report) = agent.next(&mut reports).await.unwrap() {
            if !report.end.is_empty() {
                return report.end;
            }
        }
        String::new()
    });
    assert_eq!(timed, "time");
    let removed = world.ask(a1, "tor-a", async move |agent| {
        let (begun, _kept) = mpsc::channel();
        let remover = agent.clone();
        let (read, removed) = tokio::join!(read(agent, key, 9, begun), async {
            // Whether before it has begun or after.
            tokio::time::sleep(Duration::from_millis(100)).await;
            remover.remove(&claim).await
        });
        assert!(removed.unwrap());
        read.1
    });
    assert_eq!(removed, "the group was removed");
}

#[test]
fn a_group_is_traced_for_one_caller_while_that_reads_and_wrong_requests_are_refused() {
    if !world::is_possible() {
        return;
    }
    let mut world = racks();
    let (group, _) = world.connect(0, &["a1", "a2", "b1"]);
    world.insert(&group, "tor-a").unwrap();
    let (a1, key) = (world.find("a1"), group.key);
    let refused = |key: GroupKey, packets, time_ms| -> ControlError {
        let ask = async move |agent: Agent| agent.trace(key, packets, time_ms).await.map(drop);
        world.ask(a1, "tor-a", ask).unwrap_err()
    };
    for (packets, time_ms, said) in [
        (0, 1000, "0 packets is not possible: 1 to 100000"),
        (TRACE_PACKETS_MAX + 1, 1000, "100001 packets"),
        (1, 0, "0 milliseconds"),
        (1, TRACE_TIME_MS_MAX + 1, "600001 milliseconds is not possible: 1 to 600000"),
    ] {
        let error = refused(key, packets, time_ms);
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(error.message.contains("switch tor-a") && error.message.contains(said), "{error}");
    }
    let error = refused(GroupKey { id: 1 << 24, ..key }, 1, 1000);
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    let error = refused(GroupKey { id: 7, ..key }, 1, 1000);
    assert_eq!(error.kind, ErrorKind::Unknown, "{error}");
    assert!(error.message.contains("10.4.0.3/0x7"), "{error}");

    let taken = world.ask(a1, "tor-a", async move |agent| {
        let mut reports = agent.trace(key, 1, TRACE_TIME_MS_MAX).await.unwrap();
        agent.next(&mut reports).await.unwrap();
        agent.trace(key, 1, 1000).await.map(drop).unwrap_err()
    });
    assert_eq!(taken.kind, ErrorKind::Limit, "{taken}");
    assert!(taken.message.contains("traced already"), "{taken}");
    // The caller has gone.
    let deadline = Instant::now() + PATIENCE;
    let again = async move |agent: Agent| agent.trace(key, 1, 1).await.map(drop);
    while let Err(error) = world.ask(a1, "tor-a", again) {
        assert_eq!(error.kind, ErrorKind::Limit, "{error}");
        assert!(Instant::now() < deadline, "{error}");
        thread::yield_now();
    }

    // As many as are possible at a time; the last trace may not have ended yet.
    let mut many = vec![key];
    for number in 1..8 {
        let (group, _) = world.connect(number, &["a1", "a2"]);
        world.insert(&group, "tor-a").unwrap();
        many.push(group.key);
    }
    let refused = world.ask(a1, "tor-a", async move |agent| {
        let mut all = Vec::new();
        for key in many {
            let reports = loop {
                match agent.trace(key, 1, TRACE_TIME_MS_MAX).await {
                    Err(error) if Instant::now() < deadline => {
                        assert_eq!(error.kind, ErrorKind::Limit)
                    }
                    reports => break reports.unwrap(),
                }
            };
            all.push(reports);
        }
        let one_more = GroupKey { id: 7, ..key };
        agent.trace(one_more, 1, 1000).await.map(|_| all.clear()).unwrap_err()
    });
    assert_eq!(refused.kind, ErrorKind::Limit, "{refused}");
    assert!(refused.message.contains("8 groups"), "{refused}");
}
