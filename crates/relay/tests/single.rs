//! One relay, event by event.

use relay::{Action, Obstacle, Part, ReceiveId, Relay, RelayError, SendId, Settings, Wait, Window};
use schedule::{Algorithm, Schedule};

fn relay_of(rank: u32, members: u32) -> Relay {
    let schedule = Schedule::new(Algorithm::BinomialPipeline, members, 0).unwrap();
    let window = Window { receives: 2, sends: 2 };
    Relay::new(Settings {
        schedule,
        rank,
        block_bytes: 10,
        window,
        messages_in_flight: 2,
        offload: None,
    })
    .unwrap()
}

fn actions(relay: &mut Relay) -> Vec<Action> {
    std::iter::from_fn(|| relay.poll_action()).collect()
}

/// The root's first send waits for a credit of its target, and the target of its second has granted one.
#[test]
fn sends_keep_the_schedules_order_with_a_window_of_one() {
    for (sends, overtakes) in [(1, false), (2, true)] {
        let schedule = Schedule::new(Algorithm::BinomialPipeline, 4, 0).unwrap();
        let [first, second] = [0, 1].map(|step| schedule.next_send(0, step, 8).unwrap());
        assert_ne!(first.target, second.target);
        let mut relay = Relay::new(Settings {
            schedule,
            rank: 0,
            block_bytes: 10,
            window: Window { receives: 1, sends },
            messages_in_flight: 1,
            offload: None,
        })
        .unwrap();
        relay.send(0, 80).unwrap();
        relay.granted(second.target, 1).unwrap();
        let targets = |relay: &mut Relay| -> Vec<u32> {
            let sends = actions(relay).into_iter().filter_map(|action| match action {
                Action::PostSend { target, .. } => Some(target),
                _ => None,
            });
            sends.collect()
        };
        let overtaking = if overtakes { vec![second.target] } else { Vec::new() };
        assert_eq!(targets(&mut relay), overtaking, "window of {sends}");
        relay.granted(first.target, 1).unwrap();
        assert_eq!(targets(&mut relay), [first.target], "window of {sends}");
    }
}

#[test]
fn the_first_receive_is_posted_before_anything_is_known() {
    let mut relay = relay_of(2, 4);
    assert!(matches!(actions(&mut relay)[..], [Action::PostFirst { source: 0, .. }]));
}

#[test]
fn memory_that_is_known_in_time_saves_the_copy() {
    let mut relay = relay_of(1, 2);
    let [Action::PostFirst { id: first, .. }] = actions(&mut relay)[..] else { panic!() };
    relay.announced(0, 4, 35).unwrap();
    relay.announced(0, 9, 5).unwrap();
    relay.accepted(4).unwrap();
    relay.accepted(9).unwrap();
    let mut done = actions(&mut relay);
    relay.received(first, 10, 0).unwrap();
    done.extend(actions(&mut relay));
    assert!(done.iter().any(|action| matches!(action, Action::PlaceFirst { message: 4, .. })));
    relay.placed(first).unwrap();
    done.extend(actions(&mut relay));
    // Two blocks free the slots for the last of message 4 and the only one of message 9.
    for action in done {
        if let Action::PostReceive { id, offset, bytes, .. } = action {
            relay.received(id, bytes, (offset / 10) as u32).unwrap();
        }
    }
    let posted = actions(&mut relay);
    assert!(posted.iter().any(|action| matches!(action, Action::PostReceive { message: 9, .. })));
}

#[test]
fn a_block_that_arrives_before_its_announcement_waits_for_it() {
    let mut relay = relay_of(1, 2);
    let [Action::PostFirst { id, .. }] = actions(&mut relay)[..] else { panic!() };
    relay.received(id, 10, 0).unwrap();
    assert!(actions(&mut relay).is_empty());
    relay.announced(0, 0, 12).unwrap();
    assert_eq!(actions(&mut relay), [Action::Incoming { message: 0, bytes: 12 }]);
    relay.accepted(0).unwrap();
    let placed = Action::PlaceFirst { id, message: 0, offset: 0, bytes: 10 };
    assert_eq!(actions(&mut relay)[0], placed);
    let ready = Action::BlockReady { message: 0, block: 0, offset: 0, bytes: 10 };
    relay.placed(id).unwrap();
    assert_eq!(actions(&mut relay)[0], ready);
    assert!(relay.placed(id).is_err(), "it is in its place");
}

