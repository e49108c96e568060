//! Benches between a root and receivers that are threads of this process.

use std::{
    net::Ipv4Addr,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    thread,
    time::Duration,
};

use files::{
    HostPlan, PushError, PushSettings, Reach,
    receiver::{self, Placement, ReceiveError, ReceiverSettings, TakePart},
};
use measure::{
    Bench, BenchEvent, BenchPlan, Collective, CollectivePlan, MEASURED_BYTES_MAX, ReachCheck,
    Subject, take_part,
};
use rdmc::Secret;

const TIMEOUT: Duration = Duration::from_secs(30);

/// What a root and its receivers share.
struct World {
    secret: Secret,
    stop: Arc<AtomicBool>,
    /// The longest message that receivers accept.
    bytes_max: Option<u64>,
}

type Receptions = Vec<thread::JoinHandle<Result<Option<PathBuf>, ReceiveError>>>;

impl World {
    fn new() -> Self {
        Self { secret: Secret::random().unwrap(), stop: Arc::default(), bytes_max: None }
    }

    fn settings(&self, hosts: usize) -> PushSettings {
        let plan = |host| HostPlan {
            name: format!("host-{host}"),
            destination: String::new(),
            rack: 0,
            reach: Reach::Calls,
        };
        let hosts = (0..hosts).map(plan).collect();
        let mut settings = PushSettings::new(hosts, self.secret.clone());
        (settings.local_only, settings.block_bytes) = (true, Some(1000));
        settings.start_timeout = Duration::from_secs(2);
        settings
    }

    /// A bench of hosts 0 .. `hosts`, with messages of this length.
    fn open(&self, hosts: usize, bytes: u64) -> Bench {
        Bench::open(self.settings(hosts), plan(bytes)).unwrap()
    }

    fn receive(&self, bench: &Bench, names: &[&str]) -> Receptions {
        self.receive_with(bench.control_port(), names, take_part)
    }

    /// Receivers that take part like this.
    fn receive_with(&self, port: u16, names: &[&str], part: TakePart) -> Receptions {
        let start = |name: &&str| {
            let settings = ReceiverSettings {
                bytes_max: self.bytes_max,
                stop: Arc::clone(&self.stop),
                ..ReceiverSettings::new((*name).to_owned(), Placement::Anywhere)
            };
            let secret = self.secret.clone();
            thread::spawn(move || {
                let own = [Ipv4Addr::LOCALHOST.into()];
                let channel = receiver::call(&own, port, &secret, TIMEOUT).unwrap();
                receiver::serve_with(channel, &settings, part)
            })
        };
        names.iter().map(start).collect()
    }
}

fn plan(bytes: u64) -> BenchPlan {
    BenchPlan {
        bytes,
        repeats: 3,
        latency_bytes: vec![1, 2000],
        latency_repeats: 5,
        collective: None,
    }
}

fn joined(receptions: Receptions) -> Vec<Result<Option<PathBuf>, ReceiveError>> {
    receptions.into_iter().map(|reception| reception.join().unwrap()).collect()
}

#[test]
fn a_bench_measures_every_host_and_all_together() {
    let world = World::new();
    let bench = world.open(3, 10_000);
    let receptions = world.receive(&bench, &["host-0", "host-1", "host-2"]);
    let mut told = Vec::new();
    let report = bench.run(&mut |event| {
        if let BenchEvent::Measuring { subject, bytes } = event {
            told.push((subject, bytes));
        }
    });
    assert!(report.error.is_none() && report.failures == [const { None }; 3], "{report:?}");
    let measured: Vec<_> = report.measurements.iter().map(|m| (m.subject, m.bytes)).collect();
    let each =
        |subject: fn(usize) -> Subject, bytes| (0..3).map(move |host| (subject(host), bytes));
    let mut expected: Vec<_> =
        each(Subject::Latency, 1).chain(each(Subject::Latency, 2000)).collect();
    expected.extend(each(Subject::Unicast, 10_000));
    expected.push((Subject::Multicast, 10_000));
    assert_eq!(measured, expected);
    assert_eq!(told, expected);
    for measurement in &report.measurements {
        let latency = matches!(measurement.subject, Subject::Latency(_));
        assert_eq!(measurement.times.len(), if latency { 5 } else { 3 });
        assert!(measurement.times.iter().all(|time| !time.is_zero()));
    }
    assert_eq!(report.measurements.last().unwrap().members, 4);
    // Nothing was written, and all have ended well.
    assert!(joined(receptions).into_iter().all(|outcome| matches!(outcome, Ok(None))));
}

#[test]
fn a_bench_names_hosts_that_are_lost_and_measures_the_others() {
    let world = World::new();
    let bench = world.open(3, 5_000_000);
    let receptions = world.receive(&bench, &["host-0", "host-2"]);
    let report = bench.run(&mut |_| {});
    assert!(report.error.is_none(), "{report:?}");
    let late = report.failures[1].as_deref();
    assert!(late.is_some_and(|late| late.starts_with("did not connect within 2 s; ")), "{late:?}");
    assert_eq!(report.measurements.len(), 7);
    assert!(joined(receptions).into_iter().all(|outcome| outcome.is_ok()));
}

#[test]
fn a_bench_that_is_interrupted_ends_everywhere() {
    let world = World::new();
    let bench = world.open(2, 50_000_000);
    let receptions = world.receive(&bench, &["host-0", "host-1"]);
    let handle = bench.handle();
    let report = bench.run(&mut |event| {
        if matches!(event, BenchEvent::Measuring { subject: Subject::Multicast, .. }) {
            handle.cancel();
        }
    });
    assert!(matches!(report.error, Some(PushError::Cancelled)), "{report:?}");
    for outcome in joined(receptions) {
        assert!(matches!(outcome.unwrap_err(), ReceiveError::Aborted { reason: _, .. }));
    }
}

