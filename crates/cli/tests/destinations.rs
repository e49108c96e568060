//! Destinations as hosts have them: mounts, links, directories of others, file systems in layers. Needs root, to make them.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{Outcome, Place, RDMC};

const USER: u32 = 1500;
const OTHER: u32 = 1600;

pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: needs root, to be several users and to mount file systems");
    }
    is_root
}

/// A directory that every user can enter, with a source `src` of a file `f` and a file `d/g`, and the program.
pub struct Hosts {
    place: Place,
    rdmc: PathBuf,
}

impl Hosts {
    pub fn new() -> Self {
        let place = Place::with(0);
        fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(place.path("src/d")).unwrap();
        fs::write(place.path("src/f"), "new").unwrap();
        fs::write(place.path("src/d/g"), "new").unwrap();
        let rdmc = place.path("rdmc");
        // Not by this process: a child that is started meanwhile would have it open for writing.
        assert!(Command::new("cp").arg(RDMC).arg(&rdmc).status().unwrap().success());
        fs::set_permissions(&rdmc, fs::Permissions::from_mode(0o755)).unwrap();
        Self { place, rdmc }
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.place.path(relative)
    }

    /// Pushes with these words, `{}` being the directory of all, as a user.
    pub fn push_as(&self, user: u32, words: &str) -> Outcome {
        let words = words.replace("{}", self.path("").to_str().unwrap().trim_end_matches('/'));
        let id = user.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
        command.arg(&self.rdmc).arg("push").args(words.split(' ')).args(["--local", "1"]);
        self.run(command)
    }

    pub fn push_as_oneself(&self, words: &str) -> Outcome {
        let words = words.replace("{}", self.path("").to_str().unwrap().trim_end_matches('/'));
        let mut command = Command::new(&self.rdmc);
        command.arg("push").args(words.split(' ')).args(["--local", "1"]);
        self.run(command)
    }

    pub fn push(&self, words: &str) -> Outcome {
        self.push_as(0, words)
    }

    /// Runs a shell in which file systems can be mounted, which no other process sees. `$R` pushes to one host.
    pub fn shell(&self, script: &str) -> Outcome {
        let push = format!("set -e; R() {{ {} push \"$@\" --local 1; }}; ", self.rdmc.display());
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &(push + script)]);
        self.run(command)
    }

    fn run(&self, mut command: Command) -> Outcome {
        command.current_dir(self.path("")).env("RDMC_CONFIG", "/dev/null");
        command.env("RDMC_PROGRESS", "none").env_remove("RUST_LOG");
        Outcome::of(command.output().unwrap())
    }

    /// Makes a directory of this owner and mode.
    fn directory(&self, path: &str, owner: u32, mode: u32) -> PathBuf {
        let path = self.path(path);
        fs::create_dir(&path).unwrap();
        own(&path, owner, mode);
        path
    }
}

