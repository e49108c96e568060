//! Clauses about sends that the network starts by itself. Skipped, with a message, on networks that
//! cannot do this.

use transport::{Completion, EndpointId, PostError, Region, Token, Transport};

use crate::{
    ends::{assert_cancelled, exchange},
    harness::Harness,
    patterns::{assert_pattern, assert_poison, patterned, poisoned},
    rig::Rig,
};

const BYTES: usize = 70_000;

/// Members that have exchanged a block with each neighbour, so that all connections are set up;
/// `None` if this network cannot offload.
fn offloading_rig<H: Harness>(harness: &mut H, members: usize) -> Option<Rig<'_, H>> {
    let mut rig = Rig::new(harness, members);
    if rig.transport(0).triggered().is_none() {
        eprintln!("SKIPPED: this transport cannot offload");
        return None;
    }
    for member in 1..members {
        exchange(&mut rig, member - 1, member, 0);
        exchange(&mut rig, member, member - 1, 1);
    }
    Some(rig)
}

/// The middle one of three members posts its operations and does not poll: the block is relayed all
/// the same. Its completions are reported when it polls.
pub fn offloaded_sends_start_with_nobody_polling<H: Harness>(harness: &mut H) {
    const COUNT: usize = 8;
    let Some(mut rig) = offloading_rig(harness, 3) else { return };
    let place = |block: usize| block * BYTES..(block + 1) * BYTES;
    let source = patterned(3, COUNT * BYTES);
    let (middle, last) = (poisoned(COUNT * BYTES), poisoned(COUNT * BYTES));
    let blocks: Vec<_> = (0..COUNT)
        .map(|block| {
            let immediate = block as u32;
            let end = rig.offloaded_receive(2, 1, &last, place(block), immediate);
            let received = rig.offloaded_receive(1, 0, &middle, place(block), immediate);
            let after = [(rig.endpoint(1, 0), received)];
            let sent = rig.offloaded_send(1, 2, &middle, place(block), immediate, &after);
            (received, sent, end)
        })
        .collect();
    rig.set_polled(1, false);
    for block in 0..COUNT {
        rig.offloaded_send(0, 1, &source, place(block), block as u32, &[]);
    }
    rig.pump("blocks through a member that does not poll", |rig| {
        blocks.iter().all(|&(_, _, end)| rig.succeeded(2, end))
    });
    assert_pattern(&last, 0..COUNT * BYTES, 3);
    assert!(blocks.iter().all(|&(received, _, _)| rig.outcome(1, received).is_none()));
    rig.set_polled(1, true);
    rig.pump("what the member had not looked at", |rig| {
        blocks
            .iter()
            .all(|&(received, sent, _)| rig.succeeded(1, received) && rig.succeeded(1, sent))
    });
    for (block, &(received, _, _)) in blocks.iter().enumerate() {
        let expected = Completion::Received {
            endpoint: rig.endpoint(1, 0),
            token: received,
            bytes: BYTES as u64,
            immediate: block as u32,
        };
        assert_eq!(rig.outcome(1, received), Some(&expected));
    }
    assert!(middle.write(0..COUNT * BYTES).is_ok(), "all is reported, but a lease is out");
}

/// Blocks are assigned by their immediates even if they are sent in another order than their
/// receives were posted in, or if sends start in another order than they were posted in.
pub fn offloaded_blocks_match_by_their_immediates<H: Harness>(harness: &mut H) {
    const COUNT: usize = 6;
    let Some(mut rig) = offloading_rig(harness, 3) else { return };
    let bytes_of = |block: usize| 1_000 + 777 * block;
    let immediate_of = |block: usize| !(block as u32);
    let mut hops = Vec::new();
    for block in 0..COUNT {
        let (middle, last) = (poisoned(bytes_of(block)), poisoned(bytes_of(block)));
        let end = rig.offloaded_receive(2, 1, &last, 0..last.len(), immediate_of(block));
        let received = rig.offloaded_receive(1, 0, &middle, 0..middle.len(), immediate_of(block));
        let after = [(rig.endpoint(1, 0), received)];
        rig.offloaded_send(1, 2, &middle, 0..middle.len(), immediate_of(block), &after);
        hops.push((middle, last, received, end));
    }
    // Ordinary blocks on the same endpoints are independent of these.
    exchange(&mut rig, 0, 1, 2);
    for block in (0..COUNT).rev() {
        let source = patterned(block as u64, bytes_of(block));
        rig.offloaded_send(0, 1, &source, 0..source.len(), immediate_of(block), &[]);
        exchange(&mut rig, 1, 2, 3);
    }
    // The last member's completion may come before the middle one has polled.
    rig.pump("all blocks", |rig| {
        hops.iter()
            .all(|&(_, _, received, end)| rig.succeeded(1, received) && rig.succeeded(2, end))
    });
    for (block, (middle, last, ..)) in hops.iter().enumerate() {
        assert_pattern(middle, 0..middle.len(), block as u64);
        assert_pattern(last, 0..last.len(), block as u64);
    }
}

