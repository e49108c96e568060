//! Sessions between a root and receivers that are threads of this process.

use std::{
    fs,
    io::Read,
    net::Ipv4Addr,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    thread,
    time::Duration,
};

use files::{
    HostPlan, HostReport, HostState, Push, PushError, PushEvent, PushReport, PushSettings, Reach,
    Source, Target,
    receiver::{self, Placement, ReceiveError, ReceiverSettings},
};
use rdmc::Secret;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A directory with a file to send, and receivers' settings.
pub(super) struct World {
    directory: tempfile::TempDir,
    pub(super) secret: Secret,
    stop: Arc<AtomicBool>,
}

pub(super) type Reception = thread::JoinHandle<Result<Option<PathBuf>, ReceiveError>>;
pub(super) type Receptions = Vec<Reception>;

impl World {
    pub(super) fn with(contents: &[u8]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("object"), contents).unwrap();
        Self { directory, secret: Secret::random().unwrap(), stop: Arc::default() }
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A push to hosts 0 .. `hosts`, each with its copy beside the object.
    pub(super) fn open(&self, hosts: usize, change: impl FnOnce(&mut PushSettings)) -> Push {
        self.open_source(&self.path("object"), hosts, change)
    }

    fn open_source(
        &self,
        source: &Path,
        hosts: usize,
        change: impl FnOnce(&mut PushSettings),
    ) -> Push {
        self.open_with(Source::open(source).unwrap(), hosts, change)
    }

    pub(super) fn open_with(
        &self,
        source: Source,
        hosts: usize,
        change: impl FnOnce(&mut PushSettings),
    ) -> Push {
        let plans = (0..hosts).map(|host| HostPlan {
            name: format!("host-{host}"),
            destination: self.path(&format!("copy-{host}")).to_str().unwrap().to_owned(),
            rack: 0,
            reach: Reach::Calls,
        });
        let mut settings = PushSettings::new(plans.collect(), self.secret.clone());
        settings.local_only = true;
        settings.block_bytes = Some(1000);
        change(&mut settings);
        Push::open(source, settings).unwrap()
    }

    pub(super) fn receive(&self, push: &Push, names: &[&str]) -> Receptions {
        self.receive_at(push.control_port(), names)
    }

    fn receive_at(&self, port: u16, names: &[&str]) -> Receptions {
        let start = |name: &&str| {
            let settings = ReceiverSettings {
                stop: Arc::clone(&self.stop),
                ..ReceiverSettings::new((*name).to_owned(), Placement::Anywhere)
            };
            self.receive_with(port, settings)
        };
        names.iter().map(start).collect()
    }

    pub(super) fn receive_with(&self, port: u16, settings: ReceiverSettings) -> Reception {
        let secret = self.secret.clone();
        thread::spawn(move || {
            let own = [Ipv4Addr::LOCALHOST.into()];
            let channel = receiver::call(&own, port, &secret, TIMEOUT).unwrap();
            receiver::serve(channel, &settings)
        })
    }

    /// How many names of rdmc there are in the directory, and in copies in it.
    pub(super) fn temporaries(&self) -> usize {
        let copies = fs::read_dir(self.directory.path()).unwrap().flatten();
        let copies = copies.map(|entry| entry.path()).filter(|path| path.is_dir());
        let directories = copies.chain([self.directory.path().to_owned()]);
        let names = directories.flat_map(|directory| fs::read_dir(directory).unwrap().flatten());
        names.filter(|entry| entry.file_name().to_string_lossy().contains(".rdmc-")).count()
    }
}

pub(super) fn joined(receptions: Receptions) -> Vec<Result<Option<PathBuf>, ReceiveError>> {
    receptions.into_iter().map(|reception| reception.join().unwrap()).collect()
}

pub(super) fn failure(report: &PushReport, host: usize) -> &str {
    match &report.hosts[host].state {
        HostState::Failed(reason) => reason,
        other => panic!("{other:?}"),
    }
}

fn is_copy(copy: &Path, contents: &[u8]) -> bool {
    fs::read(copy).is_ok_and(|read| read == contents)
}

