//! Sources that change, and disks that fail, in the middle of a push.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use files::{HostState, ListOptions, Push, PushError, PushEvent, PushReport, Source, SourceError};

use crate::session::{SmallDisk, World, failure, joined};

/// Runs a push, and does something as soon as it is at this event.
fn run(
    world: &World,
    push: Push,
    hosts: usize,
    is_time: impl Fn(&PushEvent) -> bool,
    act: impl FnOnce(),
) -> PushReport {
    let names: Vec<String> = (0..hosts).map(|host| format!("host-{host}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let receptions = world.receive(&push, &names);
    let mut act = Some(act);
    let report = push.run(&mut |event| {
        if is_time(&event)
            && let Some(act) = act.take()
        {
            act();
        }
    });
    joined(receptions);
    assert!(act.is_none(), "nothing was done: {report:?}");
    report
}

/// A host has all data; it has not published them.
fn has_come(event: &PushEvent) -> bool {
    matches!(event, PushEvent::Host { state: HostState::Received, .. })
}

/// Groups start: all targets are there, and nothing has been received.
fn begins(event: &PushEvent) -> bool {
    matches!(event, PushEvent::Round { .. })
}

fn tree(world: &World) -> PathBuf {
    let top = world.path("tree");
    fs::create_dir_all(top.join("sub")).unwrap();
    for (name, bytes) in [("a", 300_000), ("b", 10), ("sub/c", 70_000)] {
        fs::write(top.join(name), vec![7; bytes]).unwrap();
    }
    top
}

#[test]
fn nothing_is_published_of_a_tree_that_has_changed_meanwhile() {
    let new = |path: &Path| fs::write(path, [8; 10]).unwrap();
    type Change<'a> = (&'a str, &'a str, &'a dyn Fn(&Path));
    let changes: [Change<'_>; 6] = [
        ("b", "it was removed or renamed", &|top| fs::remove_file(top.join("b")).unwrap()),
        ("b", "another file has its name", &|top| {
            new(&top.with_file_name("new"));
            fs::rename(top.with_file_name("new"), top.join("b")).unwrap();
        }),
        ("sub", "it was removed or renamed", &|top| {
            fs::rename(top.join("sub"), top.join("tub")).unwrap();
        }),
        ("sub/d", "it was added", &|top| new(&top.join("sub/d"))),
        ("a", "and is 604", &|top| {
            fs::set_permissions(top.join("a"), fs::Permissions::from_mode(0o604)).unwrap();
        }),
        ("a", "it had 300000 bytes and has 300001", &|top| {
            let mut file = fs::File::options().append(true).open(top.join("a")).unwrap();
            file.write_all(b"x").unwrap();
        }),
    ];
    for (path, what, change) in changes {
        let world = World::with(b"");
        let top = tree(&world);
        fs::create_dir(world.path("copy-0")).unwrap();
        fs::write(world.path("copy-0/b"), "old").unwrap();
        let source = Source::of(std::slice::from_ref(&top), &ListOptions::default()).unwrap();
        let push = world.open_with(source, 2, |_| {});
        let report = run(&world, push, 2, has_come, || change(&top));
        let Some(PushError::Source(SourceError::Changed { path: changed, what: how })) =
            &report.error
        else {
            panic!("{path}, {what}: {report:?}")
        };
        assert_eq!(*changed, top.join(path), "{what}");
        assert!(how.contains(what), "{path}: {how}");
        assert_eq!(report.published(), 0, "{report:?}");
        assert_eq!(fs::read(world.path("copy-0/b")).unwrap(), b"old");
        assert!(!world.path("copy-1").exists());
    }
}

#[test]
fn nothing_is_published_of_a_file_that_has_changed_meanwhile() {
    let world = World::with(&[1; 100_000]);
    let object = world.path("object");
    let push = world.open(2, |_| {});
    let report = run(&world, push, 2, has_come, || {
        fs::set_permissions(&object, fs::Permissions::from_mode(0o604)).unwrap();
    });
    let error = report.error.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(error.contains("object changed") && error.contains("and is 604"), "{report:?}");
    assert!(report.published() == 0 && !world.path("copy-0").exists(), "{report:?}");
}

#[test]
fn a_file_of_the_source_that_cannot_be_read_ends_the_push_by_name() {
    let world = World::with(b"");
    let top = tree(&world);
    let source = Source::of(std::slice::from_ref(&top), &ListOptions::default()).unwrap();
    let push = world.open_with(source, 2, |_| {});
    let report = run(&world, push, 2, begins, || {
        fs::rename(top.join("sub"), top.with_file_name("away")).unwrap();
        fs::write(top.join("sub"), "a file").unwrap();
    });
    let error = report.error.as_ref().map(ToString::to_string).unwrap_or_default();
    let path = top.join("sub/c").display().to_string();
    assert!(error.contains(&path) && error.contains("(os error 20)"), "{report:?}");
    assert_eq!(report.published(), 0, "{report:?}");
}

#[test]
fn a_receiver_whose_storage_fails_says_so_and_the_others_get_their_copies() {
    let world = World::with(b"");
    let source = Source::of(&[tree(&world)], &ListOptions::default()).unwrap();
    let push = world.open_with(source, 4, |_| {});
    let report = run(&world, push, 4, begins, || {
        let names = fs::read_dir(world.directory()).unwrap().flatten();
        let mut paths = names.map(|entry| entry.path()).filter(|path| path.is_dir());
        let staged = paths.find(|path| path.to_string_lossy().contains("copy-2.rdmc-"));
        fs::remove_dir_all(staged.expect("the staging directory of host 2")).unwrap();
    });
    let reason = failure(&report, 2);
    let path = world.path("copy-2").display().to_string();
    assert!(reason.starts_with("cannot ") && reason.contains(&path), "{reason}");
    assert!(reason.contains("was removed"), "{reason}");
    assert!(report.error.is_none() && report.published() == 3, "{report:?}");
}

#[test]
fn a_disk_that_fills_up_is_named_with_the_path_and_the_remedy() {
    for is_tree in [false, true] {
        let world = World::with(&[1; 4 << 20]);
        let Some(disk) = SmallDisk::mount(world.path("small"), "size=6M") else {
            eprintln!("SKIPPED: a small file system needs root, to mount it");
            return;
        };
        let copy = disk.0.join("copy");
        let source = match is_tree {
            false => Source::open(&world.path("object")).unwrap(),
            true => {
                let top = tree(&world);
                fs::write(top.join("sub/large"), vec![3; 4 << 20]).unwrap();
                Source::of(std::slice::from_ref(&top), &ListOptions::default()).unwrap()
            }
        };
        let push = world.open_with(source, 3, |settings| {
            copy.to_str().unwrap().clone_into(&mut settings.hosts[1].destination);
        });
        let report = run(&world, push, 3, begins, || {
            let mut filler = fs::File::create(disk.0.join("filler")).unwrap();
            while filler.write_all(&[0; 4096]).is_ok() {}
        });
        let reason = failure(&report, 1);
        assert!(reason.contains(copy.to_str().unwrap()), "{reason}");
        assert!(reason.contains("(os error 28); free some space"), "{reason}");
        assert!(report.error.is_none() && report.published() == 2, "{report:?}");
    }
}

/// A file system that does not take all names, until it is dropped.
struct Exfat {
    device: String,
    at: PathBuf,
}

impl Exfat {
    fn mount(world: &World) -> Option<Self> {
        let (image, at) = (world.path("image"), world.path("exfat"));
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        fs::create_dir(&at).unwrap();
        let attached = Command::new("losetup").args(["-f", "--show"]).arg(&image).output().ok()?;
        let device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
        let disk = Self { device, at };
        let runs = |command: &mut Command| command.output().is_ok_and(|it| it.status.success());
        let is_mounted = attached.status.success()
            && runs(Command::new("mkfs.exfat").arg(&disk.device))
            && runs(Command::new("mount.exfat-fuse").arg(&disk.device).arg(&disk.at));
        is_mounted.then_some(disk)
    }
}

impl Drop for Exfat {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).output();
        let _ = Command::new("losetup").args(["-d", &self.device]).output();
    }
}

