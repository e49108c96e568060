//! What a one-sided write and a block cost between two processes of this machine, beside what memory costs: a cache line that
//! both poll (release stores and acquire loads of a word), a copy, and `process_vm_readv`. All in one run; medians of batches.
//!
//! Two free processors are needed: `./dev bench shm`.

use std::{
    fs::File,
    hint::spin_loop,
    io::IoSliceMut,
    os::fd::{AsRawFd, OwnedFd},
    process::{Child, Command},
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_setaffinity};
use transport::{
    Completion, EndpointId, FileAccess, OneSidedWrites, PeerMemory, ProcessRange, ReadLease,
    Region, Token, Transport, check_unprivileged, copy_from_process,
};
use transport_shm::{Offer, ShmLink, ShmSettings, ShmTransport};

const PATIENCE: Duration = Duration::from_secs(60);
const BATCHES: usize = 301;
/// How often all is measured, one after the other: what a cache line costs depends on where the host runs the processors.
const ROUNDS: usize = 7;
/// Round trips of a batch: shorter than a time slice, so that most batches are not interrupted.
const TRIPS: u64 = 200;
const LONG_BYTES: usize = 16 << 20;
/// Copies of [`LONG_BYTES`] of each kind; the first ones touch the pages.
const COPIES: usize = 25;
const WARM_UP: usize = 5;
/// Keys of exposed memory.
const PING: u32 = 1;
const LONG: u32 = 2;
/// The positions of the two lines that processes poll, and the length of their memory.
const LINES: [usize; 2] = [0, 256];
const LINES_BYTES: usize = 512;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().position(|argument| argument == "--peer") {
        Some(at) => peer(&arguments[at + 1], &arguments[at + 2]),
        None => measure(),
    }
}

/// Stays on one processor, if there is one of this number.
fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    let _ = sched_setaffinity(None, &set);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the median time of one way in ns, of batches of round trips.
fn trips(mut trip: impl FnMut(u64)) -> f64 {
    let mut number = 0;
    let mut batch = || {
        let begin = Instant::now();
        for _ in 0..TRIPS {
            number += 1;
            trip(number);
        }
        begin.elapsed().as_secs_f64() * 1e9 / TRIPS as f64 / 2.0
    };
    median((0..BATCHES).map(|_| batch()).collect())
}

/// Prints the medians of times, and of how often they are those of the first kind.
fn print_trips(names: &[&str], rounds: &[Vec<f64>]) {
    for (index, name) in names.iter().enumerate() {
        let one_way_ns = median(rounds.iter().map(|round| round[index]).collect());
        let of_first = median(rounds.iter().map(|round| round[index] / round[0]).collect());
        println!("{name:<58} {one_way_ns:8.1} ns {of_first:8.2}");
    }
}

/// As [`trips`], at the other end.
fn answer(mut answer: impl FnMut(u64)) {
    (1..=TRIPS * BATCHES as u64).for_each(&mut answer);
}

/// Prints the median rate of copies, and returns it.
fn copies(name: &str, mut copy: impl FnMut()) -> f64 {
    let mut rate = || {
        let begin = Instant::now();
        copy();
        LONG_BYTES as f64 / begin.elapsed().as_secs_f64() / 1e9
    };
    let rates: Vec<f64> = (0..COPIES).map(|_| rate()).skip(WARM_UP).collect();
    let rate = median(rates);
    println!("{name:<58} {rate:8.2} GB/s");
    rate
}

/// One end, and its memory.
struct End {
    transport: ShmTransport,
    endpoint: EndpointId,
    ping: PeerMemory,
    open: usize,
    /// What was reported and not waited for yet.
    words: usize,
    writes: usize,
    blocks: usize,
    completions: Vec<Completion>,
}

impl End {
    fn start(link: ShmLink) -> Self {
        let mut transport = ShmTransport::new(ShmSettings::default()).expect("it starts");
        let endpoint = transport.open(link).expect("it opens");
        let ping = PeerMemory::zeroed(LINES_BYTES);
        transport.expose(endpoint, PING, ping.clone()).expect("it is new");
        transport.expose(endpoint, LONG, PeerMemory::zeroed(LONG_BYTES)).expect("it is new");
        let mut end = Self {
            transport,
            endpoint,
            ping,
            open: 0,
            words: 0,
            writes: 0,
            blocks: 0,
            completions: Vec::new(),
        };
        end.meet();
        end
    }