#[test]
fn files_of_any_length_arrive_and_events_are_complete_and_in_order() {
    for bytes in [0, 1, 999, 1000, 1001, 300_000] {
        let contents: Vec<u8> = (0..bytes).map(|index| (index % 253) as u8).collect();
        let world = World::with(&contents);
        let push = world.open(2, |_| {});
        let receptions = world.receive(&push, &["host-1", "host-0"]);
        let mut events = Vec::new();
        let report = push.run(&mut |event| events.push(event));
        assert!(report.error.is_none() && report.published() == 2, "{report:?}");
        assert!(report.replication.unwrap() <= report.total);
        for host in 0..2 {
            assert!(is_copy(&world.path(&format!("copy-{host}")), &contents), "{bytes} bytes");
            let states: Vec<&HostState> = events
                .iter()
                .filter_map(|event| match event {
                    PushEvent::Host { host: of, state } if *of == host => Some(state),
                    _ => None,
                })
                .collect();
            use HostState::{Preparing, Published, Ready, Received};
            assert_eq!(states, [&Preparing, &Ready, &Received, &Published]);
        }
        assert!(joined(receptions).into_iter().all(|outcome| outcome.is_ok()));
        assert_eq!(world.temporaries(), 0);
    }
}

#[test]
fn unknown_and_duplicate_receivers_are_rejected() {
    let world = World::with(b"contents");
    let push = world.open(1, |_| {});
    let receptions = world.receive(&push, &["nobody", "host-0", "host-0"]);
    let report = push.run(&mut |_| {});
    assert_eq!(report.published(), 1, "{report:?}");
    let outcomes = joined(receptions);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    let unknown = outcomes[0].as_ref().unwrap_err().to_string();
    assert!(unknown.contains("nobody is not one of this push's hosts"), "{unknown}");
}

#[test]
fn hosts_that_never_connect_are_named_and_the_others_get_their_copies() {
    let world = World::with(&[1; 10_000]);
    let push = world.open(4, |settings| settings.start_timeout = Duration::from_secs(1));
    push.handle().host_failed(2, 0, "no route to it");
    let receptions = world.receive(&push, &["host-0", "host-3"]);
    let report = push.run(&mut |_| {});
    assert_eq!((report.published(), report.members), (2, 3));
    assert!(failure(&report, 1).starts_with("did not connect within 1 s; "));
    assert_eq!(failure(&report, 2), "no route to it");
    assert!(joined(receptions).into_iter().all(|outcome| outcome.is_ok()));
}

#[test]
fn a_cancelled_push_ends_its_receivers() {
    let world = World::with(&[1; 5_000_000]);
    let push = world.open(2, |settings| settings.block_bytes = Some(100));
    let receptions = world.receive(&push, &["host-0", "host-1"]);
    let handle = push.handle();
    let report = push.run(&mut |event| {
        if matches!(event, PushEvent::Round { .. }) {
            handle.cancel();
        }
    });
    assert!(matches!(report.error, Some(PushError::Cancelled)), "{report:?}");
    for outcome in joined(receptions) {
        let error = outcome.unwrap_err();
        assert!(matches!(error, ReceiveError::Aborted { reason: _, .. }), "{error}");
    }
    assert_eq!(world.temporaries(), 2, "what has come is kept, as after a loss");
    assert!(!world.path("copy-0").exists());
}

/// Cancelled this many times as soon as the first host is ordered to publish.
fn cancelled_while_publishing(cancels: usize) -> (World, PushReport) {
    let world = World::with(&[1; 300_000]);
    let push = world.open(3, |_| {});
    let receptions = world.receive(&push, &["host-0", "host-1", "host-2"]);
    let handle = push.handle();
    let mut waits_for = None;
    let report = push.run(&mut |event| match event {
        PushEvent::Publishing => (0..cancels).for_each(|_| handle.cancel()),
        PushEvent::Stopping { publishing } => waits_for = Some(publishing),
        _ => {}
    });
    joined(receptions);
    let asked = report.hosts.iter().filter(|host| !matches!(host.state, HostState::Failed(_)));
    assert_eq!(waits_for, Some(asked.count()), "{report:?}");
    for (host, known) in report.hosts.iter().enumerate() {
        let has_it = world.path(&format!("copy-{host}")).exists();
        match known.state {
            HostState::Published => assert!(has_it, "{report:?}"),
            HostState::Failed(_) => assert!(!has_it, "{report:?}"),
            HostState::Unknown(_) => assert!(cancels > 1, "{report:?}"),
            _ => panic!("{report:?}"),
        }
    }
    (world, report)
}

