//! Streams: what is read at the root is written out at receivers, whatever its length and their pace.

use std::{
    fs,
    io::{self, Read, Write},
    net::Ipv4Addr,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use files::{
    HostPlan, HostState, PushError, PushEvent, PushSettings, Reach, Stream, StreamReport,
    StreamSettings,
    receiver::{self, Output, Placement, ReceiveError, ReceiverSettings},
};
use rdmc::Secret;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Takes what a receiver writes; may wait or fail.
#[derive(Clone, Default)]
struct Consumer {
    taken: Arc<Mutex<Vec<u8>>>,
    /// Writes wait while it is closed.
    gate: Arc<(Mutex<bool>, Condvar)>,
    /// From this many bytes on, writes fail; 0 for never.
    fails_at: usize,
}

impl Consumer {
    fn close(&self) {
        *self.gate.0.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.gate.0.lock().unwrap() = false;
        self.gate.1.notify_all();
    }

    fn taken(&self) -> Vec<u8> {
        self.taken.lock().unwrap().clone()
    }
}

impl Write for Consumer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let closed = self.gate.0.lock().unwrap();
        drop(self.gate.1.wait_while(closed, |is_closed| *is_closed).unwrap());
        let mut taken = self.taken.lock().unwrap();
        if self.fails_at > 0 && taken.len() + bytes.len() > self.fails_at {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        taken.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives pseudo-random bytes, in parts of changing lengths.
struct Producer {
    left: u64,
    source: blake3::OutputReader,
    given: Arc<AtomicU64>,
    /// Instead of the end.
    error: bool,
}

impl Producer {
    fn of(bytes: u64) -> Self {
        let source = blake3::Hasher::new().update(b"stream").finalize_xof();
        Self { left: bytes, source, given: Arc::default(), error: false }
    }
}

impl Read for Producer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.left.min(into.len() as u64).min(self.left % 70_000 + 1);
        if count == 0 && self.error {
            return Err(io::Error::other("the disk is gone"));
        }
        self.source.fill(&mut into[..count as usize]);
        self.left -= count;
        self.given.fetch_add(count, Ordering::Relaxed);
        Ok(count as usize)
    }
}

fn expected(bytes: u64) -> Vec<u8> {
    let mut all = Vec::new();
    Producer::of(bytes).read_to_end(&mut all).unwrap();
    all
}

type Outcome = Result<Option<std::path::PathBuf>, ReceiveError>;

struct World {
    directory: tempfile::TempDir,
    secret: Secret,
}

impl World {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), secret: Secret::random().unwrap() }
    }

    fn open(&self, hosts: usize) -> Stream {
        self.open_with(hosts, StreamSettings::default())
    }

    fn open_with(&self, hosts: usize, stream: StreamSettings) -> Stream {
        let plans = (0..hosts).map(|host| HostPlan {
            name: format!("host-{host}"),
            destination: self.copy(host).to_str().unwrap().to_owned(),
            rack: 0,
            reach: Reach::Calls,
        });
        let mut settings = PushSettings::new(plans.collect(), self.secret.clone());
        settings.local_only = true;
        settings.start_timeout = Duration::from_secs(20);
        Stream::open(settings, stream).unwrap()
    }

    fn copy(&self, host: usize) -> std::path::PathBuf {
        self.directory.path().join(format!("copy-{host}"))
    }

    /// A receiver that ends when `stop` is set, with a consumer or with a file.
    fn receive(
        &self,
        port: u16,
        host: usize,
        output: Option<Consumer>,
        stop: &Arc<AtomicBool>,
    ) -> thread::JoinHandle<Outcome> {
        self.receive_with(
            port,
            ReceiverSettings {
                output: output.map(Output::new),
                stop: Arc::clone(stop),
                ..receiver_settings(host)
            },
        )
    }

    fn receive_with(&self, port: u16, settings: ReceiverSettings) -> thread::JoinHandle<Outcome> {
        let secret = self.secret.clone();
        thread::spawn(move || {
            let own = [Ipv4Addr::LOCALHOST.into()];
            let channel = receiver::call(&own, port, &secret, TIMEOUT).unwrap();
            receiver::serve(channel, &settings)
        })
    }
}

