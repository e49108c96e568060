//! Clauses about delays of a member, and the end of waits.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use transport::{Completion, Transport};

use crate::{
    ends::exchange,
    harness::Harness,
    patterns::{assert_pattern, patterned, poisoned, poisoned_for_peers},
    rig::Rig,
};

/// A call that does not wait ends before this, also in an emulated machine that is busy with other tests; one that is held up
/// lasts for [`LONG`], or for ever.
const AT_ONCE: Duration = Duration::from_secs(45);

/// No wait should take this long.
const LONG: Duration = Duration::from_secs(90);

/// Back-pressure is limited to one endpoint: traffic to a member that does not poll waits, and all
/// other traffic of the same sender continues; once the member polls, it receives everything.
pub fn a_member_that_does_not_poll_delays_nobody<H: Harness>(harness: &mut H) {
    const COUNT: usize = 8;
    const BYTES: usize = 4 << 20;
    let mut rig = Rig::new(harness, 3);
    rig.set_polled(2, false);
    let source = patterned(6, BYTES);
    let into = poisoned(COUNT * BYTES);
    let place = |block: usize| block * BYTES..(block + 1) * BYTES;
    let receives: Vec<_> = (0..COUNT).map(|block| rig.receive(2, 0, &into, place(block))).collect();
    for _ in 0..COUNT {
        rig.send_shared(0, 2, &source, 0);
    }
    for round in 0..50 {
        exchange(&mut rig, 0, 1, round);
        exchange(&mut rig, 1, 0, round);
        let start = rig.now();
        rig.poll(0, Duration::ZERO);
        assert!(rig.now() - start < AT_ONCE, "the sender is held up");
    }
    rig.set_polled(2, true);
    rig.pump("the blocks that waited", |rig| receives.iter().all(|&token| rig.succeeded(2, token)));
    (0..COUNT).for_each(|block| assert_pattern(&into, place(block), 6));
}

/// Without a wait, `poll` returns at once, whatever is posted.
pub fn a_poll_without_wait_returns<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    let into = poisoned(10);
    rig.receive(0, 1, &into, 0..10);
    let start = Instant::now();
    for _ in 0..100 {
        assert_eq!(rig.poll(0, Duration::ZERO), 0);
    }
    assert!(start.elapsed() < AT_ONCE, "100 polls took {:?}", start.elapsed());
}

/// A wait without any event ends close to its timeout.
pub fn a_wait_ends_by_itself<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    let start = rig.now();
    for _ in 0..3 {
        assert_eq!(rig.poll(0, Duration::from_millis(20)), 0);
    }
    assert!(rig.now() - start < AT_ONCE, "60 ms took {:?}", rig.now() - start);
}

/// Completions that the caller has not yet removed from its list stay there.
pub fn completions_are_appended<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    rig.write(1, 0, b"word");
    let deadline = rig.now() + LONG;
    let mine = Completion::Closed { endpoint: rig.endpoint(0, 1) };
    let mut completions = vec![mine.clone()];
    while completions.len() < 2 {
        assert!(rig.now() < deadline, "the word does not come");
        rig.poll(1, Duration::ZERO);
        rig.transport(0).poll(&mut completions, Duration::from_millis(1));
    }
    let endpoint = rig.endpoint(0, 1);
    assert_eq!(completions, [mine, Completion::Control { endpoint, word: b"word".into() }]);
}

/// What was flushed arrives although its sender polls no more: control words, and writes where there are some.
pub fn what_was_flushed_needs_no_poll<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    let can_write = rig.transport(0).one_sided().is_some() && rig.harness().flushes_writes();
    let exposed = poisoned_for_peers(20);
    if can_write {
        rig.expose(1, 0, 0, &exposed);
        rig.write_to(0, 1, &patterned(1, 10), 0, 0, 1);
    }
    // Connected, and the memory is known to the peer.
    exchange(&mut rig, 0, 1, 2);
    rig.pump("the first write", |rig| !can_write || rig.written(1, 0) == [1]);
    rig.write(0, 1, b"word");
    if can_write {
        rig.write_to(0, 1, &patterned(3, 10), 0, 10, 2);
    }
    rig.transport(0).flush();
    rig.set_polled(0, false);
    rig.pump("what was flushed", |rig| {
        rig.words(1, 0) == [b"word"] && (!can_write || rig.written(1, 0) == [1, 2])
    });
    if can_write {
        assert_pattern(&exposed, 10..20, 3);
    }
}

/// Another thread ends a long wait.
pub fn the_waker_ends_a_wait<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    if !rig.harness().has_real_time() {
        return;
    }
    let waker = rig.transport(0).waker();
    let start = Instant::now();
    let other = thread::spawn({
        let waker = Arc::clone(&waker);
        move || {
            thread::sleep(Duration::from_millis(100));
            waker();
        }
    });
    // A poll may return early with nothing, so only the last of a few has to be ended by the waker.
    while start.elapsed() < Duration::from_millis(100) {
        rig.poll(0, LONG);
    }
    assert!(start.elapsed() < AT_ONCE, "woken after {:?}", start.elapsed());
    assert!(other.join().is_ok());
}

/// A use of the waker between two polls takes effect on the next: otherwise a caller that checks
/// for work and then waits could miss an event in between.
pub fn a_wake_before_the_wait_counts<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    let waker = rig.transport(0).waker();
    for _ in 0..3 {
        waker();
        waker();
        let start = rig.now();
        rig.poll(0, LONG);
        assert!(rig.now() - start < AT_ONCE, "woken after {:?}", rig.now() - start);
    }
    // A waker can be used after its transport was dropped, as other threads may do.
    drop(rig);
    waker();
}
