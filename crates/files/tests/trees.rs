//! Pushes of directories: what arrives, what is kept, what is refused.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use files::{ListOptions, PushReport, Rule, Selection, Source};

use crate::session::{World, failure, joined};

/// What is below a directory, by path: kind, permissions, time, contents or target, and number of names.
fn describe(top: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut all = BTreeMap::new();
    let mut open = vec![top.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let kind = metadata.file_type();
            let what = if kind.is_symlink() {
                format!("link to {:?}", fs::read_link(&path).unwrap())
            } else if kind.is_dir() {
                open.push(path.clone());
                "directory".to_owned()
            } else {
                let digest = blake3::hash(&fs::read(&path).unwrap());
                format!("file of {} names: {digest}", metadata.nlink())
            };
            let mode = if kind.is_symlink() { 0 } else { metadata.mode() & 0o7777 };
            let time = (metadata.mtime(), metadata.mtime_nsec());
            let name = path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
            all.insert(name, format!("{what}, {mode:o}, {time:?}"));
        }
    }
    all
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::new(seconds, 123_456_789)
}

pub fn put(path: &Path, contents: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(time(1_000_000)).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 31 + seed * 7 + at / 251) % 256) as u8).collect()
}

/// A tree with everything that is kept.
fn tree(world: &World) -> PathBuf {
    let top = world.path("tree");
    for number in 0..30 {
        put(&top.join(format!("small/{number}")), &bytes(number * 97, number));
    }
    put(&top.join("large"), &bytes(3_000_000, 1));
    put(&top.join("empty"), b"");
    put(&top.join("a/deep/path/to/file"), b"deep");
    put(&top.join(OsStr::from_bytes(b"not \xff\xfe UTF-8\n")), b"any bytes");
    fs::create_dir(top.join("nothing in it")).unwrap();
    symlink("../large", top.join("small/link")).unwrap();
    symlink("a/deep", top.join("to a directory")).unwrap();
    fs::hard_link(top.join("large"), top.join("small/second name")).unwrap();
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 2 << 20).unwrap();
    mode(&top.join("empty"), 0o640);
    mode(&top.join("small/7"), 0o755);
    mode(&top.join("a/deep"), 0o750);
    for directory in ["a", "small", "nothing in it"] {
        fs::File::open(top.join(directory)).unwrap().set_modified(time(2_000_000)).unwrap();
    }
    top
}

fn everything() -> ListOptions {
    ListOptions::default()
}

/// Pushes a tree to hosts, as `copy-N` beside it.
pub fn push(world: &World, source: Source, names: &[&str]) -> PushReport {
    let push = world.open_with(source, names.len(), |_| {});
    let receptions = world.receive(&push, names);
    let report = push.run(&mut |_| {});
    for outcome in joined(receptions) {
        if let Err(error) = outcome {
            println!("{error}");
        }
    }
    report
}

pub fn push_all(world: &World, source: Source) -> PushReport {
    let report = push(world, source, &["host-0", "host-1", "host-2"]);
    assert!(report.error.is_none() && report.published() == 3, "{report:?}");
    assert_eq!(world.temporaries(), 0);
    report
}

pub fn open(top: &Path) -> Source {
    Source::of(&[top.to_owned()], &everything()).unwrap()
}

/// The root sends it once, to whichever hosts are there first.
#[test]
fn a_listing_that_is_relayed_is_the_one_that_comes_directly() {
    let world = World::with(b"");
    let top = tree(&world);
    let names = ["host-0", "host-1", "host-2"];
    let push = world.open_with(open(&top), names.len(), |settings| settings.listings_bytes_max = 0);
    let receptions = world.receive(&push, &names);
    let report = push.run(&mut |_| {});
    joined(receptions).into_iter().for_each(|outcome| drop(outcome.unwrap()));
    assert!(report.error.is_none() && report.published() == 3, "{report:?}");
    for host in 0..3 {
        assert_eq!(describe(&world.path(&format!("copy-{host}"))), describe(&top));
    }
}

#[test]
fn a_tree_arrives_with_modes_times_links_and_holes() {
    let world = World::with(b"");
    let top = tree(&world);
    let report = push_all(&world, open(&top));
    assert!(report.hosts.iter().all(|host| !host.was_there && host.resumed_bytes == 0));
    for host in 0..3 {
        let copy = world.path(&format!("copy-{host}"));
        assert_eq!(describe(&copy), describe(&top));
        let blocks = |top: &Path| fs::metadata(top.join("sparse")).unwrap().blocks();
        assert!(blocks(&copy) <= blocks(&top).max(64), "holes stay holes");
        let top_time = |top: &Path| fs::metadata(top).unwrap().modified().unwrap();
        assert_eq!(top_time(&copy), top_time(&top));
    }
}