fn own(path: &Path, owner: u32, mode: u32) {
    chown(path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Owner, group and mode.
fn owner(path: &Path) -> (u32, u32, u32) {
    let stat = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    (stat.uid(), stat.gid(), stat.mode() & 0o7777)
}

/// Whether a script that mounts a file system works here; else says what it needs.
fn can_mount(script: &str, needs: &str) -> bool {
    let can = Hosts::new().shell(script).code == Some(0);
    if !can {
        eprintln!("SKIPPED: {needs}");
    }
    can
}

#[test]
fn directories_of_the_host_keep_owner_group_mode_and_attributes() {
    if !is_root() {
        return;
    }
    for option in ["", " --atomic"] {
        let hosts = Hosts::new();
        hosts.directory("dst", 0, 0o755);
        let top = hosts.directory("dst/src", USER, 0o2775);
        let inner = hosts.directory("dst/src/d", USER, 0o755);
        let private = hosts.directory("dst/src/logs", OTHER, 0o700);
        let attribute = |path: &Path, name: &str| {
            let mut read = Command::new("getfattr");
            let read = read.args(["-n", name, "--only-values"]).arg(path).output();
            read.map_or_else(|_| "value".to_owned(), |it| String::from_utf8(it.stdout).unwrap())
        };
        for path in [&top, &private] {
            let set = ["-n", "user.mine", "-v", "value"];
            match Command::new("setfattr").args(set).arg(path).status() {
                Ok(status) => assert!(status.success()),
                Err(_) => eprintln!("SKIPPED: attributes need setfattr (Debian: attr)"),
            }
        }
        let inodes = |paths: &[&PathBuf]| -> Vec<u64> {
            paths.iter().map(|path| fs::metadata(path).unwrap().ino()).collect()
        };
        let before = inodes(&[&top, &inner, &private]);
        let outcome = hosts.push(&format!("src --dest {{}}/dst{option}"));
        assert_eq!(outcome.code, Some(0), "{option}: {outcome:?}");
        assert_eq!(fs::read(top.join("d/g")).unwrap(), b"new");
        // The mode of what is in the source is the source's; the set-group-id bit stays.
        assert_eq!(owner(&top), (USER, USER, 0o2755), "{option}");
        assert_eq!(owner(&inner), (USER, USER, 0o755), "{option}");
        assert_eq!(owner(&private), (OTHER, OTHER, 0o700), "{option}");
        assert_eq!(attribute(&private, "user.mine"), "value", "{option}");
        assert_eq!(attribute(&top, "user.mine"), "value", "{option}");
        let after = inodes(&[&top, &inner, &private]);
        assert_eq!(before[2], after[2], "{option}");
        assert_eq!(before == after, option.is_empty(), "{option}");
    }
}

#[test]
fn a_directory_of_ones_own_below_a_foreign_one_is_a_destination() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new();
    // Nor can it be read.
    hosts.directory("scratch", 0, 0o711);
    let own = hosts.directory("scratch/me", USER, 0o755);
    let outcome = hosts.push_as(USER, "src/ --dest {}/scratch/me");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(fs::read(own.join("d/g")).unwrap(), b"new");
    // One that is read-only for its owner, as the source's was.
    fs::set_permissions(own.join("d"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(hosts.path("src/d"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::write(hosts.path("src/d/g"), "newer").unwrap();
    let outcome = hosts.push_as(USER, "src/ --dest {}/scratch/me");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(fs::read(own.join("d/g")).unwrap(), b"newer");
    assert_eq!(owner(&own.join("d")).2, 0o555);
    fs::write(hosts.path("src/f"), "newer").unwrap();
    let outcome = hosts.push_as(USER, "src/ --dest {}/scratch/me --atomic");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("cannot be exchanged as a whole"), "{outcome:?}");
}

#[test]
fn files_and_private_directories_of_others_stay_and_do_no_harm() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new();
    let shared = hosts.directory("shared", USER, 0o777);
    let private = hosts.directory("shared/private", OTHER, 0o700);
    let file = hosts.path("shared/his");
    fs::write(&file, "his").unwrap();
    own(&file, OTHER, 0o600);
    let outcome = hosts.push_as(USER, "src/ --dest {}/shared");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(fs::read(shared.join("f")).unwrap(), b"new");
    assert_eq!((owner(&private).0, owner(&file)), (OTHER, (OTHER, OTHER, 0o600)));
    // What cannot be written is refused before anything is sent.
    let foreign = hosts.directory("shared/d/inner", OTHER, 0o755);
    fs::create_dir(hosts.path("src/d/inner")).unwrap();
    fs::write(hosts.path("src/d/inner/x"), "x").unwrap();
    fs::write(hosts.path("src/f"), "newer").unwrap();
    let outcome = hosts.push_as(USER, "src/ --dest {}/shared");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let named = format!("no permission to write in {}", foreign.display());
    assert!(outcome.err.contains(&named), "{outcome:?}");
    assert_eq!(fs::read(shared.join("f")).unwrap(), b"new", "nothing is written");
    // So is the file of another in a directory with the sticky bit.
    let sticky = hosts.directory("sticky", 0, 0o1777);
    fs::write(sticky.join("f"), "his").unwrap();
    own(&sticky.join("f"), OTHER, 0o644);
    let outcome = hosts.push_as(USER, "src/ --dest {}/sticky");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("its directory has the sticky bit"), "{outcome:?}");
    assert!(!sticky.join("d").exists());
}

#[test]
fn directories_of_others_that_keep_their_modes_and_times_are_named() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new();
    let shared = hosts.directory("shared", OTHER, 0o777);
    let inner = hosts.directory("shared/d", OTHER, 0o777);
    let push = "src/ --dest {}/shared";
    for dry_run in [" -n", ""] {
        let outcome = hosts.push_as(USER, &format!("{push}{dry_run}"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let both = "local-1: 2 directories belong to other users and keep their modes and times: ";
        let first = format!("{both}{} is the first", shared.display());
        assert!(outcome.err.contains(&first), "{outcome:?}");
    }
    assert_eq!(fs::read(inner.join("g")).unwrap(), b"new");
    assert_eq!(owner(&inner), (OTHER, OTHER, 0o777));
    // They are no change that every push makes again.
    let host = hosts.push_as(USER, &format!("{push} --json")).json()["hosts"][0].clone();
    let expected = serde_json::json!({"count": 2, "first": ""});
    assert_eq!(host["changes"]["others_directories"], expected, "{host}");
    assert_eq!((&host["changes"]["attributes"], &host["was_there"]), (&0.into(), &true.into()));
    own(&shared, USER, 0o755);
    let outcome = hosts.push_as(USER, push);
    let one = format!("{} belongs to another user and keeps its mode and time", inner.display());
    assert!(outcome.err.contains(&one), "{outcome:?}");
    let outcome = hosts.push(push);
    assert!(!outcome.err.contains("belong"), "{outcome:?}");
    assert_eq!(owner(&inner), (OTHER, OTHER, 0o755));
}

#[test]
fn a_quota_is_named_with_the_path_before_anything_is_written() {
    if !is_root() {
        return;
    }
    let can = Command::new("sh").args(["-c", "command -v mkfs.btrfs btrfs losetup"]).output();
    if !can.is_ok_and(|found| found.status.success()) {
        eprintln!("SKIPPED: a quota needs a file system that has them (Debian: btrfs-progs)");
        return;
    }
    let hosts = Hosts::new();
    fs::write(hosts.path("large"), vec![7; 3_000_000]).unwrap();
    fs::write(hosts.path("src/large"), vec![7; 3_000_000]).unwrap();
    let mount = "truncate -s 200M image && mkfs.btrfs -q image && mkdir m && mount -o loop image m && \
                 btrfs quota enable m && btrfs subvolume create m/own && btrfs qgroup limit 1M m/own";
    if !can_mount(mount, "a quota needs btrfs in the kernel, and loop devices") {
        return;
    }
    let outcome = hosts.shell(&format!(
        "({mount}) > /dev/null; ! R src --dest $PWD/m/own; ! R large --dest $PWD/m/own/copy; \
         find m/own -name f -o -name large -o -name copy; rm -f src/large; R src --dest $PWD/m/own; cat m/own/src/d/g"
    ));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.ends_with("new"), "{outcome:?}");
    assert!(!outcome.out.contains("m/own/"), "{outcome:?}");
    let named = "this user's quota has no space for 3000000 bytes in ";
    for path in ["m/own/src/large", "m/own/copy"] {
        let named = format!("{named}{} (EDQUOT)", hosts.path(path).display());
        assert!(outcome.err.contains(&named), "{named}: {outcome:?}");
    }
}

#[test]
fn what_is_immutable_is_refused_before_anything_is_sent() {
    if !is_root() {
        return;
    }
    let mount = "truncate -s 64M image && mkfs.ext4 -q image && mkdir m && mount -o loop image m && touch m/f && chattr +i m/f";
    if !can_mount(mount, "immutable files need ext4 in the kernel, and loop devices") {
        return;
    }
    for (fixed, options) in [
        ("+i d", "--atomic"),
        ("+a d", "--atomic"),
        ("+i d/g", "--atomic"),
        ("+i d", "--atomic --delete"),
        ("+i d/g", ""),
        ("+a d/g", ""),
        ("+i d", ""),
        ("+a d", ""),
        ("+a .", ""),
        ("+i d/own", "--delete"),
        ("+a d", "--delete"),
    ] {
        let outcome = Hosts::new().shell(&format!(
            "({mount}) > /dev/null; R src --dest m/ > /dev/null; echo own > m/src/d/own; echo newer > src/d/g; cd m/src; \
             chattr {fixed}; cd ../..; ! R src --dest m/ {options}; ls -A m; ls -a m/src; cat m/src/d/own m/src/d/g"
        ));
        assert_eq!(outcome.code, Some(0), "{fixed}: {outcome:?}");
        assert!(outcome.err.contains("is immutable or append-only"), "{fixed}: {outcome:?}");
        assert!(
            outcome.err.contains("chattr -i -a") || options.contains("--atomic"),
            "{outcome:?}"
        );
        assert_eq!(
            outcome.out, "f\nlost+found\nsrc\n.\n..\nd\nf\nown\nnew",
            "{fixed}: {outcome:?}"
        );
    }
}

#[test]
fn what_only_the_host_has_mounted_is_refused_before_a_directory_is_exchanged() {
    if !is_root() {
        return;
    }
    for mount in
        ["touch to/src/d/own; mount --bind src/d/g", "mkdir to/src/d/own; mount -t tmpfs none"]
    {
        let outcome = Hosts::new().shell(&format!(
            "mkdir to; R src --dest to/ > /dev/null; {mount} to/src/d/own; echo newer > src/d/g; \
             ! R src --dest to/ --atomic; ls -A to; umount to/src/d/own; test -e to/src/d/own"
        ));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.err.contains("d/own is a mount"), "{outcome:?}");
        assert_eq!(outcome.out, "src\n", "{outcome:?}");
    }
}

#[test]
fn files_that_are_mounted_are_refused_at_once_or_stay() {
    if !is_root() {
        return;
    }
    let outcome = Hosts::new().shell(
        "mkdir to; R src --dest to/ > /dev/null; echo mounted > m; mount --bind m to/src/d/g; ! R src --dest to/; \
         ls -A to/src; rm src/d/g; R src --dest to/ --delete > /dev/null; cat to/src/d/g",
    );
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.err.contains("d/g is a mount, and this push would change it; undo that (umount)"),
        "{outcome:?}"
    );
    assert!(!outcome.out.contains(".rdmc") && outcome.out.ends_with("mounted\n"), "{outcome:?}");
}