#[test]
fn a_cancelled_push_waits_for_the_outcome_of_publishing_hosts() {
    let (_world, report) = cancelled_while_publishing(1);
    assert!(report.published() > 0, "{report:?}");
    let is_explained =
        matches!(report.error, Some(PushError::Cancelled)) || report.published() == 3;
    assert!(is_explained, "{report:?}");
}

#[test]
fn a_second_cancel_ends_at_once_and_reports_unknown_outcomes() {
    let (_world, report) = cancelled_while_publishing(2);
    assert!(matches!(report.error, Some(PushError::Cancelled)), "{report:?}");
    let unknown = |host: &&files::HostReport| matches!(host.state, HostState::Unknown(_));
    assert!(report.hosts.iter().filter(unknown).count() > 0, "{report:?}");
}

#[test]
fn stopped_receivers_report_it_and_keep_received_data() {
    let world = World::with(&[1; 5_000_000]);
    let push = world.open(2, |settings| settings.block_bytes = Some(100));
    let receptions = world.receive(&push, &["host-0", "host-1"]);
    let stop = Arc::clone(&world.stop);
    let report = push.run(&mut |event| {
        if matches!(event, PushEvent::Progress { .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(report.published(), 0, "{report:?}");
    assert_eq!(failure(&report, 0), "the receiver was interrupted");
    assert!(joined(receptions).into_iter().all(|outcome| outcome.is_err()));
    assert_eq!(world.temporaries(), 2);
}

#[test]
fn one_push_at_a_time_owns_a_destination() {
    for (is_same, brings) in [(true, &[1; 2_000_000][..]), (false, &[2; 1_000])] {
        let world = World::with(&[1; 2_000_000]);
        let other = world.path("other");
        fs::write(&other, brings).unwrap();
        let push = world.open(2, |settings| settings.block_bytes = Some(100));
        let receptions = world.receive(&push, &["host-0", "host-1"]);
        let mut second = None;
        let report = push.run(&mut |event| {
            // Both targets exist, and none is published before this returns.
            let has_come = matches!(event, PushEvent::Host { state: HostState::Received, .. });
            if has_come && second.is_none() {
                let source = if is_same { world.path("object") } else { other.clone() };
                let push = world.open_source(&source, 2, |_| {});
                let receptions = world.receive(&push, &["host-0", "host-1"]);
                second = Some(push.run(&mut |_| {}));
                assert!(joined(receptions).into_iter().all(|outcome| outcome.is_err()));
            }
        });
        let second = second.expect("copies have come");
        for host in 0..2 {
            let reason = failure(&second, host);
            let owner = format!("for host host-{host}, by process {}", std::process::id());
            assert!(reason.contains("is already being written"), "{reason}");
            assert!(reason.contains(&owner), "{reason}");
        }
        assert_eq!(report.published(), 2, "{report:?}");
        assert!(joined(receptions).into_iter().all(|outcome| outcome.is_ok()));
        assert!((0..2).all(|host| is_copy(&world.path(&format!("copy-{host}")), &[1; 2_000_000])));
        assert_eq!(world.temporaries(), 0);
    }
}

/// Pushes to one host, whose copy is `copy-0`, and returns the host's report.
fn push_to_one(world: &World) -> HostReport {
    let push = world.open(1, |_| {});
    let receptions = world.receive(&push, &["host-0"]);
    let report = push.run(&mut |_| {});
    assert!(joined(receptions).into_iter().all(|outcome| outcome.is_ok()), "{report:?}");
    assert_eq!((report.published(), world.temporaries()), (1, 0), "{report:?}");
    report.hosts.into_iter().next().unwrap()
}

#[test]
fn an_existing_copy_is_verified_and_stays() {
    for bytes in [0, 1, 100_000, 3 << 20] {
        let contents: Vec<u8> = (0..bytes).map(|index| (index % 253) as u8).collect();
        let world = World::with(&contents);
        let (object, copy) = (world.path("object"), world.path("copy-0"));
        assert!(!push_to_one(&world).was_there);
        let before = fs::metadata(&copy).unwrap();
        // The same again, and then a file of other attributes, as cp makes it.
        for change in 0..2 {
            if change == 1 {
                fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
                let file = fs::File::options().write(true).open(&copy).unwrap();
                file.set_modified(std::time::UNIX_EPOCH).unwrap();
            }
            let report = push_to_one(&world);
            assert!(report.was_there && report.resumed_bytes == bytes, "{report:?}");
            let after = fs::metadata(&copy).unwrap();
            assert_eq!(after.ino(), before.ino());
            assert_eq!(after.mode(), fs::metadata(&object).unwrap().mode());
            assert_eq!(after.modified().unwrap(), before.modified().unwrap());
        }
    }
}

#[test]
fn a_file_with_equal_attributes_is_replaced_and_only_its_differences_are_sent() {
    let contents: Vec<u8> = (0..3_u32 << 20).map(|index| (index % 253) as u8).collect();
    let world = World::with(&contents);
    let copy = world.path("copy-0");
    let mut other = contents.clone();
    // Outside the probed ranges.
    other[100_000] ^= 1;
    fs::write(&copy, &other).unwrap();
    let old = fs::metadata(&copy).unwrap();
    let mut open = fs::File::open(&copy).unwrap();
    let report = push_to_one(&world);
    assert!(!report.was_there && report.resumed_bytes == 2 << 20, "{report:?}");
    assert!(is_copy(&copy, &contents));
    assert_ne!(fs::metadata(&copy).unwrap().ino(), old.ino());
    let mut read = Vec::new();
    open.read_to_end(&mut read).unwrap();
    assert!(read == other, "an open descriptor of the old file still reads it");
}

#[test]
fn a_copy_writable_for_others_or_with_other_links_is_replaced() {
    let world = World::with(&[1; 100_000]);
    let (copy, link) = (world.path("copy-0"), world.path("link"));
    push_to_one(&world);
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!push_to_one(&world).was_there);
    assert_eq!(
        fs::metadata(&copy).unwrap().mode(),
        fs::metadata(world.path("object")).unwrap().mode()
    );
    // A complete copy may have other links; a partial one would change under those, too.
    fs::hard_link(&copy, &link).unwrap();
    assert!(push_to_one(&world).was_there);
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!push_to_one(&world).was_there);
    assert_eq!(fs::metadata(&link).unwrap().mode() & 0o777, 0o600);
    assert!(is_copy(&copy, &[1; 100_000]) && is_copy(&link, &[1; 100_000]));
}

/// A file system of its own below a directory, until it is dropped.
pub(super) struct SmallDisk(pub(super) PathBuf);

impl SmallDisk {
    pub(super) fn mount(at: PathBuf, options: &str) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let arguments = ["-t", "tmpfs", "-o", options, "tmpfs"];
        let mounted = Command::new("mount").args(arguments).arg(&at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn the_same_push_again_needs_no_space() {
    let world = World::with(&[1; 2 << 20]);
    let Some(disk) = SmallDisk::mount(world.path("small"), "size=3M") else {
        eprintln!("SKIPPED: a small file system needs root, to mount it");
        return;
    };
    let copy = disk.0.join("copy");
    for run in 0..3 {
        if run == 2 {
            // A file of the same length that is another one.
            fs::write(&copy, vec![2; 2 << 20]).unwrap();
        }
        let push = world.open(1, |settings| {
            copy.to_str().unwrap().clone_into(&mut settings.hosts[0].destination);
        });
        let receptions = world.receive(&push, &["host-0"]);
        let report = push.run(&mut |_| {});
        joined(receptions);
        if run == 2 {
            assert!(failure(&report, 0).contains("no space for 2097152 bytes"), "{report:?}");
        } else {
            assert!(report.published() == 1, "{report:?}");
            assert_eq!(report.hosts[0].was_there, run == 1);
        }
        assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 1);
    }
}

#[test]
fn file_systems_that_take_no_files_are_named_with_the_remedy() {
    let world = World::with(b"");
    for (options, words) in [
        ("ro", "is read-only; choose another --dest, or mount it for writing"),
        ("nr_inodes=2", "no inodes left; remove files, or choose another --dest"),
    ] {
        let Some(disk) = SmallDisk::mount(world.path(options), options) else {
            eprintln!("SKIPPED: a small file system needs root, to mount it");
            return;
        };
        let manifest = Source::open(&world.path("object")).unwrap().manifest().clone();
        let error = Target::create(&disk.0.join("copy"), manifest).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 0);
    }
}

#[test]
fn of_hosts_that_share_a_file_system_one_gets_the_copy_for_all() {
    let world = World::with(&[1; 100_000]);
    let shared = world.path("shared").to_str().unwrap().to_owned();
    let push = world.open(3, |settings| {
        settings.hosts[..2].iter_mut().for_each(|host| host.destination.clone_from(&shared));
    });
    let receptions = world.receive(&push, &["host-0", "host-1", "host-2"]);
    let mut is_sending = false;
    let mut told_in_time = false;
    let report = push.run(&mut |event| {
        is_sending |= matches!(event, PushEvent::Round { .. });
        told_in_time |=
            !is_sending && matches!(event, PushEvent::Host { state: HostState::Shares(_), .. });
    });
    assert!(told_in_time, "{report:?}");
    assert_eq!((report.published(), report.members), (3, 3), "{report:?}");
    let has = report.hosts[..2].iter().position(|host| host.state == HostState::Published);
    let has = has.expect("one of them has the copy");
    assert_eq!(report.hosts[1 - has].state, HostState::Shares(format!("host-{has}")));
    assert!(is_copy(&world.path("shared"), &[1; 100_000]));
    assert!(is_copy(&world.path("copy-2"), &[1; 100_000]));
    let outcomes = joined(receptions);
    let refused: Vec<String> =
        outcomes.iter().filter_map(|outcome| Some(outcome.as_ref().err()?.to_string())).collect();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].contains(&format!("for host host-{has}, by process")), "{refused:?}");
    assert_eq!(world.temporaries(), 0);
}

