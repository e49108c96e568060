//! Pushes to all hosts or to none.

use std::{fs, time::Duration};

use files::{
    Admission, HostPlan, HostState, Push, PushError, PushEvent, PushReport, PushSettings, Reach,
    Source,
};

use crate::{
    session::{World, failure, joined},
    trees,
};

const BYTES: usize = 300_000;

fn contents() -> Vec<u8> {
    (0..BYTES).map(|index| (index % 251) as u8).collect()
}

fn all_or_none(settings: &mut PushSettings) {
    settings.all_or_none = true;
}

/// Runs a push with its receivers, and acts on its events.
fn run(world: &World, push: Push, names: &[&str], mut act: impl FnMut(PushEvent)) -> PushReport {
    let receptions = world.receive(&push, names);
    let report = push.run(&mut |event| act(event));
    joined(receptions);
    report
}

const NAMES: [&str; 3] = ["host-0", "host-1", "host-2"];

/// The next push publishes everywhere, and sends nothing.
fn assert_next_publishes(world: &World, published: usize) {
    let push = world.open(3, all_or_none);
    let report = run(world, push, &NAMES, |_| {});
    assert!(report.error.is_none() && report.published() == 3, "{report:?}");
    assert!(report.hosts.iter().all(|host| host.resumed_bytes == BYTES as u64), "{report:?}");
    assert_eq!(report.hosts.iter().filter(|host| host.was_there).count(), published);
    for host in 0..3 {
        assert!(fs::read(world.path(&format!("copy-{host}"))).unwrap() == contents());
    }
    assert_eq!(world.temporaries(), 0);
}

#[test]
fn files_and_trees_are_published_when_all_hosts_have_them() {
    let world = World::with(&contents());
    let report = run(&world, world.open(3, all_or_none), &NAMES, |_| {});
    assert!(report.error.is_none() && report.published() == 3, "{report:?}");
    // Again, with nothing to do.
    assert_next_publishes(&world, 3);

    let tree = world.path("tree");
    fs::create_dir_all(tree.join("inner")).unwrap();
    fs::write(tree.join("inner/file"), contents()).unwrap();
    fs::hard_link(tree.join("inner/file"), tree.join("name")).unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    for host in 0..3 {
        fs::remove_file(world.path(&format!("copy-{host}"))).unwrap();
    }
    // One that is new, and one that is updated, in which the further name is made of a file that is there.
    for change in ["new", "changed"] {
        fs::write(tree.join("inner/other"), change).unwrap();
        let push = world.open_with(trees::open(&tree), 3, all_or_none);
        let report = run(&world, push, &NAMES, |_| {});
        assert!(report.error.is_none() && report.published() == 3, "{report:?}");
        for host in 0..3 {
            let copy = world.path(&format!("copy-{host}"));
            assert!(fs::read(copy.join("name")).unwrap() == contents());
            assert_eq!(fs::read_to_string(copy.join("inner/other")).unwrap(), change);
            let _ = fs::remove_file(copy.join("name"));
        }
    }
}

#[test]
fn no_host_publishes_if_one_does_not_come() {
    let world = World::with(&contents());
    fs::write(world.path("copy-0"), "old").unwrap();
    let push = world.open(3, |settings| {
        (settings.all_or_none, settings.start_timeout) = (true, Duration::from_secs(1));
    });
    let report = run(&world, push, &["host-0", "host-2"], |event| {
        assert!(!matches!(event, PushEvent::Publishing));
    });
    let Some(error @ PushError::NotAll { host, .. }) = &report.error else { panic!("{report:?}") };
    assert_eq!((report.published(), host.as_str()), (0, "host-1"));
    assert!(failure(&report, 1).starts_with("did not connect within 1 s"), "{report:?}");
    for host in [0, 2] {
        assert_eq!(failure(&report, host), error.to_string());
    }
    assert_eq!(fs::read_to_string(world.path("copy-0")).unwrap(), "old");
    assert!(!world.path("copy-2").exists());
}

/// A push in which something gets in the way of the second host's copy when this event comes.
fn obstructed(world: &World, is_time: impl Fn(&PushEvent) -> bool) -> PushReport {
    run(world, world.open(3, all_or_none), &NAMES, |event| {
        if is_time(&event) {
            let _ = fs::create_dir(world.path("copy-1"));
        }
    })
}

#[test]
fn no_host_publishes_if_one_finds_that_it_could_not() {
    let world = World::with(&contents());
    let received = PushEvent::Host { host: 1, state: HostState::Received };
    let report = obstructed(&world, |event| *event == received);
    assert!(matches!(report.error, Some(PushError::NotAll { .. })), "{report:?}");
    assert!(failure(&report, 1).contains("copy-1"), "{report:?}");
    assert_eq!(report.published(), 0);
    assert!(!world.path("copy-0").exists() && !world.path("copy-2").exists());
    fs::remove_dir(world.path("copy-1")).unwrap();
    assert_next_publishes(&world, 0);
}

#[test]
fn a_host_that_fails_while_all_publish_is_named_and_the_next_push_publishes_its_copy() {
    let world = World::with(&contents());
    let report = obstructed(&world, |event| *event == PushEvent::Publishing);
    assert!(report.error.is_none() && report.published() == 2, "{report:?}");
    assert!(failure(&report, 1).contains("copy-1"), "{report:?}");
    fs::remove_dir(world.path("copy-1")).unwrap();
    assert_next_publishes(&world, 2);
}

#[test]
fn hosts_that_may_join_cannot_all_be_waited_for() {
    let world = World::with(b"contents");
    let destination = world.path("copy").to_str().unwrap().to_owned();
    let listen = "127.0.0.1:0".parse().unwrap();
    let plan = HostPlan {
        name: "host-0".into(),
        destination: destination.clone(),
        rack: 0,
        reach: Reach::Calls,
    };
    let mut settings = PushSettings::new(vec![plan], world.secret.clone());
    settings.all_or_none = true;
    settings.admission = Some(Admission { listen, destination });
    let refused = Push::open(Source::open(&world.path("object")).unwrap(), settings);
    let error = refused.map(drop).unwrap_err().to_string();
    assert!(error.contains("none can join"), "{error}");
}