#[test]
fn an_unchanged_tree_is_not_sent_again() {
    let world = World::with(b"");
    let top = tree(&world);
    push_all(&world, open(&top));
    let inode = |host| fs::metadata(world.path(&format!("copy-{host}"))).unwrap().ino();
    let before: Vec<u64> = (0..3).map(inode).collect();
    let report = push_all(&world, open(&top));
    assert!(report.hosts.iter().all(|host| host.was_there), "{report:?}");
    assert!(report.hosts.iter().all(|host| host.repeated_bytes == 0));
    assert_eq!(report.members, 0, "no group was needed");
    assert!((0..3).map(inode).eq(before), "nothing is replaced");
    // The same by contents.
    let report = push_all(&world, open(&top).by_contents(true));
    assert!(report.hosts.iter().all(|host| host.was_there), "{report:?}");
}

#[test]
fn only_what_differs_is_sent_and_what_only_a_receiver_has_stays() {
    let world = World::with(b"");
    let top = tree(&world);
    push_all(&world, open(&top));
    let copy = world.path("copy-1");
    fs::remove_file(copy.join("small/20")).unwrap();
    put(&copy.join("its own/file"), b"own");
    put(&copy.join("small/own"), b"own");
    mode(&copy.join("small/own"), 0o600);
    let large = fs::metadata(copy.join("large")).unwrap().ino();
    put(&top.join("small/7"), &bytes(700, 99));
    put(&top.join("new"), &bytes(200_000, 5));
    let report = push_all(&world, open(&top));
    let total = open(&top).manifest().bytes;
    for host in &report.hosts {
        assert!(host.resumed_bytes > total / 2 && host.resumed_bytes < total, "{host:?}");
    }
    for host in [0, 2] {
        assert_eq!(describe(&world.path(&format!("copy-{host}"))), describe(&top));
    }
    let mut expected = describe(&top);
    let found = describe(&copy);
    for own in [&b"its own"[..], b"its own/file", b"small/own"] {
        expected.insert(own.to_vec(), found[own].clone());
    }
    assert_eq!(found, expected);
    assert_eq!(fs::metadata(copy.join("large")).unwrap().ino(), large, "it is kept, not copied");
}

#[test]
fn changes_that_keep_length_and_time_are_found_by_contents_only() {
    let world = World::with(b"");
    let top = tree(&world);
    push_all(&world, open(&top));
    let hidden = world.path("copy-0").join("a/deep/path/to/file");
    put(&hidden, b"DEEP");
    push_all(&world, open(&top));
    assert_eq!(fs::read(&hidden).unwrap(), b"DEEP", "length and time are equal");
    let report = push_all(&world, open(&top).by_contents(true));
    assert_eq!(describe(&world.path("copy-0")), describe(&top));
    assert!(!report.hosts[0].was_there && report.hosts[1].was_there, "{report:?}");
    // A host that keeps such a file does not pass it on.
    put(&hidden, b"DEEP");
    fs::remove_dir_all(world.path("copy-1")).unwrap();
    push_all(&world, open(&top));
    assert_eq!(describe(&world.path("copy-1")), describe(&top));
}

#[test]
fn a_tree_is_written_in_place() {
    let world = World::with(b"");
    let top = tree(&world);
    push_all(&world, open(&top));
    let copy = world.path("copy-0");
    let inode = fs::metadata(&copy).unwrap().ino();
    put(&copy.join("own"), b"own");
    put(&top.join("small/7"), &bytes(700, 99));
    fs::remove_file(top.join("small/link")).unwrap();
    symlink("7", top.join("small/link")).unwrap();
    fs::remove_file(top.join("small/second name")).unwrap();
    fs::hard_link(top.join("small/7"), top.join("small/second name")).unwrap();
    mode(&top.join("small/8"), 0o711);
    fs::remove_dir(copy.join("nothing in it")).unwrap();
    push_all(&world, open(&top));
    fs::remove_file(copy.join("own")).unwrap();
    assert_eq!(fs::metadata(&copy).unwrap().ino(), inode);
    for host in 0..3 {
        let found = describe(&world.path(&format!("copy-{host}")));
        assert_eq!(found, describe(&top));
    }
}