    /// Polls until there is enough of something.
    fn poll_until(&mut self, enough: impl Fn(&Self) -> bool) {
        let (mut polls, begin) = (0_u64, Instant::now());
        while !enough(self) {
            polls += 1;
            assert!(polls % 1000 != 0 || begin.elapsed() < PATIENCE, "the other end does nothing");
            self.poll(Duration::from_millis(100));
        }
    }

    fn poll(&mut self, wait: Duration) {
        let mut completions = std::mem::take(&mut self.completions);
        self.transport.poll(&mut completions, wait);
        for completion in completions.drain(..) {
            match completion {
                Completion::Sent { .. } => self.open -= 1,
                Completion::Control { .. } => self.words += 1,
                Completion::Written { .. } => self.writes += 1,
                Completion::Received { .. } => self.blocks += 1,
                other => panic!("{other:?}"),
            }
        }
        self.completions = completions;
    }

    fn say(&mut self) {
        self.transport.write_control(self.endpoint, b"word").expect("it is open");
    }

    fn await_word(&mut self) {
        self.poll_until(|end| end.words > 0);
        self.words -= 1;
    }

    fn await_write(&mut self) {
        self.poll_until(|end| end.writes > 0);
        self.writes -= 1;
    }

    /// Waits for the other end, and has no posts open then.
    fn meet(&mut self) {
        self.say();
        self.await_word();
        self.poll_until(|end| end.open == 0);
    }

    fn write(&mut self, from: ReadLease, key: u32, immediate: Option<u32>) {
        self.transport
            .post_write(self.endpoint, from, key, 0, immediate, Token(0))
            .expect("it is exposed");
        self.open += 1;
    }

    /// Looks at memory until a byte has a value.
    fn await_byte(&self, at: usize, value: u8) {
        while self.ping.load_byte(at) != Ok(value) {
            spin_loop();
        }
    }

    fn send_long(&mut self, from: &Region) {
        let lease = from.read(0..from.len()).expect("it is only read");
        self.transport.post_send(self.endpoint, lease, 0, Token(0)).expect("it is open");
        self.open += 1;
        self.poll_until(|end| end.open == 0);
    }

    fn receive_long(&mut self, into: &Region) {
        let lease = into.write(0..into.len()).expect("nobody else has it");
        self.transport.post_receive(self.endpoint, lease, Token(0)).expect("it is open");
        self.say();
        self.poll_until(|end| end.blocks > 0);
        self.blocks -= 1;
    }
}

/// Bytes of each value.
struct Values {
    region: Region,
    bytes: usize,
}

impl Values {
    fn new(bytes: usize) -> Self {
        let contents = (0..=255).flat_map(|value| vec![value; bytes]).collect();
        Self { region: Region::from_vec(contents), bytes }
    }

    fn of(&self, number: u64) -> ReadLease {
        let start = number as usize % 256 * self.bytes;
        self.region.read(start..start + self.bytes).expect("it is only read")
    }
}

fn await_word(memory: &PeerMemory, at: usize, number: u64) {
    while memory.load_word(at) != Ok(Some(number)) {
        spin_loop();
    }
}

/// Returns the times of one way of each kind.
fn measure_trips(end: &mut End, lines: &PeerMemory) -> Vec<f64> {
    end.meet();
    let mut times = vec![trips(|number| {
        lines.publish(LINES[0], &number.to_le_bytes()).expect("it is in range");
        await_word(lines, LINES[1], number);
    })];
    for bytes in [4, 8] {
        let values = Values::new(bytes);
        end.meet();
        let mut next = Some(values.of(1));
        times.push(trips(|number| {
            next.take().into_iter().for_each(|lease| end.write(lease, PING, None));
            // While the other end answers.
            next = Some(values.of(number + 1));
            end.poll(Duration::ZERO);
            end.await_byte(bytes - 1, number as u8);
        }));
        end.meet();
    }
    let four = Values::new(4);
    end.meet();
    times.push(trips(|_| {
        end.write(four.of(0), PING, Some(0));
        end.await_write();
    }));
    end.meet();
    times
}

