//! The descriptor of the event queue, for those who wait for it among others.

use std::{os::fd::OwnedFd, time::Duration};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use transport::{Completion, Transport, Watched};
use transport_tcp::TcpLink;

use crate::common::*;

fn is_readable(descriptor: &OwnedFd, wait: Duration) -> bool {
    let wait = Timespec::try_from(wait).unwrap();
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&wait)).unwrap() > 0
}

/// Else who waits for it would poll again and again for nothing.
#[test]
fn one_poll_takes_all_events_that_it_reports() {
    one_poll_takes_all_events(link_pair("127.0.0.1", 1).unwrap());
}

#[test]
fn one_poll_takes_all_events_of_memory_that_it_reports() {
    one_poll_takes_all_events(memory_pair(4096).unwrap());
}

fn one_poll_takes_all_events(links: (TcpLink, TcpLink)) {
    let (left, right) = links;
    let (mut here, mut there) = (transport(&patient()), transport(&patient()));
    let (_, peer) = (here.open(left).unwrap(), there.open(right).unwrap());
    let descriptor = here.watch().unwrap();
    let mut completions = Vec::new();
    for word in 0..3_u8 {
        while is_readable(&descriptor, Duration::ZERO) {
            here.poll(&mut completions, Duration::ZERO);
        }
        assert!(completions.is_empty(), "{completions:?}");
        there.write_control(peer, &[word]).unwrap();
        there.flush();
        assert!(is_readable(&descriptor, PATIENCE));
        here.poll(&mut completions, Duration::ZERO);
        assert!(!is_readable(&descriptor, Duration::ZERO), "of word {word}");
        // What was taken is not lost, whether it was reported by that poll or is by the next.
        while completions.is_empty() {
            assert!(here.next_tick().is_some());
            here.poll(&mut completions, Duration::ZERO);
        }
        let [Completion::Control { word: received, .. }] = &completions[..] else {
            panic!("{completions:?}");
        };
        assert_eq!(received[..], [word]);
        completions.clear();
    }
    let waker = here.waker();
    drop(here);
    assert!(!is_readable(&descriptor, Duration::ZERO));
    waker();
    assert!(is_readable(&descriptor, Duration::ZERO), "it outlives the transport");
}