#[test]
fn links_that_lead_out_become_what_they_lead_to_once() {
    let world = World::with(b"");
    let top = world.path("tree");
    put(&world.path("store/blob"), &bytes(50_000, 3));
    fs::create_dir(&top).unwrap();
    put(&top.join("excluded"), b"in the tree");
    for name in ["one", "two"] {
        symlink("../store/blob", top.join(name)).unwrap();
    }
    symlink(world.path("store/blob"), top.join("three")).unwrap();
    put(&top.join("d/inside"), b"inside");
    symlink(fs::canonicalize(&top).unwrap().join("d/inside"), top.join("d/absolute")).unwrap();
    symlink("excluded", top.join("to what is not sent")).unwrap();
    let selection = Selection::new(&[Rule::Exclude("/tree/excluded".into())]).unwrap();
    let source = Source::of(std::slice::from_ref(&top), &ListOptions::new(selection)).unwrap();
    assert_eq!(source.manifest().bytes, 50_000 + 11 + 6);
    push_all(&world, source);
    let copy = world.path("copy-0");
    let inode = |name: &str| fs::symlink_metadata(copy.join(name)).unwrap().ino();
    assert_eq!(fs::read(copy.join("one")).unwrap(), bytes(50_000, 3));
    assert!(inode("one") == inode("two") && inode("one") == inode("three"));
    assert_eq!(fs::read(copy.join("to what is not sent")).unwrap(), b"in the tree");
    assert!(!copy.join("excluded").exists());
    assert_eq!(fs::read_link(copy.join("d/absolute")).unwrap(), Path::new("../d/inside"));
}

#[test]
fn several_sources_go_into_a_directory_under_their_names() {
    let world = World::with(b"the object");
    let top = tree(&world);
    put(&world.path("other/inner"), b"inner");
    put(&world.path("copy-1/stays"), b"stays");
    assert!(!world.path("copy-0").exists(), "it is made");
    put(&world.path("copy-1/tree/small/stays, too"), b"stays");
    let sources = [
        top.clone(),
        world.path("object"),
        PathBuf::from(format!("{}/", world.path("other").display())),
    ];
    let open = || Source::of(&sources, &everything()).unwrap();
    push_all(&world, open());
    for host in 0..3 {
        let copy = world.path(&format!("copy-{host}"));
        assert_eq!(fs::read(copy.join("object")).unwrap(), b"the object");
        assert_eq!(fs::read(copy.join("inner")).unwrap(), b"inner");
        let mut found = describe(&copy.join("tree"));
        assert_eq!(found.remove(&b"small/stays, too"[..]).is_some(), host == 1);
        assert_eq!(found, describe(&top));
    }
    assert_eq!(fs::read(world.path("copy-1/stays")).unwrap(), b"stays");
    let hidden = |entry: fs::DirEntry| entry.file_name().to_string_lossy().contains(".rdmc-");
    assert!(!fs::read_dir(world.path("copy-1")).unwrap().flatten().any(hidden));
    let report = push_all(&world, open());
    assert!(report.hosts.iter().all(|host| host.was_there), "{report:?}");
}

#[test]
fn what_cannot_be_sent_is_named_before_anything_is() {
    let world = World::with(b"");
    let refused = |make: &dyn Fn(&Path)| {
        let top = world.path("bad");
        fs::create_dir(&top).unwrap();
        make(&top);
        let error = Source::of(std::slice::from_ref(&top), &everything()).unwrap_err().to_string();
        fs::remove_dir_all(&top).unwrap();
        error
    };
    let dangling = refused(&|top| symlink("nowhere", top.join("link")).unwrap());
    assert!(dangling.contains("bad/link is a symbolic link to nowhere"), "{dangling}");
    let looped = refused(&|top| symlink("link", top.join("link")).unwrap());
    assert!(looped.contains("bad/link is a symbolic link"), "{looped}");
    let outside = refused(&|top| symlink("..", top.join("link")).unwrap());
    assert!(outside.contains("push that directory as well"), "{outside}");
    let pipe = refused(&|top| {
        let status = std::process::Command::new("mkfifo").arg(top.join("pipe")).status().unwrap();
        assert!(status.success());
    });
    assert!(pipe.contains("bad/pipe is a pipe"), "{pipe}");
    let missing = Source::of(&[world.path("missing")], &everything()).unwrap_err();
    assert!(missing.to_string().contains("does not exist"), "{missing}");
    let twice = [world.path("a/x"), world.path("b/x")];
    let twice = Source::of(&twice, &everything()).unwrap_err().to_string();
    assert!(twice.contains("have the same name"), "{twice}");
}

#[test]
fn a_file_that_changes_ends_the_push_and_leaves_what_was_there() {
    let world = World::with(b"");
    let top = tree(&world);
    push_all(&world, open(&top));
    put(&top.join("small/3"), b"the second version");
    let source = open(&top);
    put(&top.join("small/3"), b"the third version, of another length");
    let report = push(&world, source, &["host-0"]);
    let error = report.error.as_ref().unwrap().to_string();
    assert!(error.contains("small/3 changed while it was sent"), "{error}");
    assert_eq!(fs::read(world.path("copy-0/small/3")).unwrap(), bytes(3 * 97, 3));
    assert_eq!(world.temporaries(), 0, "of a source that has changed nothing is kept");
}