fn measure() {
    stay_on(0);
    let lines = PeerMemory::zeroed(LINES_BYTES);
    let file = lines.share(FileAccess::Write).expect("it is new");
    let name = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let offer = Offer::make().expect("a name is free");
    let text: String = offer.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    // By this path, since another user may not reach the program by its own.
    let peer =
        Command::new("/proc/self/exe").args(["--peer", &text, &name]).spawn().expect("it runs");
    let mut peer = Peer(peer);
    let mut end = End::start(offer.accept(PATIENCE).expect("it connects"));

    let rounds: Vec<_> = (0..ROUNDS).map(|_| measure_trips(&mut end, &lines)).collect();
    let names = [
        "a cache line that two processes poll",
        "a one-sided write of 4 bytes, seen in memory",
        "a one-sided write of 8 bytes, seen in memory",
        "a one-sided write of 4 bytes, reported",
    ];
    print_trips(&names, &rounds);

    let (source, mut target) = (vec![1_u8; LONG_BYTES], vec![2_u8; LONG_BYTES]);
    let memcpy = copies("16 MiB, copied (memcpy)", || {
        std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source));
    });
    let region = Region::from_vec(source);
    let rate = copies("16 MiB, a one-sided write", || {
        end.write(region.read(0..LONG_BYTES).expect("it is only read"), LONG, None);
    });
    println!("{:<58} {:8.2}", "  of memcpy", rate / memcpy);
    end.meet();
    let block = match check_unprivileged() {
        Ok(()) => "16 MiB, a block that the receiver copies",
        // Root copies nothing.
        Err(_) => "16 MiB, a block through the ring",
    };
    copies(block, || {
        end.await_word();
        end.send_long(&region);
    });
    let range = ProcessRange { address: target.as_ptr().addr() as u64, bytes: LONG_BYTES };
    let mut into = vec![3_u8; LONG_BYTES];
    copies("16 MiB, process_vm_readv (of the own process)", || {
        let into = &mut [IoSliceMut::new(&mut into)];
        let copied = copy_from_process(std::process::id(), &[range], into);
        assert_eq!(copied.expect("it may read itself"), LONG_BYTES);
    });
    end.meet();
    assert!(peer.0.wait().expect("it ends").success());
}

/// The other process, killed if this one fails.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does at the other end what [`measure_trips`] needs, in the same order.
fn answer_trips(end: &mut End, lines: &PeerMemory) {
    end.meet();
    answer(|number| {
        await_word(lines, LINES[0], number);
        lines.publish(LINES[1], &number.to_le_bytes()).expect("it is in range");
    });
    for bytes in [4, 8] {
        let values = Values::new(bytes);
        end.meet();
        let mut next = Some(values.of(1));
        answer(|number| {
            end.await_byte(bytes - 1, number as u8);
            next.take().into_iter().for_each(|lease| end.write(lease, PING, None));
            next = Some(values.of(number + 1));
            end.poll(Duration::ZERO);
        });
        end.meet();
    }
    let four = Values::new(4);
    end.meet();
    answer(|_| {
        end.await_write();
        end.write(four.of(0), PING, Some(0));
    });
    end.meet();
}

/// Does at the other end what [`measure`] needs, in the same order.
fn peer(offer: &str, lines: &str) {
    stay_on(1);
    let file =
        OwnedFd::from(File::options().read(true).write(true).open(lines).expect("it is there"));
    let lines = PeerMemory::of_peer(&file, LINES_BYTES, FileAccess::Write).expect("it is shared");
    let digits = offer.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16);
    let offer: Vec<u8> = digits.map(|pair| byte(pair).expect("two digits")).collect();
    let mut end = End::start(ShmLink::connect(&offer).expect("it listens"));

    for _ in 0..ROUNDS {
        answer_trips(&mut end, &lines);
    }
    end.meet();
    let into = Region::zeroed(LONG_BYTES);
    for _ in 0..COPIES {
        end.receive_long(&into);
    }
    end.meet();
}