#[test]
fn a_name_that_a_file_system_refuses_is_named_with_the_path_and_the_remedy() {
    let world = World::with(b"");
    let Some(disk) = Exfat::mount(&world) else {
        eprintln!("SKIPPED: exFAT needs root, exfat-fuse and exfatprogs");
        return;
    };
    let top = tree(&world);
    fs::write(top.join("sub/a:b?"), "contents").unwrap();
    let source = Source::of(std::slice::from_ref(&top), &ListOptions::default()).unwrap();
    let copy = disk.at.join("copy");
    let push = world.open_with(source, 2, |settings| {
        copy.to_str().unwrap().clone_into(&mut settings.hosts[0].destination);
    });
    let report = run(&world, push, 2, begins, || {});
    let reason = failure(&report, 0);
    let path = copy.join("sub/a:b?").display().to_string();
    assert!(reason.contains(&path) && reason.contains("(os error "), "{reason}");
    assert!(reason.contains("has no such names"), "{reason}");
    assert!(report.error.is_none() && report.published() == 1, "{report:?}");
}

#[test]
fn names_that_a_file_system_takes_for_one_are_named_and_nothing_is_lost() {
    let files = |names: &[(&str, usize)]| {
        let names = names.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes));
        names.collect::<Vec<(String, usize)>>()
    };
    // Two short files; two long ones, of which one exists; directories.
    for (names, existing) in [
        (files(&[("README", 3), ("readme", 2)]), None),
        (files(&[("Model", 3 << 20), ("model", 2 << 20)]), None),
        (files(&[("Model", 3 << 20), ("model", 2 << 20)]), Some("Model")),
        (files(&[("Data/x", 10), ("data/y", 10)]), None),
    ] {
        let world = World::with(b"");
        let Some(disk) = Exfat::mount(&world) else {
            eprintln!("SKIPPED: exFAT needs root, exfat-fuse and exfatprogs");
            return;
        };
        let top = world.path("tree");
        for (number, (name, bytes)) in names.iter().enumerate() {
            fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
            fs::write(top.join(name), vec![number as u8; *bytes]).unwrap();
        }
        let copy = disk.at.join("copy");
        if let Some(existing) = existing {
            fs::create_dir(&copy).unwrap();
            fs::copy(top.join(existing), copy.join(existing)).unwrap();
        }
        let source = Source::of(std::slice::from_ref(&top), &ListOptions::default()).unwrap();
        let push = world.open_with(source, 1, |settings| {
            copy.to_str().unwrap().clone_into(&mut settings.hosts[0].destination);
        });
        let receptions = world.receive(&push, &["host-0"]);
        let report = push.run(&mut |_| {});
        joined(receptions);
        let reason = failure(&report, 0);
        let first = |name: &str| copy.join(name.split('/').next().unwrap()).display().to_string();
        for (name, _) in &names {
            assert!(reason.contains(&first(name)), "{name} is not named: {reason}");
        }
        assert!(reason.contains("does not distinguish their names"), "{reason}");
        if let Some(existing) = existing {
            let found = fs::read(copy.join(existing)).unwrap();
            assert_eq!(found, fs::read(top.join(existing)).unwrap());
        }
    }
}