#[test]
fn what_must_not_be_replaced_is_named() {
    let world = World::with(b"");
    let top = tree(&world);
    put(&world.path("copy-0"), b"a file");
    put(&world.path("copy-1/empty/file"), b"a file");
    symlink("tree", world.path("copy-2")).unwrap();
    let report = push(&world, open(&top), &["host-0", "host-1", "host-2"]);
    assert_eq!(report.published(), 0);
    assert!(failure(&report, 0).contains("copy-0 is a file and will not be replaced"));
    let directory = failure(&report, 1);
    assert!(
        directory.contains("copy-1/empty is a directory, but a file needs its name"),
        "{directory}"
    );
    assert!(failure(&report, 2).contains("a symbolic link to a directory"));
    assert_eq!(fs::read(world.path("copy-0")).unwrap(), b"a file");
}

/// What a session leaves that is killed while it publishes: links to files of the existing tree, and others.
#[test]
fn leftovers_of_a_killed_session_do_no_damage() {
    let world = World::with(b"");
    let top = world.path("tree");
    for number in 0..40 {
        put(&top.join(format!("{number}")), &bytes(500_000, number));
    }
    let copy = world.path("copy-0");
    put(&copy.join("3"), b"a live file");
    let push_partly =
        world.open_with(open(&top), 1, |settings| settings.block_bytes = Some(10_000));
    let receptions = world.receive(&push_partly, &["host-0"]);
    let handle = push_partly.handle();
    push_partly.run(&mut |event| {
        if matches!(event, files::PushEvent::Progress { .. }) {
            handle.cancel();
        }
    });
    drop(joined(receptions));
    let hidden = fs::read_dir(world.directory()).unwrap().flatten().map(|entry| entry.path());
    let hidden = hidden.filter(|path| path.to_string_lossy().contains(".rdmc-")).last();
    let Some(hidden) = hidden else {
        println!("SKIPPED: the copy was complete before it could be cancelled");
        return;
    };
    let _ = fs::remove_file(hidden.join("3"));
    fs::hard_link(copy.join("3"), hidden.join("3")).unwrap();
    fs::hard_link(copy.join("3"), world.path("live")).unwrap();
    put(&hidden.join("junk/file"), b"not of the tree");
    let _ = fs::remove_file(hidden.join("5"));
    symlink("../live", hidden.join("5")).unwrap();
    let report = push(&world, open(&top), &["host-0"]);
    assert_eq!(report.published(), 1, "{report:?}");
    assert_eq!(fs::read(world.path("live")).unwrap(), b"a live file");
    assert_eq!(describe(&copy), describe(&top));
    assert_eq!(world.temporaries(), 0);
}

#[test]
fn a_kept_file_that_changes_meanwhile_is_named() {
    let world = World::with(b"");
    let top = tree(&world);
    push_all(&world, open(&top));
    put(&top.join("small/7"), &bytes(700, 99));
    let changed = world.path("copy-0/large");
    let push = world.open_with(open(&top), 1, |_| {});
    let receptions = world.receive(&push, &["host-0"]);
    let report = push.run(&mut |event| {
        if matches!(event, files::PushEvent::Round { .. }) {
            fs::write(&changed, bytes(3_000_000, 2)).unwrap();
        }
    });
    assert!(joined(receptions)[0].is_err());
    let reason = failure(&report, 0);
    assert!(reason.contains("copy-0/large was changed while it was compared"), "{reason}");
    assert_eq!(fs::read(&changed).unwrap(), bytes(3_000_000, 2));
}

#[test]
fn an_interrupted_copy_is_resumed() {
    let world = World::with(b"");
    let top = world.path("tree");
    for number in 0..40 {
        put(&top.join(format!("{number}")), &bytes(500_000, number));
    }
    let source = || open(&top);
    let cancelled = world.open_with(source(), 1, |settings| settings.block_bytes = Some(10_000));
    let receptions = world.receive(&cancelled, &["host-0"]);
    let handle = cancelled.handle();
    let report = cancelled.run(&mut |event| {
        if matches!(event, files::PushEvent::Progress { bytes, .. } if bytes > 5_000_000) {
            handle.cancel();
        }
    });
    let outcome = joined(receptions).remove(0);
    if report.published() == 1 {
        println!("SKIPPED: the copy was complete before it could be cancelled");
        return;
    }
    assert!(outcome.is_err() && !world.path("copy-0").exists());
    assert_eq!(world.temporaries(), 1);
    let report = push(&world, source(), &["host-0"]);
    assert_eq!(report.published(), 1, "{report:?}");
    assert!(report.hosts[0].resumed_bytes > 2_000_000, "{report:?}");
    assert_eq!(describe(&world.path("copy-0")), describe(&top));
    assert_eq!(world.temporaries(), 0);
}
