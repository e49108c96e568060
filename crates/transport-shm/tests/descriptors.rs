//! A process that has no file descriptors left.

use std::{
    fs::File,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::{Resource, getrlimit, setrlimit};
use transport::{Cause, Completion, Transport};
use transport_shm::{Offer, ShmLink, ShmTransport};

use crate::common::{PATIENCE, settings, start};

/// Set in a process whose descriptors a test may take.
const OWN_PROCESS: &str = "RDMC_TEST_SHM_DESCRIPTORS";
/// More than a test needs, and soon taken.
const DESCRIPTORS_MAX: u64 = 300;

/// Runs a test in a process of its own.
fn in_own_process(name: &str, test: fn()) {
    if std::env::var_os(OWN_PROCESS).is_some() {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = Some(DESCRIPTORS_MAX);
        setrlimit(Resource::Nofile, limit).unwrap();
        return test();
    }
    let output = Command::new("/proc/self/exe")
        .args([&format!("descriptors::{name}"), "--exact", "--test-threads=1"])
        .env(OWN_PROCESS, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Takes all descriptors that are left, until they are dropped.
fn take_all() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// Polls until there is something to report of the link, and returns that.
fn report(member: &mut ShmTransport) -> Completion {
    let deadline = Instant::now() + PATIENCE;
    let mut completions = Vec::new();
    while completions.is_empty() {
        assert!(Instant::now() < deadline, "nothing is reported");
        member.poll(&mut completions, Duration::from_millis(1));
    }
    completions.remove(0)
}

#[test]
fn what_both_ends_have_agreed_on_needs_no_more_of_them() {
    in_own_process("what_both_ends_have_agreed_on_needs_no_more_of_them", || {
        let (mut near, mut far) = (start(settings()), start(settings()));
        let offer = Offer::make().unwrap();
        let link = ShmLink::connect(offer.bytes()).unwrap();
        let _taken = take_all();
        near.open(offer.accept(PATIENCE).unwrap()).unwrap();
        let other = far.open(link).unwrap();
        far.write_control(other, b"word").unwrap();
        far.poll(&mut Vec::new(), Duration::ZERO);
        let report = report(&mut near);
        assert!(matches!(report, Completion::Control { .. }), "{report:?}");
    });
}

#[test]
fn an_end_that_cannot_make_a_segment_makes_no_link() {
    in_own_process("an_end_that_cannot_make_a_segment_makes_no_link", || {
        let offer = Offer::make().unwrap();
        let mut taken = take_all();
        for free in 0..2 {
            assert!(Offer::make().is_err() && ShmLink::connect(offer.bytes()).is_err(), "{free}");
            taken.pop();
        }
        ShmLink::connect(offer.bytes()).unwrap();
        taken.clear();
        offer.accept(PATIENCE).expect("one has connected");
    });
}

/// Descriptors that were free when the link was made have been taken since.
#[test]
fn an_end_that_cannot_map_the_peers_segment_says_what_it_lacks() {
    in_own_process("an_end_that_cannot_map_the_peers_segment_says_what_it_lacks", || {
        let (mut near, mut far) = (start(settings()), start(settings()));
        let offer = Offer::make().unwrap();
        let link = ShmLink::connect(offer.bytes()).unwrap();
        let accepted = offer.accept(PATIENCE).unwrap();
        near.open(accepted).unwrap();
        far.open(link).unwrap();
        let taken = take_all();
        let Completion::Broken { cause, .. } = report(&mut near) else { panic!() };
        assert!(matches!(cause, Cause::Memory { .. }), "{cause}");
        assert!(cause.to_string().contains("ulimit -n"), "{cause}");
        drop(taken);
        let Completion::Broken { cause, .. } = report(&mut far) else { panic!() };
        assert!(matches!(cause, Cause::Lost(_)), "{cause}");
    });
}
