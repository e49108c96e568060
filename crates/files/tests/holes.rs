//! Files with holes in directories: their data alone are sent and take space.

use std::{
    fs::{self, File},
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use files::SourceError;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use crate::{
    session::{World, joined},
    trees::{bytes, open, push, push_all, put},
};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Makes a file of this length with data at these offsets.
fn sparse(path: &Path, length: u64, data: &[(u64, usize)]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = File::create(path).unwrap();
    file.set_len(length).unwrap();
    for (number, &(at, count)) in data.iter().enumerate() {
        file.write_all_at(&bytes(count, number), at).unwrap();
    }
}

fn data_of(path: &Path) -> Vec<Range<u64>> {
    let file = File::open(path).unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start)).unwrap();
        found.push(start..at);
    }
    found
}

/// The same length and contents, and not more space.
fn assert_is_copy(copy: &Path, source: &Path) {
    let [one, other] = [copy, source].map(|path| fs::metadata(path).unwrap());
    assert_eq!((one.len(), one.mtime()), (other.len(), other.mtime()), "{copy:?}");
    // Short holes are sent.
    assert!(one.blocks() <= other.blocks() + 256, "{copy:?}: {} blocks", one.blocks());
    let files = [copy, source].map(|path| File::open(path).unwrap());
    for range in [data_of(copy), data_of(source)].concat() {
        let read = |file: &File| {
            let mut read = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut read, range.start).unwrap();
            read
        };
        assert!(read(&files[0]) == read(&files[1]), "{copy:?}: {range:?}");
    }
}

/// Name, length and data (offset and length) of a file.
type Sparse = (&'static str, u64, &'static [(u64, usize)]);

/// Data at odd places.
const FILES: [Sparse; 7] = [
    ("all", TIB, &[]),
    ("both ends", TIB + 1, &[(0, 1), (TIB, 1)]),
    ("odd", TIB, &[(12_345, 700_001), (3 * MIB + 7, 100), (TIB / 2 + 1, 3_000_000)]),
    ("a hole at its end", 9 * MIB + 1, &[(1, 300_000)]),
    ("d/a hole at its start", 9 * MIB, &[(9 * MIB - 5, 5)]),
    ("short holes", MIB, &[(9_000, 1), (100_000, 1), (900_000, 70_000)]),
    ("without", MIB, &[(0, MIB as usize)]),
];

fn tree(world: &World) -> std::path::PathBuf {
    let top = world.path("tree");
    for (name, length, data) in FILES {
        sparse(&top.join(name), length, data);
    }
    put(&top.join("small"), b"small");
    top
}

#[test]
fn holes_are_neither_sent_nor_reserved() {
    let world = World::with(b"");
    let top = tree(&world);
    if fs::metadata(top.join("all")).unwrap().blocks() > 8 {
        println!("SKIPPED: needs a file system with holes");
        return;
    }
    let assert_is_there = || {
        for (host, (name, ..)) in (0..3).flat_map(|host| FILES.map(|file| (host, file))) {
            assert_is_copy(&world.path(&format!("copy-{host}")).join(name), &top.join(name));
        }
    };
    let source = open(&top);
    assert!(source.manifest().bytes < 8 * MIB, "{} bytes", source.manifest().bytes);
    push_all(&world, source);
    assert_is_there();
    for by_contents in [false, true] {
        let report = push_all(&world, open(&top).by_contents(by_contents));
        assert!(report.hosts.iter().all(|host| host.was_there), "{report:?}");
    }
    // The same contents with and without holes, and others where the source has a hole.
    let path = |host: usize| world.path(&format!("copy-{host}/a hole at its end"));
    let inode = fs::metadata(path(0)).unwrap().ino();
    let modified = fs::metadata(path(0)).unwrap().modified().unwrap();
    fs::write(path(0), fs::read(path(0)).unwrap()).unwrap();
    for (host, at) in [(1, 5 * MIB), (2, 9 * MIB)] {
        let changed = File::options().write(true).open(path(host)).unwrap();
        changed.write_all_at(b"x", at).unwrap();
        changed.set_modified(modified).unwrap();
    }
    push_all(&world, open(&top).by_contents(true));
    assert_eq!(fs::metadata(path(0)).unwrap().ino(), inode, "equal, if without holes");
    fs::remove_file(path(0)).unwrap();
    push_all(&world, open(&top));
    assert_is_there();
}

#[test]
fn an_interrupted_copy_of_a_file_with_holes_is_resumed() {
    let world = World::with(b"");
    let top = world.path("tree");
    let data: Vec<(u64, usize)> = (0..40).map(|at| (at * 300 * MIB + 5, 500_000)).collect();
    sparse(&top.join("sparse"), TIB, &data);
    put(&top.join("behind"), &bytes(2_000_000, 1));
    let cancelled = world.open_with(open(&top), 1, |settings| settings.block_bytes = Some(10_000));
    let receptions = world.receive(&cancelled, &["host-0"]);
    let handle = cancelled.handle();
    let report = cancelled.run(&mut |event| {
        if matches!(event, files::PushEvent::Progress { bytes, .. } if bytes > 12_000_000) {
            handle.cancel();
        }
    });
    drop(joined(receptions));
    if report.published() == 1 {
        println!("SKIPPED: the copy was complete before it could be cancelled");
        return;
    }
    let report = push(&world, open(&top), &["host-0"]);
    assert_eq!(report.published(), 1, "{report:?}");
    assert!(report.hosts[0].resumed_bytes > 5_000_000, "{report:?}");
    for name in ["sparse", "behind"] {
        assert_is_copy(&world.path("copy-0").join(name), &top.join(name));
    }
}

#[test]
fn holes_that_change_during_the_push_are_named() {
    let world = World::with(b"");
    let top = world.path("tree");
    sparse(&top.join("f"), 9 * MIB, &[(MIB, MIB as usize)]);
    let source = open(&top);
    source.look_again().unwrap();
    let file = File::options().write(true).open(top.join("f")).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, MIB, MIB).unwrap();
    let error = source.look_again().unwrap_err();
    assert!(matches!(error, SourceError::Changed { .. }), "{error}");
}

#[test]
fn of_a_single_file_holes_are_not_sent() {
    let world = World::with(b"");
    for (number, (_, length, data)) in FILES.into_iter().take(5).enumerate() {
        let source = world.path(&format!("source-{number}"));
        sparse(&source, length, data);
        for host in 0..3 {
            // Something else before, for some.
            let copy = world.path(&format!("copy-{host}"));
            let _ = fs::remove_file(&copy);
            if host == 1 {
                fs::write(&copy, "old").unwrap();
            }
        }
        let opened = open(&source);
        assert!(opened.manifest().bytes < 8 * MIB && opened.entries().is_none());
        push_all(&world, opened);
        for host in 0..3 {
            assert_is_copy(&world.path(&format!("copy-{host}")), &source);
        }
        let report = push_all(&world, open(&source));
        assert!(report.hosts.iter().all(|host| host.was_there), "{report:?}");
    }
}
