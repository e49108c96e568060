//! Pushes whose blocks a switch copies, and pushes whose receivers relay since no switch could. Most
//! need root: hosts are threads in network namespaces, with a real switch between them.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use files::{
    HostPlan, Push, PushEvent, PushReport, PushSettings, Reach, Source, SwitchControl,
    receiver::{self, Placement, ReceiverSettings},
};
use mcrdma::Counter;
use rdmc::{Algorithm, InsertError, Inserted, Secret, Switches};
use testing_switch::hosts::{OneSwitch, Plane, address, run, skipped};

const TIMEOUT: Duration = Duration::from_secs(60);
const RECEIVERS: usize = 3;

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8).collect()
}

/// A file, and where its copies go.
struct World {
    directory: tempfile::TempDir,
    secret: Secret,
    contents: Vec<u8>,
    port: OnceLock<u16>,
}

impl World {
    fn with(bytes: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let contents = contents(bytes);
        fs::write(directory.path().join("object"), &contents).unwrap();
        let (secret, port) = (Secret::random().unwrap(), OnceLock::new());
        Self { directory, secret, contents, port }
    }

    fn copy(&self, host: usize) -> PathBuf {
        self.directory.path().join(format!("copy-{host}"))
    }

    fn settings(&self, switches: Option<Arc<dyn Switches>>) -> PushSettings {
        let plans = (1..=RECEIVERS).map(|host| HostPlan {
            name: format!("host-{host}"),
            destination: self.copy(host).to_str().unwrap().to_owned(),
            rack: 0,
            reach: Reach::Calls,
        });
        let mut settings = PushSettings::new(plans.collect(), self.secret.clone());
        settings.algorithm = Some(Algorithm::InSwitch);
        settings.switches = switches.map(SwitchControl::new).unwrap_or_default();
        settings.block_bytes = Some(64 << 10);
        settings.failure_deadline = Duration::from_secs(1);
        settings
    }

    /// Replicates; returns the report, and the reason of each fallback.
    fn push(&self, settings: PushSettings) -> (PushReport, Vec<String>) {
        let source = Source::open(&self.directory.path().join("object")).unwrap();
        let push = Push::open(source, settings).unwrap();
        self.port.set(push.control_port()).unwrap();
        let mut reasons = Vec::new();
        let report = push.run(&mut |event| {
            if let PushEvent::FellBack { reason } = event {
                reasons.push(reason);
            }
        });
        (report, reasons)
    }

    fn receive(&self, host: usize, switches: SwitchControl, root: IpAddr) {
        let settings = ReceiverSettings {
            switches,
            ..ReceiverSettings::new(format!("host-{host}"), Placement::Anywhere)
        };
        let port = *self.port.wait();
        let channel = receiver::call(&[root], port, &self.secret, TIMEOUT).unwrap();
        receiver::serve(channel, &settings).unwrap();
    }

    /// All have their copies, and no host was blamed.
    fn check(&self, report: &PushReport) {
        assert!(report.error.is_none() && report.published() == RECEIVERS, "{report:?}");
        for host in 1..=RECEIVERS {
            assert!(fs::read(self.copy(host)).unwrap() == self.contents, "host {host}");
        }
    }
}

/// Pushes from host 0 to the others, through a switch that `change`s.
fn push(
    world: &World,
    watch: impl FnOnce(&OneSwitch) + Send,
    change: impl Fn(&OneSwitch) -> OneSwitch + Sync,
) -> (PushReport, Vec<String>, u64) {
    let answers = run(Plane::Userspace, RECEIVERS + 1, watch, |host, switch| {
        if host > 0 {
            let agreeing = SwitchControl::delegating(Arc::new(switch.clone()));
            world.receive(host, agreeing, address(0));
            return None;
        }
        let (report, reasons) = world.push(world.settings(Some(Arc::new(change(switch)))));
        assert_eq!(switch.groups(), [], "it was taken out of the switch");
        Some((report, reasons, switch.counters().counted(Counter::Request)))
    });
    answers.into_iter().flatten().next().unwrap()
}

#[test]
fn a_file_passes_the_roots_link_once() {
    if skipped(Plane::Userspace) {
        return;
    }
    let world = World::with(5_000_001);
    let (report, reasons, packets) = push(&world, |_| {}, OneSwitch::clone);
    world.check(&report);
    assert_eq!((report.fell_back.clone(), reasons), (None, vec![]));
    assert_eq!(report.choice.unwrap().algorithm, Algorithm::InSwitch);
    let expected = world.contents.len().div_ceil(4096) as u64;
    assert!((expected..expected * 3 / 2).contains(&packets), "{packets} packets for {expected}");
}

#[test]
fn receivers_relay_if_a_switch_refuses() {
    if skipped(Plane::Userspace) {
        return;
    }
    let world = World::with(3_000_000);
    let refusing = |switch: &OneSwitch| switch.refusing("switch leaf-1 has 65536 groups already");
    let (report, reasons, packets) = push(&world, |_| {}, refusing);
    world.check(&report);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].contains("leaf-1 has 65536 groups already"), "{reasons:?}");
    assert_eq!(report.fell_back.as_ref(), Some(&reasons[0]));
    assert_ne!(report.choice.unwrap().algorithm, Algorithm::InSwitch);
    assert_eq!(packets, 0);
}

/// The switch restarts while blocks are in transit.
#[test]
fn receivers_relay_the_rest_if_a_switch_forgets() {
    if skipped(Plane::Userspace) {
        return;
    }
    let world = World::with(32 << 20);
    let forget = |switch: &OneSwitch| {
        let deadline = Instant::now() + TIMEOUT;
        while switch.counters().counted(Counter::Request) < 1_000 {
            assert!(Instant::now() < deadline, "nothing was sent");
            thread::sleep(Duration::from_millis(1));
        }
        switch.forget();
    };
    let (report, reasons, packets) = push(&world, forget, OneSwitch::clone);
    world.check(&report);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].contains("has forgotten the group"), "{reasons:?}");
    assert!(packets < 8192, "{packets}: the switch was there to the end");
    // Received data is not sent again, except for blocks that were in transit.
    let repeated = report.hosts.iter().map(|host| host.repeated_bytes).max().unwrap();
    assert!(repeated < 2 << 20, "{repeated} bytes were sent again");
}

/// A switch copies once to each host.
#[test]
fn receivers_relay_if_one_cannot_join() {
    #[derive(Debug)]
    struct Unused;
    impl Switches for Unused {
        fn insert(
            &self,
            _: &mcrdma::plan::Group,
            _: Duration,
        ) -> Result<Box<dyn Inserted>, InsertError> {
            panic!("nobody could join");
        }
    }
    let world = World::with(300_000);
    let mut settings = world.settings(Some(Arc::new(Unused)));
    settings.local_only = true;
    let (report, reasons) = thread::scope(|scope| {
        for host in 1..=RECEIVERS {
            let world = &world;
            scope.spawn(move || {
                world.receive(host, SwitchControl::default(), Ipv4Addr::LOCALHOST.into());
            });
        }
        world.push(settings)
    });
    world.check(&report);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].contains("several members are on one host"), "{reasons:?}");
}

#[test]
fn switches_have_to_be_named() {
    let world = World::with(10);
    let open = |settings| {
        let source = Source::open(&world.directory.path().join("object")).unwrap();
        Push::open(source, settings).map(drop).unwrap_err().to_string()
    };
    let error = open(world.settings(None));
    assert!(error.contains("needs switches that copy"), "{error}");
}