#[test]
fn mount_points_are_destinations_and_may_be_in_them() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new();
    let outcome = hosts.shell(
        "mkdir -p m/src; mount -t tmpfs none m/src; R src --dest $PWD/m; \
         cat m/src/f m/src/d/g; echo; \
         echo newer > src/d/g; mkdir src/d/deep; echo x > src/d/deep/x; \
         mount -t tmpfs none m/src/d; R src/ --dest $PWD/m/src/; \
         cat m/src/d/g m/src/d/deep/x; find m -name '.rdmc*' -o -name '.*.rdmc*'; \
         mkdir bind m/src/d/deep/b src/d/deep/b; echo y > src/d/deep/b/y; \
         mount --bind bind m/src/d/deep/b; R src --dest $PWD/m; cat bind/y; \
         R src --dest $PWD/m --atomic; echo changed > src/f; \
         ! R src --dest $PWD/m --atomic; cat m/src/f",
    );
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let lines: Vec<&str> = outcome.out.lines().filter(|line| !line.contains(" host")).collect();
    assert_eq!(lines, ["newnew", "newer", "x", "y", "new"], "{outcome:?}");
    assert!(outcome.out.contains("7 entries existed already"), "{outcome:?}");
    assert!(outcome.err.contains("cannot be exchanged as a whole"), "{outcome:?}");
    assert!(outcome.err.contains("is mounted on"), "{outcome:?}");
}