/// Of a receiver that writes a file anywhere.
fn receiver_settings(host: usize) -> ReceiverSettings {
    ReceiverSettings::new(format!("host-{host}"), Placement::Anywhere)
}

fn failure(report: &StreamReport, host: usize) -> &str {
    let HostState::Failed(reason) = &report.hosts[host].state else { panic!("{report:?}") };
    reason
}

fn all_have_it(report: &StreamReport, bytes: u64) {
    assert!(report.error.is_none(), "{report:?}");
    assert_eq!(report.published(), report.hosts.len(), "{report:?}");
    assert_eq!((report.bytes, report.prefix_bytes), (bytes, bytes), "{report:?}");
    assert_eq!(report.digest, Some(blake3::hash(&expected(bytes))));
}

#[test]
fn streams_of_any_length_reach_files_and_outputs() {
    for bytes in [0, 1, 70_000, 20_000_001] {
        let world = World::new();
        let stream = world.open(3);
        let (consumer, never) = (Consumer::default(), Arc::default());
        let port = stream.control_port();
        let receptions = [
            world.receive(port, 0, None, &never),
            world.receive(port, 1, Some(consumer.clone()), &never),
            world.receive(port, 2, None, &never),
        ];
        let report = stream.run(Producer::of(bytes), &mut |_| {});
        all_have_it(&report, bytes);
        let outcomes: Vec<_> =
            receptions.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
        assert_eq!(outcomes, [Some(world.copy(0)), None, Some(world.copy(2))]);
        assert!(consumer.taken() == expected(bytes));
        assert!(fs::read(world.copy(0)).unwrap() == expected(bytes));
        assert_eq!(fs::read_dir(world.directory.path()).unwrap().count(), 2, "nothing else");
    }
}

#[test]
fn what_is_read_arrives_before_the_end() {
    let world = World::new();
    let stream = world.open(1);
    let (consumer, never) = (Consumer::default(), Arc::default());
    let reception = world.receive(stream.control_port(), 0, Some(consumer.clone()), &never);
    let (reader, mut writer) = io::pipe().unwrap();
    let running = thread::spawn(move || stream.run(reader, &mut |_| {}));
    let deadline = std::time::Instant::now() + TIMEOUT;
    for line in 1..=3 {
        writer.write_all(b"a line\n").unwrap();
        while consumer.taken().len() < line * 7 {
            assert!(std::time::Instant::now() < deadline, "{:?}", consumer.taken());
            thread::sleep(Duration::from_millis(5));
        }
    }
    drop(writer);
    assert_eq!(running.join().unwrap().published(), 1);
    assert!(reception.join().unwrap().is_ok());
    assert_eq!(consumer.taken(), b"a line\na line\na line\n");
}

