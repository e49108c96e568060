//! Pushes of directories beside others that write into the destination.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use files::{ListOptions, Push, Source, receiver::ReceiveError};

use crate::session::{World, joined};

/// Writes made by all tests here together, at least: as many as it takes for the pushes to end, and no fewer.
const WRITES_MIN: usize = 100_000;
const FILES: usize = 300;

fn fill(directory: &Path, version: u8) {
    fs::create_dir_all(directory.join("sub")).unwrap();
    for number in 0..FILES {
        let directory = if number % 2 == 0 { directory.to_owned() } else { directory.join("sub") };
        fs::write(directory.join(format!("f{number}")), vec![version; 10 + number]).unwrap();
    }
}

/// Pushes two versions by turns until `is_enough`; returns how many pushes there were.
fn push_by_turns(world: &World, sources: &[PathBuf; 2], is_enough: &AtomicBool) -> usize {
    let mut pushes = 0;
    while !is_enough.load(Ordering::Relaxed) || pushes < 4 {
        let source = Source::of(&[sources[pushes % 2].clone()], &ListOptions::default()).unwrap();
        let push = world.open_with(source, 1, |_| {});
        let receptions = world.receive(&push, &["host-0"]);
        let report = push.run(&mut |_| {});
        for outcome in joined(receptions) {
            outcome.unwrap();
        }
        assert_eq!(report.published(), 1, "{report:?}");
        pushes += 1;
    }
    pushes
}

#[test]
fn none_of_many_writes_beside_pushes_is_lost() {
    let world = World::with(b"");
    let sources = [world.path("one"), world.path("two")];
    fill(&sources[0], 1);
    fill(&sources[1], 2);
    let copy = world.path("copy-0");
    fs::create_dir_all(copy.join("sub")).unwrap();
    let is_enough = AtomicBool::new(false);
    let pushes = thread::scope(|scope| {
        scope.spawn(|| {
            // Each file is made under a temporary name, renamed, and linked; a few operations each.
            for number in 0..WRITES_MIN / 4 {
                let directory = if number % 3 == 0 { copy.join("sub") } else { copy.clone() };
                let (made, name) =
                    (directory.join("log.tmp"), directory.join(format!("log{number}")));
                fs::write(&made, number.to_string()).unwrap();
                fs::rename(&made, &name).unwrap();
                if number % 50 == 0 {
                    fs::create_dir(directory.join(format!("dir{number}"))).unwrap();
                }
                if number >= 1_000 {
                    let old = number - 1_000;
                    let directory = if old % 3 == 0 { copy.join("sub") } else { copy.clone() };
                    let name = directory.join(format!("log{old}"));
                    let found = fs::read_to_string(&name);
                    assert_eq!(found.unwrap_or_else(|e| panic!("{name:?}: {e}")), old.to_string());
                    fs::remove_file(name).unwrap();
                }
            }
            is_enough.store(true, Ordering::Relaxed);
        });
        push_by_turns(&world, &sources, &is_enough)
    });
    let logs = |directory: &Path| {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("log")).count()
    };
    assert_eq!(logs(&copy) + logs(&copy.join("sub")), 1_000, "beside {pushes} pushes");
    assert_eq!(world.temporaries(), 0);
}

#[test]
fn files_pushed_into_a_directory_that_is_pushed_stay() {
    let world = World::with(b"the object");
    let sources = [world.path("one"), world.path("two")];
    fill(&sources[0], 1);
    fill(&sources[1], 2);
    let copy = world.path("copy-0");
    fs::create_dir_all(&copy).unwrap();
    let is_enough = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..30 {
                let path = copy.join(format!("x{number}"));
                let manifest = files::Manifest {
                    name: "x".into(),
                    bytes: 3,
                    mode: 0o644,
                    modified_ns: number,
                };
                let target = files::Target::create(&path, manifest).unwrap();
                let write = target.region().unwrap().write_stored(0..3).unwrap();
                write.copy_from(b"abc").unwrap();
                let digest = blake3::hash(b"abc");
                target.publish(&files::Verified::compare(digest, digest).unwrap()).unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"abc");
            }
            is_enough.store(true, Ordering::Relaxed);
        });
        push_by_turns(&world, &sources, &is_enough)
    });
    for number in 0..30 {
        assert_eq!(fs::read(copy.join(format!("x{number}"))).unwrap(), b"abc", "{number}");
    }
    assert_eq!(world.temporaries(), 0);
}