#[test]
fn directories_of_lower_layers_are_updated() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new();
    let outcome = hosts.shell(
        "mkdir -p lower/src/d lower/src/own upper work all; echo old > lower/src/f; echo o > lower/src/own/o; \
         mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work all; \
         R src --dest $PWD/all; cat all/src/f all/src/d/g; cat all/src/own/o; \
         echo changed > src/f; ! R src --dest $PWD/all --atomic; cat all/src/f",
    );
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("newnewo\n") && outcome.out.ends_with("new"), "{outcome:?}");
    assert!(outcome.err.contains("an overlay file system"), "{outcome:?}");
}

#[test]
fn a_link_to_a_directory_is_written_through_where_both_ends_mean_contents() {
    let place = Place::with(0);
    fs::create_dir_all(place.path("src")).unwrap();
    fs::write(place.path("src/f"), "new").unwrap();
    fs::create_dir_all(place.path("to/real")).unwrap();
    symlink("real", place.path("to/src")).unwrap();
    for words in ["push src --local 1 --dest to", "push src/ --local 1 --dest to/src"] {
        let outcome = place.run_words(words);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.err.contains("to write through it, end both"), "{outcome:?}");
    }
    let outcome = place.run_words("push src/ --local 1 --dest to/src/");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(fs::read(place.path("to/real/f")).unwrap(), b"new");
    assert!(place.path("to/src").is_symlink());
}