#[test]
fn a_receiver_that_stops_during_a_bench_is_named() {
    let world = World::new();
    let bench = world.open(1, 5_000_000);
    let receptions = world.receive(&bench, &["host-0"]);
    let stop = Arc::clone(&world.stop);
    let report = bench.run(&mut |event| {
        if matches!(event, BenchEvent::Measuring { subject: Subject::Unicast(_), .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(report.failures[0].as_deref(), Some("the receiver was interrupted"), "{report:?}");
    assert!(joined(receptions).into_iter().all(|outcome| outcome.is_err()));
}

#[test]
fn a_team_measures_each_length_at_every_member() {
    let world = World::new();
    let (operation, sizes) = (Collective::AllReduce, vec![4, 1 << 16]);
    let collective = CollectivePlan { operation, sizes, repeats: Some(7), degree: Some(2) };
    let plan = BenchPlan { collective: Some(collective), ..plan(1) };
    let bench = Bench::open(world.settings(2), plan).unwrap();
    let receptions = world.receive(&bench, &["host-0", "host-1"]);
    let mut told = Vec::new();
    let report = bench.run(&mut |event| {
        if let BenchEvent::Collective { bytes } = event {
            told.push(bytes);
        }
    });
    assert!(report.error.is_none() && report.failures == [const { None }; 2], "{report:?}");
    assert_eq!(told, [4, 1 << 16]);
    let lengths: Vec<u64> = report.collectives.iter().map(|measured| measured.bytes).collect();
    assert_eq!(lengths, told);
    for measured in &report.collectives {
        assert!(measured.times.len() == 3 && measured.times.iter().all(|times| times.len() == 7));
    }
    assert!(joined(receptions).into_iter().all(|outcome| matches!(outcome, Ok(None))));
}

#[test]
fn plans_and_settings_that_no_bench_has_are_refused() {
    let world = World::new();
    let refused = |settings: PushSettings, plan: BenchPlan, part: &str| {
        let error = Bench::open(settings, plan).err().expect("it is refused").to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(world.settings(1), plan(MEASURED_BYTES_MAX + 1), "are too long");
    let racks = Some(rdmc::Algorithm::ChainOfRacks);
    refused(PushSettings { algorithm: racks, ..world.settings(1) }, plan(1), "has no racks");
    let switches = Some(rdmc::Algorithm::InSwitch);
    refused(PushSettings { algorithm: switches, ..world.settings(1) }, plan(1), "no switches");
    refused(PushSettings { retries: 1, ..world.settings(1) }, plan(1), "return to it");
    refused(PushSettings { streams: 9, ..world.settings(1) }, plan(1), "use 1 to 8");
}

#[test]
fn a_receiver_that_accepts_less_is_named() {
    let world = World { bytes_max: Some(5_000), ..World::new() };
    let bench = world.open(1, 10_000);
    let receptions = world.receive(&bench, &["host-0"]);
    let report = bench.run(&mut |_| {});
    let failure = report.failures[0].as_deref().unwrap();
    assert!(failure.contains("start it with a larger --max-size"), "{failure}");
    // Latencies of short messages come first.
    assert_eq!(report.measurements.len(), 2);
    assert!(matches!(joined(receptions).remove(0), Err(ReceiveError::Refused(_))));
}

#[test]
fn a_host_that_sends_what_is_no_answer_is_given_up_and_the_others_are_measured() {
    let world = World::new();
    let bench = world.open(2, 10_000);
    let mut receptions = world.receive(&bench, &["host-0"]);
    receptions.extend(world.receive_with(bench.control_port(), &["host-1"], |session| {
        // Before the first request nothing is expected, and what comes is ignored.
        while session.next()?.is_some() {
            session.sender().send(vec![99])?;
        }
        Ok(())
    }));
    let report = bench.run(&mut |_| {});
    assert!(report.error.is_none() && report.failures[0].is_none(), "{report:?}");
    let failure = report.failures[1].as_deref().unwrap();
    assert!(
        failure.starts_with("it sent a message that does not belong to a measurement"),
        "{failure}"
    );
    let last = report.measurements.last().unwrap();
    assert_eq!((last.subject, last.members), (Subject::Multicast, 2));
    let outcomes = joined(receptions);
    assert!(outcomes[0].is_ok() && matches!(outcomes[1], Err(ReceiveError::Aborted { .. })));
}

#[test]
fn all_machines_connect_to_all_others() {
    let world = World::new();
    let check = ReachCheck::open(world.settings(4)).unwrap();
    let receptions =
        world.receive_with(check.control_port(), &["host-0", "host-1", "host-2"], take_part);
    let mut seen = Vec::new();
    let report = check.run(&mut |host| seen.push(host));
    assert!(report.error.is_none() && report.unreachable.is_empty(), "{report:?}");
    // This machine and three hosts; the fourth has not come.
    assert_eq!(report.tried, 12);
    let failed: Vec<bool> = report.failures.iter().map(Option::is_some).collect();
    assert_eq!(failed, [false, false, false, true]);
    assert!([0, 1, 2, 3].iter().all(|host| seen.contains(host)), "{seen:?}");
    assert!(joined(receptions).into_iter().all(|outcome| matches!(outcome, Ok(None))));
    let many = ReachCheck::open(world.settings(1001)).map(drop).unwrap_err().to_string();
    assert!(many.contains("at most 1000 at a time"), "{many}");
}
