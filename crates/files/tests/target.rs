//! Copies are invisible until they are whole, and leave nothing when they are abandoned.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use files::{Manifest, Target, TargetError, Verified};

const MODIFIED_NS: i64 = 1_234_567_890_123_456_789;

fn manifest(bytes: u64) -> Manifest {
    Manifest { name: "object".into(), bytes, mode: 0o604, modified_ns: MODIFIED_NS }
}

fn proof() -> Verified {
    Verified::compare(blake3::hash(b"x"), blake3::hash(b"x")).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy");
    (directory, path)
}

#[test]
fn a_copy_appears_whole_with_mode_and_time_and_replaces_the_old_one() {
    let (directory, path) = place();
    fs::write(&path, "old").unwrap();
    let target = Target::create(&path, manifest(100_000)).unwrap();
    let found = names(directory.path());
    assert!(found.len() == 3 && found[0].starts_with(".copy.rdmc-"), "{found:?}");
    assert_eq!(found[1..], [".copy.rdmc-lock", "copy"]);
    target.region().unwrap().write_stored(0..100_000).unwrap().copy_from(&[5; 100_000]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old", "not before it is published");
    target.publish(&proof()).unwrap();
    assert_eq!(names(directory.path()), ["copy"]);
    assert_eq!(fs::read(&path).unwrap(), vec![5; 100_000]);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o604);
    assert_eq!(metadata.modified().unwrap(), manifest(0).modified());
}

#[test]
fn an_abandoned_copy_leaves_nothing() {
    let (directory, path) = place();
    drop(Target::create(&path, manifest(10)).unwrap());
    assert!(names(directory.path()).is_empty());
}

#[test]
fn an_empty_copy_is_a_copy() {
    let (_directory, path) = place();
    let target = Target::create(&path, manifest(0)).unwrap();
    assert!(target.region().unwrap().is_empty());
    target.publish(&proof()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn different_digests_are_a_mismatch() {
    let error = Verified::compare(blake3::hash(b"a"), blake3::hash(b"b")).unwrap_err();
    assert!(matches!(error, TargetError::Mismatch { .. }), "{error}");
}

#[test]
fn what_cannot_be_written_is_named_with_the_remedy() {
    let (directory, path) = place();
    let refused = |path: &Path| Target::create(path, manifest(1)).unwrap_err().to_string();
    let missing = refused(&directory.path().join("no/copy"));
    assert!(missing.contains("/no does not exist; create it first"), "{missing}");
    let a_directory = refused(directory.path());
    assert!(a_directory.contains("is a directory and will not be replaced"), "{a_directory}");
    for nothing in ["", "/", ".."] {
        let no_name = refused(Path::new(nothing));
        assert!(
            no_name.contains(&format!("{nothing:?} does not name a file; name one")),
            "{no_name}"
        );
    }
    assert!(refused(Path::new("/dev/null")).contains("not a regular file"));
    fs::write(&path, "").unwrap();
    let below_a_file = refused(&path.join("copy"));
    assert!(below_a_file.contains("cannot"), "{below_a_file}");
}

#[test]
fn a_length_beyond_any_disk_is_refused_at_once() {
    let (directory, path) = place();
    // Beyond the longest file of the file system, so that nothing is ever reserved.
    let error = Target::create(&path, manifest(i64::MAX as u64 / 2)).unwrap_err();
    assert!(matches!(error, TargetError::NoSpace { .. }), "{error}");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_directory_created_meanwhile_at_the_destination_is_not_replaced() {
    let (directory, path) = place();
    let target = Target::create(&path, manifest(1)).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(target.publish(&proof()), Err(TargetError::InTheWay { .. })));
    let found = names(directory.path());
    assert!(found.len() == 2 && found[1] == "copy", "what was received is kept: {found:?}");
}

#[test]
fn the_longest_names_work() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["n".repeat(255), "\u{e4}".repeat(127)] {
        let path = directory.path().join(&name);
        Target::create(&path, manifest(3)).unwrap().publish(&proof()).unwrap();
        assert!(path.exists());
    }
}

#[test]
fn names_too_long_for_any_file_system_are_refused_before_data_arrives() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |name: &str| {
        Target::create(&directory.path().join(name), manifest(3)).unwrap_err().to_string()
    };
    assert!(refused(&"n".repeat(256)).contains("longer than 255 bytes; choose a shorter --dest"));
    assert!(refused("a\0b").contains("does not name a file"));
    assert!(names(directory.path()).is_empty());
}