type Received = Result<Option<PathBuf>, ReceiveError>;

/// A push of a directory to `copy-0`.
fn push_of(world: &World, source: &str, is_atomic: bool, rate_max: Option<u64>) -> Push {
    let source = Source::of(&[world.path(source)], &ListOptions::default()).unwrap();
    world.open_with(source.atomic(is_atomic), 1, |settings| settings.rate_max = rate_max)
}

fn receive(world: &World, push: Push) -> Received {
    let receptions = world.receive(&push, &["host-0"]);
    push.run(&mut |_| {});
    joined(receptions).remove(0)
}

/// Two directories, `slow` of this many megabytes and `quick`, and a place for their copies, which is there or not.
fn two_sources(megabytes: usize, is_there: bool) -> World {
    let world = World::with(b"");
    fs::create_dir(world.path("slow")).unwrap();
    fs::write(world.path("slow/big"), vec![1; megabytes * 1_000_000]).unwrap();
    fs::create_dir(world.path("quick")).unwrap();
    fs::write(world.path("quick/small"), b"small").unwrap();
    if is_there {
        fs::create_dir(world.path("copy-0")).unwrap();
    }
    world
}

/// Waits until a push has claimed the place of the copies.
fn await_claim(world: &World) {
    let is_claimed =
        || [".copy-0.rdmc-lock", "copy-0/.rdmc-lock"].iter().any(|it| world.path(it).exists());
    while !is_claimed() {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn pushes_of_all_kinds_to_an_existing_directory_exclude_each_other() {
    for (first, second) in [(true, false), (false, true), (false, false), (true, true)] {
        let world = two_sources(500, true);
        let quick = thread::scope(|scope| {
            let slow = push_of(&world, "slow", first, Some(1_000_000));
            let handle = slow.handle();
            let slow = scope.spawn(|| receive(&world, slow));
            await_claim(&world);
            let quick = receive(&world, push_of(&world, "quick", second, None));
            handle.cancel();
            assert!(slow.join().unwrap().is_err(), "it takes minutes");
            quick
        });
        let refused = quick.unwrap_err().to_string();
        assert!(refused.contains("already being written"), "atomic {first}, {second}: {refused}");
        assert!(
            fs::read_dir(world.path("copy-0"))
                .unwrap()
                .flatten()
                .all(|entry| { entry.file_name().to_string_lossy().starts_with(".rdmc-") })
        );
        receive(&world, push_of(&world, "quick", second, None)).unwrap();
        assert!(world.path("copy-0/small").exists());
    }
}

#[test]
fn a_push_that_waits_for_another_finds_what_that_one_has_made() {
    for (is_there, first, second) in
        [(false, false, false), (false, true, false), (true, true, false), (true, false, true)]
    {
        // On a busy machine it may wait in vain.
        let (world, quick) = loop {
            let world = two_sources(1, is_there);
            let (slow, quick) = thread::scope(|scope| {
                let slow = push_of(&world, "slow", first, Some(1_000_000));
                let slow = scope.spawn(|| receive(&world, slow));
                await_claim(&world);
                let quick = receive(&world, push_of(&world, "quick", second, None));
                (slow.join().unwrap(), quick)
            });
            slow.unwrap();
            let is_refused = |error: &ReceiveError| error.to_string().contains("already being");
            if !quick.as_ref().is_err_and(is_refused) {
                break (world, quick);
            }
        };
        quick.unwrap();
        assert!(world.path("copy-0/big").exists() && world.path("copy-0/small").exists());
        assert_eq!(world.temporaries(), 0, "atomic {first}, {second}");
    }
}
