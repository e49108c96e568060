//! Pushes of directories beside others that write into the destination.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use files::{ListOptions, Source};

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