/// A block that is relayed to several members, and not before it was received.
pub fn several_offloaded_sends_follow_one_receive<H: Harness>(harness: &mut H) {
    let Some(mut rig) = offloading_rig(harness, 5) else { return };
    let middle = poisoned(BYTES);
    let received = rig.offloaded_receive(1, 0, &middle, 0..BYTES, 9);
    let after = [(rig.endpoint(1, 0), received)];
    let ends: Vec<_> = (2..5)
        .map(|member| {
            let into = poisoned(BYTES);
            let end = rig.offloaded_receive(member, 1, &into, 0..BYTES, 9);
            (member, rig.offloaded_send(1, member, &middle, 0..BYTES, 9, &after), end, into)
        })
        .collect();
    rig.pump_for(std::time::Duration::from_millis(50));
    assert!(ends.iter().all(|(_, _, _, into)| into.read(0..BYTES).is_err()), "sent too early");
    let source = patterned(4, BYTES);
    rig.offloaded_send(0, 1, &source, 0..BYTES, 9, &[]);
    rig.pump("three copies", |rig| {
        ends.iter()
            .all(|(member, sent, end, _)| rig.succeeded(1, *sent) && rig.succeeded(*member, *end))
    });
    ends.iter().for_each(|(_, _, _, into)| assert_pattern(into, 0..BYTES, 4));
}

/// Sends that are to follow each other do so, although the later ones have their blocks first.
pub fn offloaded_sends_follow_each_other<H: Harness>(harness: &mut H) {
    const COUNT: usize = 6;
    let Some(mut rig) = offloading_rig(harness, 3) else { return };
    let place = |block: usize| block * BYTES..(block + 1) * BYTES;
    let (middle, last) = (poisoned(COUNT * BYTES), poisoned(COUNT * BYTES));
    let (to_root, to_last) = (rig.endpoint(1, 0), rig.endpoint(1, 2));
    let (mut ends, mut before) = (Vec::new(), None);
    for block in 0..COUNT {
        let immediate = block as u32;
        ends.push(rig.offloaded_receive(2, 1, &last, place(block), immediate));
        let received = rig.offloaded_receive(1, 0, &middle, place(block), immediate);
        let after: Vec<_> = before.into_iter().chain([(to_root, received)]).collect();
        let sent = rig.offloaded_send(1, 2, &middle, place(block), immediate, &after);
        before = Some((to_last, sent));
    }
    rig.set_polled(1, false);
    let source = patterned(6, COUNT * BYTES);
    let first_sends: Vec<_> = (1..COUNT)
        .rev()
        .map(|block| rig.offloaded_send(0, 1, &source, place(block), block as u32, &[]))
        .collect();
    rig.pump("all blocks but the first", |rig| {
        first_sends.iter().all(|&token| rig.succeeded(0, token))
    });
    rig.pump_for(std::time::Duration::from_millis(50));
    assert!(ends.iter().all(|&end| rig.outcome(2, end).is_none()), "the first is not there yet");
    rig.offloaded_send(0, 1, &source, place(0), 0, &[]);
    rig.pump("all blocks", |rig| ends.iter().all(|&end| rig.succeeded(2, end)));
    assert_pattern(&last, 0..COUNT * BYTES, 6);
}

/// A send that waits for a block that was received already starts at once.
pub fn an_offloaded_send_after_a_receive_that_is_done<H: Harness>(harness: &mut H) {
    let Some(mut rig) = offloading_rig(harness, 3) else { return };
    let (source, middle, last) = (patterned(8, BYTES), poisoned(BYTES), poisoned(BYTES));
    let end = rig.offloaded_receive(2, 1, &last, 0..BYTES, 1);
    let received = rig.offloaded_receive(1, 0, &middle, 0..BYTES, 1);
    let sent = rig.offloaded_send(0, 1, &source, 0..BYTES, 1, &[]);
    // The receive can be named until the relay's next poll.
    rig.pump("the block at the relay", |rig| rig.succeeded(1, received));
    let after = [(rig.endpoint(1, 0), received)];
    rig.offloaded_send(1, 2, &middle, 0..BYTES, 1, &after);
    rig.pump("the block behind it", |rig| rig.succeeded(2, end) && rig.succeeded(0, sent));
    assert_pattern(&last, 0..BYTES, 8);
    // Long after the receive was reported it cannot be named any more.
    rig.pump_for(std::time::Duration::from_millis(20));
    let answer = rig.try_offloaded_send(1, 2, &middle, 0..BYTES, 2, &after);
    assert!(matches!(answer, Err(PostError::System(_))), "{answer:?}");
}

