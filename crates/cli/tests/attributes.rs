//! Owners, groups, access lists and `user.*` attributes of copies, compared with rsync's.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    fs::{XattrFlags, lgetxattr, lremovexattr, lsetxattr},
    io::Errno,
};

use crate::destinations::{Hosts, is_root};

const USER: u32 = 1500;
const ALL: &str = "--owner --group --acls --xattrs";
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT_ACCESS: &str = "system.posix_acl_default";

/// Numbers that look random.
struct Draw(blake3::OutputReader);

impl Draw {
    fn new(seed: u64) -> Self {
        Self(blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof())
    }

    fn below(&mut self, end: u32) -> u32 {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        u32::from_le_bytes(bytes) % end
    }

    fn is(&mut self) -> bool {
        self.below(2) == 0
    }
}

fn set(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|error| panic!("{path:?}, {name}: {error}"));
}

/// An access list with a user and a group more.
fn access_list(draw: &mut Draw) -> Vec<u8> {
    let none = u32::MAX;
    let [owner, user, group, of_group, others] = [(); 5].map(|()| draw.below(8) as u16);
    let mask = user | group | of_group;
    let entries = [
        (1, owner, none),
        (2, user, 1000 + draw.below(3)),
        (4, of_group, none),
        (8, group, 2000 + draw.below(3)),
        (0x10, mask, none),
        (0x20, others, none),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(permissions)].as_flattened());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Changes the attributes of an entry, as far as this user may.