#[test]
fn a_host_that_shares_the_copy_of_one_that_fails_has_failed() {
    let world = World::with(&vec![1; 20_000_000]);
    let shared = world.path("shared").to_str().unwrap().to_owned();
    let push = world.open(2, |settings| {
        settings.hosts.iter_mut().for_each(|host| host.destination.clone_from(&shared));
        settings.block_bytes = Some(100);
    });
    let receptions = world.receive(&push, &["host-0", "host-1"]);
    let stop = Arc::clone(&world.stop);
    let report = push.run(&mut |event| {
        if matches!(event, PushEvent::Progress { .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(report.published(), 0, "{report:?}");
    let reasons = [failure(&report, 0), failure(&report, 1)];
    let shares = |reason: &&str| reason.contains("it shares a file system with host-");
    assert_eq!(reasons.iter().filter(|reason| shares(reason)).count(), 1, "{reasons:?}");
    assert!(joined(receptions).iter().all(|outcome| outcome.is_err()));
}

#[test]
fn concurrent_pushes_never_mix_their_files() {
    let contents = [vec![1; 50_000], vec![2; 70_000]];
    for round in 0..4 {
        let world = World::with(b"");
        let sources = contents.each_ref().map(|contents| {
            let path = world.path(&format!("object-{}", contents[0]));
            fs::write(&path, contents).unwrap();
            path
        });
        let run = |source: &Path, hosts: [&str; 2]| {
            let push = world.open_source(source, 2, |_| {});
            let receptions = world.receive(&push, &hosts);
            let report = push.run(&mut |_| {});
            joined(receptions);
            report
        };
        // They come to the hosts in opposite order.
        let reports = thread::scope(|scope| {
            let one = scope.spawn(|| run(&sources[0], ["host-0", "host-1"]));
            let two = scope.spawn(|| run(&sources[1], ["host-1", "host-0"]));
            [one.join().unwrap(), two.join().unwrap()]
        });
        let found = [0, 1].map(|host| fs::read(world.path(&format!("copy-{host}"))).ok());
        let are_whole = found.iter().flatten().all(|copy| contents.contains(copy));
        assert!(are_whole, "round {round}: {reports:?}");
        if reports.iter().all(|report| report.published() == 2) {
            assert!(found[0] == found[1], "round {round}: {reports:?}");
        }
        assert_eq!(world.temporaries(), 0);
    }
}

#[test]
fn a_source_that_vanishes_is_not_published() {
    let world = World::with(&[1; 500_000]);
    let push = world.open(2, |settings| settings.block_bytes = Some(100));
    let receptions = world.receive(&push, &["host-0", "host-1"]);
    let object = world.path("object");
    let report = push.run(&mut |event| {
        if matches!(event, PushEvent::Round { .. }) {
            fs::remove_file(&object).unwrap();
        }
    });
    assert!(matches!(report.error, Some(PushError::Source(_))), "{report:?}");
    let reason = failure(&report, 0);
    assert!(reason.contains("removed or renamed"), "{reason}");
    assert!(joined(receptions).into_iter().all(|outcome| outcome.is_err()));
    assert_eq!(world.temporaries(), 0);
}

#[test]
fn settings_out_of_range_are_refused_at_the_start() {
    let world = World::with(b"x");
    let refused = |change: fn(&mut PushSettings)| {
        let plan =
            HostPlan { name: "a".into(), destination: "a".into(), rack: 0, reach: Reach::Calls };
        let mut settings = PushSettings::new(vec![plan], world.secret.clone());
        settings.local_only = true;
        change(&mut settings);
        let source = Source::open(&world.path("object")).unwrap();
        Push::open(source, settings).err().expect("refused").to_string()
    };
    assert!(refused(|settings| settings.hosts.clear()).contains("no host"));
    assert!(refused(|settings| settings.block_bytes = Some(0)).contains("block size 0"));
    assert!(
        refused(|settings| settings.window = Some(rdmc::Window { receives: 1, sends: 0 }))
            .contains("window of 0")
    );
    assert!(refused(|settings| settings.streams = 0).contains("streams"));
    let twice = refused(|settings| settings.hosts.push(settings.hosts[0].clone()));
    assert!(twice.contains("host a is named twice"));
    let listens = |settings: &mut PushSettings| {
        settings.hosts[0].reach = Reach::Listens("a:7000".into());
    };
    assert!(refused(listens).contains("listens, which needs credentials"));
}

#[test]
fn too_many_blocks_are_refused_at_the_start() {
    let world = World::with(b"");
    // A sparse file needs no space; only its length matters.
    let sparse = fs::File::options().write(true).open(world.path("object")).unwrap();
    sparse.set_len((1 << 32) + 1).unwrap();
    let settings = |block_bytes| {
        let plan =
            HostPlan { name: "a".into(), destination: "a".into(), rack: 0, reach: Reach::Calls };
        let mut settings = PushSettings::new(vec![plan], world.secret.clone());
        (settings.local_only, settings.block_bytes) = (true, Some(block_bytes));
        Push::open(Source::open(&world.path("object")).unwrap(), settings)
    };
    assert!(settings(1).err().expect("refused").to_string().contains("too many blocks"));
    assert!(settings(2).is_ok());
}

#[test]
fn holes_stay_holes_and_zeros_that_take_space_keep_it() {
    const BYTES: usize = 8 << 20;
    let mut contents = vec![0; BYTES];
    contents[..10_000].fill(7);
    contents[5 << 20..(5 << 20) + 5_000].fill(9);
    contents[BYTES - 1] = 1;
    let world = World::with(&contents);
    let space = |name: &str| fs::metadata(world.path(name)).unwrap().blocks() * 512;
    let push = || {
        let push = world.open(2, |settings| settings.block_bytes = Some(100_000));
        let receptions = world.receive(&push, &["host-0", "host-1"]);
        let report = push.run(&mut |_| {});
        assert_eq!(report.published(), 2, "{report:?}");
        joined(receptions);
        for copy in ["copy-0", "copy-1"] {
            assert!(is_copy(&world.path(copy), &contents));
        }
        ["copy-0", "copy-1"].map(space)
    };
    assert!(push().iter().all(|&bytes| bytes >= BYTES as u64), "zeros were not left out there");
    let object = fs::File::create(world.path("object")).unwrap();
    object.set_len(BYTES as u64).unwrap();
    for range in [0..10_000, 5 << 20..(5 << 20) + 5_000, BYTES - 1..BYTES] {
        object.write_all_at(&contents[range.clone()], range.start as u64).unwrap();
    }
    object.sync_all().unwrap();
    if space("object") > 1 << 20 {
        println!("SKIPPED: needs a file system with holes");
        return;
    }
    // Copies that are right already would stay as they are.
    for copy in ["copy-0", "copy-1"] {
        fs::remove_file(world.path(copy)).unwrap();
    }
    let copies = push();
    assert!(copies.iter().all(|&bytes| bytes < 1 << 20), "{copies:?} of {}", space("object"));
}