#[test]
fn devices_pipes_and_links_to_them_are_not_replaced_or_opened() {
    let (directory, path) = place();
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    // Opening a pipe would block until its other end is opened.
    let refused = |path: &Path| Target::create(path, manifest(1)).unwrap_err().to_string();
    assert!(refused(&pipe).contains("is not a regular file and will not be replaced"));
    assert!(refused(&pipe.join("copy")).contains("cannot write in"));
    for (target, kind) in [("/dev/null", "not a regular file"), ("/", "a directory")] {
        symlink(target, &path).unwrap();
        assert!(refused(&path).contains(kind), "{target}");
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(names(directory.path()), ["pipe"]);
}

#[test]
fn a_link_is_replaced_and_what_it_leads_to_stays() {
    let (directory, path) = place();
    let other = directory.path().join("other");
    fs::write(&other, "precious").unwrap();
    for target in ["other", "missing"] {
        symlink(target, &path).unwrap();
        Target::create(&path, manifest(3)).unwrap().publish(&proof()).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"precious");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(names(directory.path()), ["other"]);
}

#[test]
fn names_that_differ_in_case_or_composition_are_different_files() {
    let directory = tempfile::tempdir().unwrap();
    let twins = ["copy", "COPY", "\u{e9}", "e\u{301}"];
    for name in twins {
        let path = directory.path().join(name);
        Target::create(&path, manifest(1)).unwrap().publish(&proof()).unwrap();
    }
    let mut sorted = twins;
    sorted.sort_unstable();
    assert_eq!(names(directory.path()), sorted);
}

#[test]
fn setuid_bits_are_not_copied() {
    let (_directory, path) = place();
    let program = Manifest { mode: 0o107_755, ..manifest(1) };
    Target::create(&path, program).unwrap().publish(&proof()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
}

/// A receiver that was killed while it published may leave a file of any mode.
#[test]
fn a_partial_copy_of_any_mode_does_not_block_the_next_session() {
    for mode in [0o400, 0o600, 0o640, 0o644, 0o666, 0o000, 0o444, 0o777, 0o4755] {
        let (directory, path) = place();
        let target = Target::create(&path, manifest(100_000)).unwrap();
        target
            .region()
            .unwrap()
            .write_stored(0..100_000)
            .unwrap()
            .copy_from(&[5; 100_000])
            .unwrap();
        target.keep();
        let left = directory.path().join(&names(directory.path())[0]);
        fs::set_permissions(&left, fs::Permissions::from_mode(mode)).unwrap();
        // Of the same version, and then of another one.
        for version in [manifest(100_000), Manifest { modified_ns: 1, ..manifest(100_000) }] {
            let target = Target::create(&path, version).unwrap();
            assert_eq!(hidden_mode(directory.path()), 0o600, "of {mode:o}");
            target
                .region()
                .unwrap()
                .write_stored(0..100_000)
                .unwrap()
                .copy_from(&[6; 100_000])
                .unwrap();
            target.publish(&proof()).unwrap();
            assert_eq!(names(directory.path()), ["copy"], "of {mode:o}");
            assert_eq!(fs::read(&path).unwrap(), vec![6; 100_000]);
        }
    }
}

#[test]
fn a_partial_copy_keeps_no_space_for_what_was_not_written() {
    const BYTES: usize = 8 << 20;
    let (directory, path) = place();
    let target = Target::create(&path, manifest(BYTES as u64)).unwrap();
    let written = vec![5; 1 << 20];
    target.region().unwrap().write_stored(0..1 << 20).unwrap().copy_from(&written).unwrap();
    let blocks =
        || fs::metadata(directory.path().join(partial(directory.path()))).unwrap().blocks();
    let reserved = blocks() * 512;
    target.keep();
    // In memory nothing is reserved.
    assert!(reserved == 1 << 20 || reserved >= BYTES as u64, "{reserved} bytes");
    assert!(blocks() * 512 < 2 << 20, "{} bytes", blocks() * 512);
    let again = Target::create(&path, manifest(BYTES as u64)).unwrap();
    again.region().unwrap().write_stored(0..BYTES).unwrap().copy_from(&vec![6; BYTES]).unwrap();
    again.publish(&proof()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![6; BYTES]);
}

/// The mode of the partial copy.
fn hidden_mode(directory: &Path) -> u32 {
    fs::metadata(directory.join(partial(directory))).unwrap().permissions().mode() & 0o7777
}

fn partial(directory: &Path) -> String {
    let is_partial = |name: &String| name.contains(".rdmc-") && !name.ends_with("lock");
    names(directory).into_iter().find(is_partial).unwrap()
}

#[test]
fn long_names_with_a_common_prefix_have_separate_partial_copies() {
    let directory = tempfile::tempdir().unwrap();
    let sibling = |end: &str| directory.path().join("n".repeat(250) + end);
    let one = Target::create(&sibling("one"), manifest(3)).unwrap();
    let two = Target::create(&sibling("two"), manifest(3)).unwrap();
    one.region().unwrap().write_stored(0..3).unwrap().copy_from(&[1; 3]).unwrap();
    two.region().unwrap().write_stored(0..3).unwrap().copy_from(&[2; 3]).unwrap();
    one.publish(&proof()).unwrap();
    two.publish(&proof()).unwrap();
    assert_eq!(fs::read(sibling("one")).unwrap(), [1; 3]);
    assert_eq!(fs::read(sibling("two")).unwrap(), [2; 3]);
}

#[test]
fn one_session_at_a_time_owns_a_destination() {
    let (directory, path) = place();
    let first = Target::create(&path, manifest(3)).unwrap();
    for other in [manifest(3), manifest(4), Manifest { name: "other".into(), ..manifest(3) }] {
        let busy = Target::create(&path, other).unwrap_err().to_string();
        assert!(busy.contains("is already being written"), "{busy}");
        assert!(busy.contains(&format!("process {}", std::process::id())), "{busy}");
    }
    first.region().unwrap().write_stored(0..3).unwrap().copy_from(&[1; 3]).unwrap();
    first.publish(&proof()).unwrap();
    let second = Target::create(&path, manifest(4)).unwrap();
    second.region().unwrap().write_stored(0..4).unwrap().copy_from(&[2; 4]).unwrap();
    second.publish(&proof()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [2; 4]);
    assert_eq!(names(directory.path()), ["copy"]);
}