fn change(path: &Path, draw: &mut Draw, is_root: bool) {
    if is_root && draw.is() {
        lchown(path, Some(1000 + draw.below(3)), Some(2000 + draw.below(3))).unwrap();
    }
    let stat = fs::symlink_metadata(path).unwrap();
    if stat.is_symlink() {
        return;
    }
    if draw.is() {
        let mode = 0o700 | draw.below(0o100);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for name in ["user.one", "user.two"] {
        match draw.below(3) {
            0 => set(path, name, &draw.below(9).to_le_bytes()),
            1 => drop(lremovexattr(path, name)),
            _ => {}
        }
    }
    for name in [ACCESS, DEFAULT_ACCESS] {
        match draw.below(4) {
            _ if name == DEFAULT_ACCESS && !stat.is_dir() => {}
            0 => set(path, name, &access_list(draw)),
            1 => drop(lremovexattr(path, name)),
            _ => {}
        }
    }
}

fn random_tree(top: &Path, draw: &mut Draw, is_root: bool) -> Vec<PathBuf> {
    let mut directories = vec![top.to_owned()];
    fs::create_dir_all(top).unwrap();
    let mut paths = vec![top.to_owned()];
    for number in 0..14 {
        let parent = directories[draw.below(directories.len() as u32) as usize].clone();
        let path = parent.join(format!("{number}"));
        match draw.below(4) {
            0 => {
                fs::create_dir(&path).unwrap();
                directories.push(path.clone());
            }
            1 => symlink("elsewhere", &path).unwrap(),
            _ => fs::write(&path, [b'x'; 100][..draw.below(100) as usize].as_ref()).unwrap(),
        }
        paths.push(path);
    }
    paths.iter().for_each(|path| change(path, draw, is_root));
    paths
}

/// What rsync would change to make the copy the same.
fn rsync(source: &Path, copy: &Path, is_root: bool) -> Option<String> {
    let mut rsync = Command::new("rsync");
    // Times of links are not changed where they are there.
    let options = if is_root { "-aHAXni" } else { "-rlptHAXni" };
    rsync.args([options, "--numeric-ids", "--omit-link-times"]);
    rsync.arg(source.join("")).arg(copy.join(""));
    let Ok(output) = rsync.output() else {
        eprintln!("SKIPPED: needs rsync, to compare copies with its");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn copies_have_what_rsync_gives_them() {
    let is_root = is_root();
    let options = if is_root { ALL } else { "--acls --xattrs" };
    for seed in 0..12 {
        let mut draw = Draw::new(seed);
        let hosts = Hosts::new();
        let (source, copy) = (hosts.path("random"), hosts.path("copy"));
        let paths = random_tree(&source, &mut draw, is_root);
        let push = |more: &str| {
            let words = format!("{{}}/random/ --links --dest {{}}/copy {options}{more}");
            let outcome = if is_root { hosts.push(&words) } else { hosts.push_as_oneself(&words) };
            assert_eq!(outcome.code, Some(0), "seed {seed}: {outcome:?}");
            outcome.out
        };
        for round in 0..3 {
            push(if seed % 4 == 3 && round > 0 { " --atomic" } else { "" });
            let Some(differs) = rsync(&source, &copy, is_root) else { return };
            assert_eq!(differs, "", "seed {seed}, round {round}");
            let again = push(" --dry-run");
            let is_kept = again.contains("14 kept") && !again.contains("attributes");
            assert!(is_kept, "seed {seed}, round {round}: {again}");
            // At either end.
            for path in &paths {
                if draw.below(3) == 0 {
                    change(path, &mut draw, is_root);
                }
                let path = copy.join(path.strip_prefix(&source).unwrap());
                if draw.below(3) == 0 {
                    change(&path, &mut draw, is_root);
                }
            }
        }
    }
}

#[test]
fn what_is_not_asked_for_stays_and_a_file_has_it_as_well() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new();
    let (source, copy) = (hosts.path("src/f"), hosts.path("copy"));
    chown(&source, Some(USER), Some(USER)).unwrap();
    set(&source, "user.note", b"value");
    let outcome = hosts.push("src/f --dest {}/copy");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let mut value = [0; 9];
    let note = |value: &mut [u8]| lgetxattr(&copy, "user.note", value);
    assert_eq!((fs::metadata(&copy).unwrap().uid(), note(&mut value)), (0, Err(Errno::NODATA)));
    let inode = fs::metadata(&copy).unwrap().ino();
    for _ in 0..2 {
        let outcome = hosts.push(&format!("src/f --dest {{}}/copy {ALL}"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let stat = fs::metadata(&copy).unwrap();
        assert_eq!((stat.uid(), stat.gid(), note(&mut value)), (USER, USER, Ok(5)));
        assert_eq!(stat.ino(), inode, "its contents were there");
    }
    let outcome = hosts.push("src/ --dest {}/all");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    set(&hosts.path("all/d"), "user.mine", b"");
    chown(hosts.path("all/d"), Some(USER), None).unwrap();
    let listed = hosts.push(&format!("src/ --dest {{}}/all --dry-run --verbose {ALL}")).out;
    assert!(listed.contains("local-1: attributes: d/\n"), "{listed}");
    let outcome = hosts.push("src/ --dest {}/all --xattrs");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(fs::metadata(hosts.path("all/d")).unwrap().uid(), USER);
    assert_eq!(lgetxattr(hosts.path("all/d"), "user.mine", &mut value), Err(Errno::NODATA));
}

#[test]
fn what_a_host_cannot_keep_is_named_before_anything_is_sent() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::new();
    let own = hosts.path("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(USER), Some(USER)).unwrap();
    for (option, words) in [
        ("--owner", "the owner 0, as the source has it"),
        ("--owner", "run the receiver as root, or push without --owner"),
        ("--group", "or push without --group"),
    ] {
        for source in ["src", "src/f"] {
            let outcome = hosts.push_as(USER, &format!("{source} --dest {{}}/own/ {option}"));
            outcome.has_failed_with(1, words);
            outcome.has_failed_with(1, "local-1: cannot give ");
            let left = fs::read_dir(&own).unwrap().count();
            assert_eq!(left, 0, "{outcome:?}");
        }
    }
    for path in ["src", "src/d", "src/f", "src/d/g"] {
        chown(hosts.path(path), Some(USER), Some(USER)).unwrap();
    }
    // Who may not write a file sets no attributes of it.
    set(&hosts.path("src/d/g"), "user.note", b"value");
    fs::set_permissions(hosts.path("src/d/g"), fs::Permissions::from_mode(0o444)).unwrap();
    for _ in 0..2 {
        let outcome = hosts.push_as(USER, &format!("src --dest {{}}/own/ {ALL}"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        lremovexattr(hosts.path("own/src/d/g"), "user.note").unwrap();
    }
    let outcome = hosts.shell(
        "mount -t ramfs none own; R src --dest own/ --xattrs 2>&1 || true; echo left: $(ls -A own)",
    );
    let is_named =
        outcome.out.contains("own/src/d/g the attribute user.note, as the source has it")
            && outcome.out.contains("push without --xattrs");
    assert!(is_named && outcome.out.ends_with("left:\n"), "{outcome:?}");
}