/// A receive whose connection ends is cancelled, and so are the sends that wait for it, directly or
/// indirectly; other endpoints are not affected.
pub fn a_cancelled_receive_cancels_its_offloaded_sends<H: Harness>(harness: &mut H) {
    let Some(mut rig) = offloading_rig(harness, 3) else { return };
    let (middle, last) = (poisoned(BYTES), poisoned(BYTES));
    let end = rig.offloaded_receive(2, 1, &last, 0..BYTES, 5);
    let other = poisoned(BYTES);
    rig.offloaded_receive(2, 1, &other, 0..BYTES, 7);
    let received = rig.offloaded_receive(1, 0, &middle, 0..BYTES, 5);
    let after = [(rig.endpoint(1, 0), received)];
    let sent = rig.offloaded_send(1, 2, &middle, 0..BYTES, 5, &after);
    let after_that = [(rig.endpoint(1, 2), sent)];
    let own = patterned(5, BYTES);
    let followed = rig.offloaded_send(1, 2, &own, 0..BYTES, 7, &after_that);
    rig.kill(0);
    rig.pump("the end of the receive and of what follows it", |rig| {
        [received, sent, followed].iter().all(|&token| rig.outcome(1, token).is_some())
    });
    assert_cancelled(&rig, 1, 0, received);
    assert_cancelled(&rig, 1, 2, sent);
    assert_cancelled(&rig, 1, 2, followed);
    assert!(middle.write(0..BYTES).is_ok(), "cancelled, but a lease is out");
    let late = rig.try_offloaded_send(1, 2, &middle, 0..BYTES, 6, &after);
    if let Ok(late) = late {
        rig.pump("a send after a cancelled receive", |rig| rig.outcome(1, late).is_some());
        assert_cancelled(&rig, 1, 2, late);
    }
    exchange(&mut rig, 1, 2, 7);
    assert_eq!(rig.outcome(2, end), None);
    assert_poison_later(&mut rig, &last);
}

/// Returns the memory of a receive that is still open, once its member has closed the connection.
fn assert_poison_later<H: Harness>(rig: &mut Rig<'_, H>, last: &Region) {
    rig.close(2, 1);
    rig.pump("the close", |rig| rig.end(2, 1).is_some());
    assert_poison(last, 0..last.len());
}

/// A close hands back offloaded receives and sends, including waiting ones; endpoints to other
/// members are not affected.
pub fn a_close_cancels_what_is_offloaded<H: Harness>(harness: &mut H) {
    let Some(mut rig) = offloading_rig(harness, 3) else { return };
    let (source, middle) = (patterned(2, BYTES), poisoned(2 * BYTES));
    let last = poisoned(BYTES);
    rig.offloaded_receive(2, 1, &last, 0..BYTES, 0);
    let first = rig.offloaded_receive(1, 0, &middle, 0..BYTES, 0);
    let second = rig.offloaded_receive(1, 0, &middle, BYTES..2 * BYTES, 1);
    let after = [(rig.endpoint(1, 0), first)];
    let sent = rig.offloaded_send(1, 2, &middle, 0..BYTES, 0, &after);
    rig.close(1, 2);
    rig.pump("the close", |rig| rig.end(1, 2).is_some());
    assert_cancelled(&rig, 1, 2, sent);
    rig.offloaded_send(0, 1, &source, 0..BYTES, 0, &[]);
    rig.pump("a block over another endpoint", |rig| rig.succeeded(1, first));
    assert_pattern(&middle, 0..BYTES, 2);
    rig.close(1, 0);
    rig.pump("the other close", |rig| rig.end(1, 0).is_some());
    assert_cancelled(&rig, 1, 0, second);
    assert!(middle.write(0..2 * BYTES).is_ok(), "closed, but a lease is out");
    let answer = rig.try_offloaded_send(1, 0, &middle, 0..BYTES, 3, &[]);
    assert!(matches!(answer, Err(PostError::EndpointGone(_))), "{answer:?}");
}

/// Dropping the transport hands back offloaded memory at once.
pub fn a_dropped_transport_hands_back_offloaded_memory<H: Harness>(harness: &mut H) {
    let Some(mut rig) = offloading_rig(harness, 3) else { return };
    let middle = poisoned(BYTES);
    let received = rig.offloaded_receive(1, 0, &middle, 0..BYTES, 0);
    let after = [(rig.endpoint(1, 0), received)];
    rig.offloaded_send(1, 2, &middle, 0..BYTES, 0, &after);
    rig.kill(1);
    assert!(middle.write(0..BYTES).is_ok(), "dropped, but a lease is out");
}

/// An immediate identifies one open receive of an endpoint; a receive that was not posted starts no
/// send.
pub fn offloaded_posts_that_make_no_sense_are_refused<H: Harness>(harness: &mut H) {
    let Some(mut rig) = offloading_rig(harness, 2) else { return };
    let memory = poisoned(2 * BYTES);
    rig.offloaded_receive(1, 0, &memory, 0..BYTES, 5);
    let answer = rig.try_offloaded_receive(1, 0, &memory, BYTES..2 * BYTES, 5);
    assert!(matches!(answer, Err(PostError::System(_))), "{answer:?}");
    let nobody = [(EndpointId(u64::MAX), Token(1))];
    let source = patterned(1, BYTES);
    let answer = rig.try_offloaded_send(0, 1, &source, 0..BYTES, 5, &nobody);
    assert!(matches!(answer, Err(PostError::System(_))), "{answer:?}");
}
