//! Processes that are killed or stopped at any instruction while they exchange blocks, words and writes: their peer reports it
//! in time, with all that was reported to it before in place, and its other links go on.

use std::{
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use transport::Cause;
use transport_shm::{Offer, ShmLink};

use crate::common::{PATIENCE, links, pair::Exchange, settings, start};

/// The offer that a started process connects to.
const OFFER: &str = "RDMC_TEST_SHM_OFFER";
/// How often a process is killed.
const KILLS: u64 = 80;

/// A process of this program, killed when it is dropped.
struct Process(Child);

impl Process {
    fn start(offer: &Offer) -> Self {
        let text: String = offer.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let child = Command::new("/proc/self/exe")
            .args(["killed::member", "--exact", "--nocapture", "--test-threads=1"])
            .env(OFFER, text)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("this program runs");
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it lives");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: the main function of a process that exchanges until its peer has ended.
#[test]
fn member() {
    let Ok(text) = std::env::var(OFFER) else { return };
    let digits: Vec<u8> = text.bytes().collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let offer: Vec<u8> = digits.chunks(2).map(byte).collect();
    let link = ShmLink::connect(&offer).expect("it listens");
    let mut exchange = Exchange::start(start(settings()), link);
    while exchange.step(Duration::from_millis(10)).is_none() {}
}

/// Starts a process and returns it once it has exchanged something.
fn exchanging() -> (Process, Exchange) {
    let offer = Offer::make().expect("a name is free");
    let process = Process::start(&offer);
    let link = offer.accept(PATIENCE).expect("it connects");
    let mut exchange = Exchange::start(start(settings()), link);
    let deadline = Instant::now() + PATIENCE;
    while exchange.received() < 4 {
        assert!(Instant::now() < deadline, "nothing is exchanged");
        assert_eq!(exchange.step(Duration::from_millis(1)), None);
    }
    (process, exchange)
}

/// Exchanges until the end, which has to come within a time. Returns its cause.
fn end_of(exchange: &mut Exchange, within: Duration) -> Cause {
    let deadline = Instant::now() + within;
    loop {
        if let Some(cause) = exchange.step(Duration::from_millis(1)) {
            return cause;
        }
        assert!(Instant::now() < deadline, "the end is not reported");
    }
}

#[test]
fn a_killed_process_harms_nobody() {
    let (near, far) = links();
    let mut bystanders = [near, far].map(|link| Exchange::start(start(settings()), link));
    for number in 0..KILLS {
        let (process, mut exchange) = exchanging();
        // Spread over one turn of the exchange and a few.
        let pause = Duration::from_nanos(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 3_000_000);
        let until = Instant::now() + pause;
        let killer = thread::spawn(move || {
            thread::sleep(until.saturating_duration_since(Instant::now()));
            process.signal(Signal::KILL);
            process
        });
        // Half of them while this end moves bytes, too, the others while it does not.
        if number % 2 == 0 {
            while Instant::now() < until {
                assert!(!matches!(exchange.step(Duration::ZERO), Some(Cause::Protocol(_))));
            }
        }
        let process = killer.join().unwrap();
        let cause = end_of(&mut exchange, PATIENCE / 2);
        assert!(matches!(cause, Cause::Lost(_)), "{cause}");
        drop(process);
        let received = bystanders[0].received();
        let deadline = Instant::now() + PATIENCE;
        while bystanders[0].received() < received + 2 {
            assert!(Instant::now() < deadline, "another link does not go on");
            for bystander in &mut bystanders {
                assert_eq!(bystander.step(Duration::ZERO), None);
            }
        }
    }
}

#[test]
fn a_stopped_process_is_silent() {
    let (process, mut exchange) = exchanging();
    process.signal(Signal::STOP);
    let cause = end_of(&mut exchange, settings().silence_timeout + Duration::from_secs(5));
    assert!(matches!(cause, Cause::Silent(_)), "{cause}");
}