#[test]
fn a_consumer_that_waits_does_not_delay_short_writes_to_others() {
    let world = World::new();
    let stream = world.open(2);
    let (steady, slow, never) = (Consumer::default(), Consumer::default(), Arc::default());
    slow.close();
    let port = stream.control_port();
    let receptions = [
        world.receive(port, 0, Some(steady.clone()), &never),
        world.receive(port, 1, Some(slow.clone()), &never),
    ];
    let (reader, mut writer) = io::pipe().unwrap();
    let running = thread::spawn(move || stream.run(reader, &mut |_| {}));
    let deadline = std::time::Instant::now() + TIMEOUT;
    for line in 1..=3 {
        writer.write_all(b"a line\n").unwrap();
        while steady.taken().len() < line * 7 {
            assert!(std::time::Instant::now() < deadline, "{:?}", steady.taken());
            thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(slow.taken().is_empty());
    slow.open();
    drop(writer);
    assert_eq!(running.join().unwrap().published(), 2);
    assert!(receptions.into_iter().all(|thread| thread.join().unwrap().is_ok()));
    assert_eq!(slow.taken(), b"a line\n".repeat(3));
}

#[test]
fn a_consumer_that_waits_holds_the_producer_back() {
    const BYTES: u64 = 600 << 20;
    let world = World::new();
    let stream = world.open(2);
    let (slow, never) = (Consumer::default(), Arc::default());
    slow.close();
    let port = stream.control_port();
    let receptions =
        [world.receive(port, 0, Some(slow.clone()), &never), world.receive(port, 1, None, &never)];
    let producer = Producer::of(BYTES);
    let given = Arc::clone(&producer.given);
    let running = thread::spawn(move || stream.run(producer, &mut |_| {}));
    let mut before = u64::MAX;
    // Until the producer stands still.
    while before != given.load(Ordering::Relaxed) || before == 0 {
        before = given.load(Ordering::Relaxed);
        thread::sleep(Duration::from_secs(1));
    }
    assert!(before < BYTES / 2, "{before} bytes were read although nothing was written out");
    slow.open();
    let report = running.join().unwrap();
    assert_eq!((report.published(), report.bytes), (2, BYTES), "{report:?}");
    assert!(receptions.into_iter().all(|thread| thread.join().unwrap().is_ok()));
    assert_eq!(blake3::hash(&slow.taken()), report.digest.unwrap());
}

#[test]
fn survivors_go_on_when_a_consumer_or_a_receiver_ends() {
    const BYTES: u64 = 60_000_000;
    let world = World::new();
    let stream = world.open(4);
    let (never, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let (steady, dying) =
        (Consumer::default(), Consumer { fails_at: 5_000_000, ..Consumer::default() });
    let port = stream.control_port();
    let receptions = [
        world.receive(port, 0, Some(steady.clone()), &never),
        world.receive(port, 1, Some(dying), &never),
        world.receive(port, 2, None, &stop),
        world.receive(port, 3, None, &never),
    ];
    let report = stream.run(Producer::of(BYTES), &mut |event| {
        if matches!(event, PushEvent::Progress { host: 2, bytes } if bytes > 20_000_000) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let state = |host: usize| &report.hosts[host].state;
    assert_eq!((state(0), state(3)), (&HostState::Published, &HostState::Published), "{report:?}");
    let reason = failure(&report, 1);
    assert!(reason.contains("cannot write the stream out"), "{reason}");
    if let HostState::Failed(reason) = state(2) {
        assert!(reason.contains("interrupted") || reason.contains("lost"), "{reason}");
        assert!(!world.copy(2).exists());
    } else {
        println!("host-2 had everything before it could be stopped");
    }
    assert_eq!((report.bytes, report.prefix_bytes), (BYTES, BYTES));
    assert!(steady.taken() == expected(BYTES));
    assert!(fs::read(world.copy(3)).unwrap() == expected(BYTES));
    let outcomes: Vec<Outcome> =
        receptions.into_iter().map(|thread| thread.join().unwrap()).collect();
    // The host says as many bytes as the root.
    let said = outcomes[1].as_ref().unwrap_err().to_string();
    let good = format!("the first {} bytes of the stream", report.hosts[1].bytes);
    assert!(said.contains(&good), "{said}: {report:?}");
}

#[test]
fn a_new_file_gets_what_the_umask_gives_and_never_more_than_the_one_that_it_replaces() {
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let world = World::new();
    let given = world.directory.path().join("given");
    // What this process makes.
    fs::OpenOptions::new().append(true).create(true).mode(0o666).open(&given).unwrap();
    for (mode_sent, before, expected) in [
        (None, None, mode(&given)),
        (None, Some(0o600), 0o600),
        (None, Some(0o777), mode(&given)),
        (Some(0o640), None, 0o640),
        (Some(0o4755), None, 0o755),
        (Some(0o644), Some(0o620), 0o600),
    ] {
        let _ = fs::remove_file(world.copy(0));
        if let Some(before) = before {
            fs::write(world.copy(0), "old").unwrap();
            fs::set_permissions(world.copy(0), fs::Permissions::from_mode(before)).unwrap();
        }
        let stream = world.open_with(1, StreamSettings { mode: mode_sent, command: None });
        let reception = world.receive(stream.control_port(), 0, None, &Arc::default());
        all_have_it(&stream.run(Producer::of(1000), &mut |_| {}), 1000);
        reception.join().unwrap().unwrap();
        assert_eq!(mode(&world.copy(0)), expected, "{before:?}");
    }
}

#[test]
fn a_stream_that_is_too_long_fails_at_the_receivers_that_refuse_it() {
    const BYTES: u64 = 20_000_000;
    let world = World::new();
    let stream = world.open(3);
    let port = stream.control_port();
    let (consumer, most) = (Consumer::default(), Some(5_000_000));
    let receptions = [
        world.receive_with(port, ReceiverSettings { bytes_max: most, ..receiver_settings(0) }),
        world.receive_with(
            port,
            ReceiverSettings {
                bytes_max: most,
                output: Some(Output::new(consumer.clone())),
                ..receiver_settings(1)
            },
        ),
        world.receive_with(
            port,
            ReceiverSettings { bytes_max: Some(BYTES), ..receiver_settings(2) },
        ),
    ];
    let report = stream.run(Producer::of(BYTES), &mut |_| {});
    for host in 0..2 {
        let reason = failure(&report, host);
        assert!(
            reason.contains("longer than 4.77 MiB") && reason.contains("--max-size"),
            "{reason}"
        );
        assert!(report.hosts[host].bytes <= 5_000_000, "{report:?}");
    }
    assert_eq!(report.hosts[2].state, HostState::Published, "{report:?}");
    assert!(consumer.taken().len() as u64 <= 5_000_000);
    assert!(!world.copy(0).exists() && fs::read(world.copy(2)).unwrap() == expected(BYTES));
    assert_eq!(receptions.map(|thread| thread.join().unwrap().is_ok()), [false, false, true]);
}

#[test]
fn an_input_that_fails_leaves_a_prefix_that_is_known() {
    let world = World::new();
    let stream = world.open(2);
    let (consumer, never) = (Consumer::default(), Arc::default());
    let port = stream.control_port();
    let receptions = [
        world.receive(port, 0, Some(consumer.clone()), &never),
        world.receive(port, 1, None, &never),
    ];
    let producer = Producer { error: true, ..Producer::of(9_000_000) };
    let report = stream.run(producer, &mut |_| {});
    let Some(PushError::Input(error)) = &report.error else { panic!("{report:?}") };
    assert!(error.to_string().contains("the disk is gone"));
    assert_eq!((report.published(), report.digest), (0, None));
    for thread in receptions {
        let error = thread.join().unwrap().unwrap_err().to_string();
        let prefix = format!("all remaining hosts have the first {} bytes", report.prefix_bytes);
        assert!(error.contains(&prefix), "{error}");
        assert!(error.contains("bytes of the stream were verified and written out"), "{error}");
    }
    let taken = consumer.taken();
    assert!(taken.len() as u64 >= report.prefix_bytes && expected(9_000_000).starts_with(&taken));
    assert!(!world.copy(1).exists());
}

#[test]
fn a_confined_receiver_and_one_with_an_output_run_no_commands() {
    let world = World::new();
    let ran = world.directory.path().join("ran");
    let command = Some(format!("cat > {}", ran.display()));
    let stream = world.open_with(2, StreamSettings { command, ..StreamSettings::default() });
    let port = stream.control_port();
    let below = Placement::Below(world.directory.path().to_owned());
    let output = Some(Output::new(Consumer::default()));
    let receptions = [
        world.receive_with(port, ReceiverSettings { placement: below, ..receiver_settings(0) }),
        world.receive_with(port, ReceiverSettings { output, ..receiver_settings(1) }),
    ];
    let report = stream.run(Producer::of(1000), &mut |_| {});
    for host in 0..2 {
        let reason = failure(&report, host);
        assert!(reason.contains("runs no commands for a root"), "{reason}");
    }
    assert!(receptions.into_iter().all(|thread| thread.join().unwrap().is_err()));
    assert!(!ran.exists());
}

#[test]
fn files_are_refused_by_a_receiver_with_an_output() {
    let world = crate::session::World::with(b"contents");
    let push = world.open(1, |_| {});
    let settings = ReceiverSettings {
        output: Some(Output::new(Consumer::default())),
        ..ReceiverSettings::new("host-0".into(), Placement::Anywhere)
    };
    let (port, secret) = (push.control_port(), world.secret.clone());
    let reception = thread::spawn(move || {
        let own = [Ipv4Addr::LOCALHOST.into()];
        receiver::serve(receiver::call(&own, port, &secret, TIMEOUT).unwrap(), &settings)
    });
    let report = push.run(&mut |_| {});
    let reason = crate::session::failure(&report, 0);
    assert!(reason.contains("`rdmc push -` sends one"), "{reason}");
    assert!(reception.join().unwrap().is_err());
}
