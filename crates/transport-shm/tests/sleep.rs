//! Ends that sleep whenever there is nothing to do.

use std::{
    thread,
    time::{Duration, Instant},
};

use transport::{Completion, Transport};
use transport_shm::ShmSettings;

use crate::common::{PATIENCE, links, pair::Exchange, settings, start};

/// Heartbeats would end a sleep out of which nobody wakes an end.
const NO_HEARTBEAT: Duration = Duration::from_secs(24 * 3600);

/// Exchanges at two ends on two threads, for a while.
fn exchange(settings: &ShmSettings) {
    let (near, far) = links();
    let until = Instant::now() + Duration::from_secs(1);
    let run = |link| {
        let mut exchange = Exchange::start(start(settings.clone()), link);
        while Instant::now() < until {
            let begin = Instant::now();
            let end = exchange.step(PATIENCE);
            assert!(begin.elapsed() < PATIENCE / 2, "it sleeps although there is news");
            if end.is_some() {
                break;
            }
        }
        exchange.received()
    };
    let received = thread::scope(|scope| {
        let ends = [near, far].map(|link| scope.spawn(move || run(link)));
        ends.map(|end| end.join().expect("no end has failed"))
    });
    assert!(received.iter().all(|&count| count > 10), "{received:?}");
}

#[test]
fn nobody_sleeps_through_news() {
    let sleepy = settings().spin(Duration::ZERO).silence_timeout(NO_HEARTBEAT);
    exchange(&sleepy);
}

/// Both wait for space again and again.
#[test]
fn nobody_sleeps_through_space() {
    let sleepy = settings().spin(Duration::ZERO).silence_timeout(NO_HEARTBEAT);
    exchange(&sleepy.ring_bytes(4096));
}

/// One end writes before it knows the other's segment, and so whether that sleeps.
#[test]
fn an_end_that_slept_before_it_was_known_is_woken() {
    let sleepy = settings().spin(Duration::ZERO).silence_timeout(NO_HEARTBEAT);
    let (near, far) = links();
    let (mut writer, mut sleeper) = (start(sleepy.clone()), start(sleepy));
    let to = writer.open(near).unwrap();
    sleeper.open(far).unwrap();
    let slept = thread::spawn(move || {
        let (begin, mut completions) = (Instant::now(), Vec::new());
        while completions.is_empty() && begin.elapsed() < PATIENCE {
            sleeper.poll(&mut completions, PATIENCE);
        }
        (begin.elapsed(), completions, sleeper)
    });
    // It sleeps by now, or this tests less.
    thread::sleep(Duration::from_millis(200));
    writer.write_control(to, b"word").unwrap();
    let mut completions = Vec::new();
    while !slept.is_finished() {
        writer.poll(&mut completions, Duration::from_millis(1));
    }
    let (time, completions, _sleeper) = slept.join().unwrap();
    assert!(matches!(&completions[..], [Completion::Control { .. }]), "{completions:?}");
    assert!(time < PATIENCE / 2, "it slept until its wait was over: {time:?}");
}