#[test]
fn the_mode_of_the_top_arrives_by_itself() {
    let place = Place::with(0);
    fs::create_dir_all(place.path("t/sub")).unwrap();
    let mode = |path: &str| fs::metadata(place.path(path)).unwrap().mode() & 0o7777;
    for (wanted, again) in [(0o755, false), (0o700, true), (0o1777, true), (0o755, true)] {
        fs::set_permissions(place.path("t"), fs::Permissions::from_mode(wanted)).unwrap();
        let outcome = place.run_words("push t --local 1 --json");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(outcome.json()["hosts"][0]["was_there"], false, "{wanted:o}: {outcome:?}");
        assert_eq!(mode("rdmc-local/local-1/t"), wanted, "{again}");
        let outcome = place.run_words("push t --local 1 --json");
        assert_eq!(outcome.json()["hosts"][0]["was_there"], true, "{wanted:o}: {outcome:?}");
    }
}

#[test]
fn what_only_hosts_have_is_removed_by_delete_as_rsync_does() {
    let place = Place::with(0);
    fs::create_dir_all(place.path("t/sub")).unwrap();
    fs::write(place.path("t/a"), "a").unwrap();
    let fill = |top: &str| {
        let _ = fs::remove_dir_all(place.path(top));
        fs::create_dir_all(place.path(top).join("t/old/deep")).unwrap();
        for file in ["beside", "t/old/deep/x", "t/gone", "t/keep.log", "t/old/deep/keep.log"] {
            fs::write(place.path(top).join(file), "x").unwrap();
        }
    };
    let names = |top: &str| {
        let find = Command::new("find").arg(".").current_dir(place.path(top)).output().unwrap();
        let mut names: Vec<String> =
            String::from_utf8(find.stdout).unwrap().lines().map(str::to_owned).collect();
        names.sort();
        names
    };
    for options in ["", "--exclude *.log", "--exclude /t/old", "--exclude old/deep"] {
        fill("to");
        fill("beside-it");
        let outcome = place.run_words(&format!("push t --local 1 --dest to --delete -n {options}"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(names("to"), names("beside-it"), "a dry run removes nothing");
        let words = format!("push t --local 1 --dest to --delete --json {options}");
        let outcome = place.run_words(&words);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let mut rsync = Command::new("rsync");
        rsync.args(["-a", "--delete"]).args(options.split_whitespace());
        rsync.args(["t", "beside-it"]).current_dir(place.path("."));
        match rsync.status() {
            Ok(status) => assert!(status.success()),
            Err(_) => {
                eprintln!("SKIPPED: rsync is missing");
                return;
            }
        }
        assert_eq!(names("to"), names("beside-it"), "{options}");
    }
    fs::write(place.path("file"), "x").unwrap();
    let outcome = place.run_words("push file --local 1 --dest to/ --delete");
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
}

#[test]
fn an_image_with_holes_fits_where_its_data_fit() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new();
    let outcome = hosts.shell(
        "truncate -s 64G src/image; dd if=/dev/urandom of=src/image bs=1M count=3 seek=9999 conv=notrunc status=none; \
         mkdir small; mount -t tmpfs -o size=8m none small; \
         R src/image --dest small/image; R src --dest small/ 2>&1 || true; rm small/image; R src --dest small/ >&2; \
         cmp -i 10000M -n 10M src/image small/src/image; stat -c %s small/src/image; du -m small/src/image >&2",
    );
    assert!(outcome.code == Some(0) && outcome.out.ends_with("68719476736\n"), "{outcome:?}");
}

#[test]
fn space_is_looked_for_on_the_file_system_of_each_file() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new();
    let outcome = hosts.shell(
        "mkdir small m m/in; head -c 9M /dev/urandom > m/in/file; echo top > m/top; \
         mount -t tmpfs -o size=2m none small; mkdir -p small/m/in; \
         mount -t tmpfs -o size=20m none small/m/in; R m --dest $PWD/small; cmp m/in/file small/m/in/file; \
         mkdir -p large/m/in; mount -t tmpfs -o size=2m none large/m/in; ! R m --dest $PWD/large; ls large/m large/m/in",
    );
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.err.contains("no space for 9437184 bytes in"), "{outcome:?}");
    assert!(outcome.err.contains("large/m/in (ENOSPC); free some"), "{outcome:?}");
    assert!(!outcome.out.contains("top"), "{outcome:?}");
}