#[test]
fn a_relay_reports_why_it_sends_nothing() {
    let mut relay = relay_of(1, 4);
    let [Action::PostFirst { id, .. }] = actions(&mut relay)[..] else { panic!() };
    assert_eq!(relay.sends_wait_for(), None, "nothing is known to be sent");
    relay.announced(0, 6, 30).unwrap();
    let waits_for = |relay: &Relay| match relay.sends_wait_for().unwrap() {
        Wait::Block { source, part } => ("block", source, part.unwrap().transfer.block),
        Wait::Credit(Part { transfer, .. }) => ("credit", transfer.target, transfer.block),
        Wait::Memory { .. } => ("memory", 1, 0),
        Wait::Send(Part { transfer, .. }) => ("send", transfer.target, transfer.block),
    };
    assert_eq!(waits_for(&relay), ("block", 0, 0));
    relay.received(id, 10, 0).unwrap();
    assert_eq!(waits_for(&relay), ("memory", 1, 0));
    relay.accepted(6).unwrap();
    relay.placed(id).unwrap();
    assert_eq!(waits_for(&relay), ("credit", 3, 0));
    relay.granted(3, 1).unwrap();
    let posted = actions(&mut relay);
    let send = posted.iter().find_map(|action| match action {
        Action::PostSend { id, block: 0, .. } => Some(*id),
        _ => None,
    });
    let send = send.expect("block 0 is sent");
    assert_eq!(relay.open_send(send).map(|it| (it.message, it.transfer.target)), Some((6, 3)));
    assert_eq!(relay.sends_wait_for(), None, "something is being sent");
    relay.sent(send).unwrap();
    assert_eq!(relay.open_send(send), None);
    assert_eq!(waits_for(&relay).0, "block");
}

/// Receives of member 1 of a chain of three, the first of which is the standing one.
fn middle_of_a_chain(window: u32) -> (Relay, Vec<ReceiveId>) {
    let schedule = Schedule::new(Algorithm::Chain, 3, 0).unwrap();
    let window = Window { receives: window, sends: window };
    let settings = Settings {
        schedule,
        rank: 1,
        block_bytes: 10,
        window,
        messages_in_flight: 1,
        offload: None,
    };
    let mut relay = Relay::new(settings).unwrap();
    relay.announced(0, 0, 30).unwrap();
    relay.accepted(0).unwrap();
    relay.granted(2, 3).unwrap();
    let posted = actions(&mut relay).into_iter().filter_map(|action| match action {
        Action::PostFirst { id, .. } | Action::PostReceive { id, .. } => Some(id),
        _ => None,
    });
    let posted = posted.collect();
    (relay, posted)
}

#[test]
fn a_block_is_sent_on_from_the_receive_that_brings_it() {
    let (mut relay, receives) = middle_of_a_chain(2);
    relay.arriving(receives[0], 0).unwrap();
    let follows = |action: &Action| match action {
        Action::PostSend { target: 2, after, block, bytes: 10, .. } => Some(((*after)?, *block)),
        _ => None,
    };
    let posted = actions(&mut relay);
    assert_eq!(posted.iter().find_map(follows), Some((receives[0], 0)));
    assert_eq!(relay.obstacle(), Some(Obstacle::ReceiveBlocked(0)), "the source is waited for");
    assert!(relay.arriving(receives[0], 0).is_err(), "reported twice");
    relay.received(receives[0], 10, 0).unwrap();
    assert_eq!(relay.obstacle(), Some(Obstacle::SendBlocked(2)));
    // The next block has arrived as a whole: it is sent from the message's memory.
    relay.received(receives[1], 10, 1).unwrap();
    let posted = actions(&mut relay);
    assert!(
        posted
            .iter()
            .any(|action| matches!(action, Action::PostSend { block: 1, after: None, .. }))
    );
    assert!(posted.iter().all(|action| follows(action).is_none()));
}

#[test]
fn a_wrong_block_is_not_sent_on() {
    let (mut relay, receives) = middle_of_a_chain(2);
    let refused = relay.arriving(receives[1], 2).unwrap_err();
    assert!(matches!(&refused, RelayError::Peer { member: 0, what } if what.contains("block 2")));
    assert!(actions(&mut relay).is_empty());
}

#[test]
fn peers_that_break_the_protocol_are_named() {
    let peer = |result: Result<(), RelayError>| match result {
        Err(RelayError::Peer { member, what }) => (member, what),
        other => panic!("{other:?}"),
    };
    let mut relay = relay_of(3, 4);
    let [Action::PostFirst { source, id }] = actions(&mut relay)[..] else { panic!() };
    let announcer = source;
    assert_eq!(peer(relay.announced(0, 0, 5)).0, 0, "not its announcer");
    assert!(peer(relay.announced(announcer, 0, u64::MAX)).1.contains("use larger blocks"));
    assert_eq!(peer(relay.granted(0, 1)).0, 0, "not a neighbour");
    assert_eq!(peer(relay.granted(announcer, u32::MAX)).0, announcer, "more than any window");
    assert!(relay.received(ReceiveId(99), 1, 0).is_err());
    assert!(relay.sent(SendId(99)).is_err());
    assert!(relay.accepted(0).is_err());
    assert!(matches!(relay.send(0, 1), Err(RelayError::NotRoot { root: 0, rank: 3 })));
    relay.announced(announcer, 4, 25).unwrap();
    for number in [0, 4, u64::MAX] {
        assert!(peer(relay.announced(announcer, number, 5)).1.contains("out of order"), "{number}");
    }
    let refused = peer(relay.received(id, 10, 2)).1;
    assert!(refused.contains("sent block 2 of 10 bytes where step 1 of message 4"), "{refused}");
}

#[test]
fn too_many_announcements_are_refused() {
    let mut relay = relay_of(1, 2);
    let refused = (0..100).find_map(|message| relay.announced(0, message, 5).err());
    assert!(matches!(refused, Some(RelayError::Peer { member: 0, .. })));
}

fn offloading_relay_of(rank: u32, in_flight: u32) -> Relay {
    Relay::new(Settings {
        schedule: Schedule::new(Algorithm::Chain, 3, 0).unwrap(),
        rank,
        block_bytes: 10,
        window: Window { receives: 2, sends: 2 },
        messages_in_flight: in_flight,
        offload: Some(4_096),
    })
    .unwrap()
}

#[test]
fn with_offload_a_message_is_posted_at_once() {
    let mut relay = offloading_relay_of(1, 2);
    assert!(actions(&mut relay).is_empty(), "no standing receive");
    relay.granted(2, 3).unwrap();
    relay.announced(0, 0, 25).unwrap();
    relay.accepted(0).unwrap();
    let (mut receives, mut sends, mut grants) = (Vec::new(), Vec::new(), 0);
    let mut ids = Vec::new();
    for action in actions(&mut relay) {
        match action {
            Action::PostOffloadedReceive { source: 0, id, immediate, .. } => {
                receives.push((immediate, Some((0, id))));
            }
            Action::PostOffloadedSend {
                target: 2,
                id,
                immediate,
                after_receive,
                after_send,
                ..
            } => {
                sends.push((immediate, after_receive));
                ids.push((after_send, id));
            }
            Action::Grant { source: 0, count: 3 } => grants += 1,
            _ => {}
        }
    }
    assert_eq!(grants, 1);
    assert_eq!(receives.len(), 3);
    assert_eq!(sends, receives, "each send follows the receive of its block");
    let [(None, first), (None, _), (Some((2, before)), _)] = ids[..] else { panic!("{ids:?}") };
    assert_eq!(before, first, "two run at once");
}

#[test]
fn offload_limits_blocks_by_the_bits_left_in_immediates() {
    for (in_flight, bits) in [(1, 0), (2, 1), (3, 2), (1 << 16, 16)] {
        let mut relay = offloading_relay_of(0, in_flight);
        let blocks_max = (1_u64 << (32 - bits)).min(u64::from(u32::MAX));
        assert!(relay.send(0, blocks_max * 10).is_ok(), "{in_flight} in flight");
        assert!(relay.send(1, blocks_max * 10 + 1).is_err(), "{in_flight} in flight");
    }
    let mut relay = offloading_relay_of(0, 3);
    let refused = relay.send(0, (1 << 30) * 10 + 1).unwrap_err();
    assert!(matches!(refused, RelayError::TooManyOffloaded { .. }), "{refused}");
}

#[test]
fn windows_hold_half_a_megabyte_and_blocks_for_every_partner() {
    let blocks = |members| move |block_bytes| Window::for_group(block_bytes, members).receives;
    let lengths = [1, 8 << 10, 16 << 10, 64 << 10, 1 << 20, 1 << 31];
    for members in [0, 1, 2, 3, 4] {
        assert_eq!(lengths.map(blocks(members)), [64, 64, 32, 8, 8, 8]);
    }
    assert_eq!(lengths.map(blocks(16)), [64, 64, 32, 16, 16, 16]);
    assert_eq!(lengths.map(blocks(u32::MAX)), [64; 6]);
    assert_eq!(Window::for_group(64 << 10, 4), Window::default());
}
