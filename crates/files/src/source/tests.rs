//! What of directories is listed: links, modes, times, and what patterns take, beside rsync where it is installed.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, UNIX_EPOCH},
};

use ::tree::{Attributes, Entry, Kind, Listing, Rule, Selection};
use proptest::prelude::*;
use rustix::fs::{XattrFlags, lsetxattr};

use super::{KeptAttributes, ListOptions, Source, SourceError};

/// A directory of sources.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Sources by their names there, with `/` at the end as they are given.
    fn paths(&self, names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(|name| format!("{}/{name}", self.0.path().display()).into()).collect()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn file(&self, path: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), path).unwrap();
    }

    fn link(&self, path: &str, text: impl AsRef<Path>) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        symlink(text, self.at(path)).unwrap();
    }

    fn listing(&self, names: &[&str], options: &ListOptions) -> Result<Listing, SourceError> {
        let source = Source::of(&self.paths(names), options)?;
        let (_, encoded) = source.tree().unwrap();
        Ok(Listing::decode(&encoded).unwrap())
    }

    fn entries(&self, names: &[&str]) -> Vec<Entry> {
        self.listing(names, &ListOptions::default()).unwrap().entries().to_vec()
    }

    /// The text of a link in the listing; `None` if it became what it leads to.
    fn text(&self, names: &[&str], path: &str) -> Option<String> {
        let entries = self.entries(names);
        let entry = entries.iter().find(|entry| entry.path == path.as_bytes()).expect(path);
        match &entry.kind {
            Kind::Link { target } => Some(String::from_utf8(target.clone()).unwrap()),
            _ => None,
        }
    }
}

fn excluding(pattern: &str) -> ListOptions {
    ListOptions::new(Selection::new(&[Rule::Exclude(pattern.to_owned())]).unwrap())
}

#[test]
fn links_to_the_top_of_a_tree_stay_links() {
    let world = World::new();
    world.file("ls/sub/deep/f");
    world.link("ls/self", ".");
    world.link("ls/sub/top", "..");
    world.link("ls/sub/deep/top", "../..");
    world.link("ls/me", "../ls");
    world.link("ls/sub/me", "../../ls");
    world.link("ls/absolute", world.at("ls"));
    world.link("ls/by-name", "../ls/sub/deep/f");
    world.file("other/g");
    world.link("other/to-ls", "../ls");
    let texts = |names: &[&str], under: &str| {
        let links = ["self", "sub/top", "sub/deep/top", "me", "sub/me", "absolute", "by-name"];
        links.map(|link| world.text(names, &format!("{under}{link}")).unwrap())
    };
    for single in ["ls", "ls/", "ls/."] {
        let expected = [".", "..", "../..", ".", "..", ".", "sub/deep/f"];
        assert_eq!(texts(&[single], ""), expected, "{single}");
    }
    let expected = [".", "..", "../..", "../ls", "../../ls", "../ls", "../ls/sub/deep/f"];
    assert_eq!(texts(&["ls", "other"], "ls/"), expected);
    assert_eq!(world.text(&["ls", "other"], "other/to-ls").unwrap(), "../ls");
    let expected = [".", "..", "../..", ".", "..", ".", "sub/deep/f"];
    assert_eq!(texts(&["ls/", "other"], ""), expected);
    assert_eq!(world.text(&["ls/", "other"], "other/to-ls").unwrap(), "..");
}

#[test]
fn texts_of_links_lead_to_the_same_place_in_the_copy() {
    let world = World::new();
    world.file("t/real/f");
    world.link("t/to-real", "real");
    world.link("t/through", "to-real/f");
    world.link("t/back", "to-real/../real/f");
    world.link("t/next", "through");
    world.file("f");
    world.link("t/up", "../f");
    world.link("t/onwards", "up");
    let text = |link: &str| world.text(&["t"], link);
    assert_eq!(text("through").unwrap(), "to-real/f");
    assert_eq!(text("back").unwrap(), "real/f", "no .. after a name is sent");
    assert_eq!(text("next").unwrap(), "through");
    assert_eq!(text("up"), None, "it leads out");
    assert_eq!(text("onwards").unwrap(), "up");
    // The way of the text is left out, what it leads to is not.
    let listing = world.listing(&["t"], &excluding("to-real")).unwrap();
    let through = &listing.entries()[listing.find(b"through").unwrap()];
    assert_eq!(through.kind, Kind::Link { target: b"real/f".to_vec() });
    // And the other way around: the file is taken along.
    let listing = world.listing(&["t"], &excluding("/t/real/f")).unwrap();
    let through = &listing.entries()[listing.find(b"through").unwrap()];
    assert!(matches!(through.kind, Kind::File { .. } | Kind::Name { .. }), "{through:?}");
}

/// Sources of different directories lie beside each other in the copy: there a text can lead to another file.
#[test]
fn a_link_between_sources_leads_to_what_it_led_to() {
    let world = World::new();
    world.file("p/x/own");
    world.file("p/y/f");
    world.file("q/y/f");
    world.link("p/x/to-p", "../y/f");
    world.link("p/x/to-q", "../../q/y/f");
    assert_eq!(world.text(&["p/x", "q/y"], "x/to-p"), None, "p/y is not in the copy");
    assert_eq!(world.text(&["p/x", "q/y"], "x/to-q").unwrap(), "../y/f");
}

#[test]
fn links_that_lead_nowhere_are_named_or_sent_as_they_are() {
    let world = World::new();
    world.file("t/f");
    world.link("t/l", "f");
    world.link("t/loop", "pool");
    let error = |world: &World| world.listing(&["t"], &ListOptions::default()).unwrap_err();
    world.link("t/pool", "loop");
    let text = error(&world).to_string();
    assert!(text.contains("t/loop is a symbolic link to pool, which is part of a loop"), "{text}");
    fs::remove_file(world.at("t/pool")).unwrap();
    let text = error(&world).to_string();
    assert!(text.contains("to pool, which does not exist") && text.contains("--links"), "{text}");
    world.link("t/out", "/etc");
    world.link("t/up", "../../../x");
    world.link("t/back", "f/../../g");
    let listing = world.listing(&["t"], &ListOptions::default().any_links(true)).unwrap();
    let target = |path: &str| match &listing.entries()[listing.find(path.as_bytes()).unwrap()].kind
    {
        Kind::Link { target } => String::from_utf8(target.clone()).unwrap(),
        other => panic!("{path}: {other:?}"),
    };
    let texts = ["l", "loop", "out", "up", "back"].map(target);
    assert_eq!(texts, ["f", "pool", "/etc", "../../../x", "f/../../g"]);
}

#[test]
fn leftovers_and_locks_of_receivers_are_not_sent() {
    let world = World::new();
    let left = [".f.rdmc-0123456789ab", ".rdmc-0123456789ab", ".f.rdmc-lock", ".rdmc-lock"];
    let own = ["f", "f.rdmc-0123456789ab", ".f.rdmc-", ".f.rdmc-notes", ".f.rdmc-0123456789xy"];
    for name in left.iter().chain(&own) {
        world.file(&format!("t/d/{name}"));
    }
    fs::create_dir(world.at("t/.d.rdmc-abcdefabcdef")).unwrap();
    world.file("t/.d.rdmc-abcdefabcdef/f");
    let paths: BTreeSet<Vec<u8>> = world.entries(&["t"]).into_iter().map(|it| it.path).collect();
    let expected = own.iter().map(|name| format!("d/{name}").into()).chain([b"d".to_vec()]);
    assert_eq!(paths, expected.collect());
}

#[test]
fn directories_keep_their_sticky_bit_and_nothing_else_beyond_permissions() {
    let world = World::new();
    world.file("t/tmp/f");
    fs::create_dir(world.at("t/group")).unwrap();
    let set = |path: &str, mode| {
        fs::set_permissions(world.at(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("t/tmp", 0o1777);
    set("t/tmp/f", 0o6755);
    set("t/group", 0o2775);
    set("t", 0o1755);
    let entries = world.entries(&["t"]);
    let modes: Vec<u16> = entries.iter().map(|entry| entry.mode).collect();
    assert_eq!(modes, [0o775, 0o1777, 0o755], "{entries:?}");
    let source = Source::of(&world.paths(&["t"]), &ListOptions::default()).unwrap();
    assert_eq!(source.tree().unwrap().0.top.unwrap().mode, 0o1755);
}

/// An access list of a file: `user::rw-,user:1234:r--,group::r--,mask::r--,other::---`.
fn access_list() -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(1, 6, none), (2, 4, 1234), (4, 4, none), (0x10, 4, none), (0x20, 0, none)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(u16::to_le_bytes(permissions));
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn owners_and_attributes_are_listed_if_that_is_asked_for() {
    let world = World::new();
    world.file("t/f");
    world.link("t/l", "f");
    world.file("outside");
    world.link("t/out", "../outside");
    let chown = |path: &str| std::os::unix::fs::lchown(world.at(path), Some(1234), Some(4321));
    let is_root = ["t/l", "outside"].iter().all(|path| chown(path).is_ok());
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let other = if is_root { (1234, 4321) } else { own };
    let set = |path: &str, name: &str, value: &[u8]| {
        lsetxattr(world.at(path), name, value, XattrFlags::empty()).is_ok()
    };
    let sets_user = set("t/f", "user.note", b"value") && set("outside", "user.z", b"");
    let sets_access = set("t/f", "system.posix_acl_access", &access_list());
    let attributes = |kept: KeptAttributes, path: &str| {
        let listing = world.listing(&["t"], &ListOptions::default().keeps(kept)).unwrap();
        listing.attributes(listing.find(path.as_bytes()).unwrap()).cloned()
    };
    assert_eq!(attributes(KeptAttributes::default(), "f"), None);
    let user = KeptAttributes { user: true, ..KeptAttributes::default() };
    let expected = Attributes { user: Some(other.0), ..Attributes::default() };
    assert_eq!(attributes(user, "l"), Some(expected.clone()), "of the link itself");
    assert_eq!(attributes(user, "out"), Some(expected), "of what it became");
    let all =
        KeptAttributes { user: true, group: true, access: true, extended: true, numbers: true };
    let of_file = attributes(all, "f").unwrap();
    assert_eq!((of_file.user, of_file.group), (Some(own.0), Some(own.1)));
    let mut expected = Vec::new();
    if sets_access {
        expected.push((b"system.posix_acl_access".to_vec(), access_list()));
    } else {
        println!("SKIPPED: this file system has no access lists");
    }
    if sets_user {
        expected.push((b"user.note".to_vec(), b"value".to_vec()));
        let of_target = attributes(all, "out").unwrap().extended;
        assert_eq!(of_target, [(b"user.z".to_vec(), Vec::new())], "of what it became");
    } else {
        println!("SKIPPED: this file system has no user.* attributes");
    }
    assert_eq!(of_file.extended, expected);
    assert_eq!(attributes(all, "l").unwrap().extended, []);
    let extended = KeptAttributes { extended: true, ..KeptAttributes::default() };
    let only = attributes(extended, "f").unwrap();
    assert!(only.extended.len() <= 1 && only.user.is_none(), "{only:?}");
}

#[test]
fn times_that_cannot_be_sent_are_named() {
    let world = World::new();
    world.file("t/f");
    let year_2400 = UNIX_EPOCH + Duration::from_secs(13_569_465_600);
    let file = fs::File::options().write(true).open(world.at("t/f")).unwrap();
    file.set_modified(year_2400).unwrap();
    if file.metadata().unwrap().modified().unwrap() != year_2400 {
        println!("SKIPPED: this file system has no times after 2262");
        return;
    }
    for source in ["t", "t/f"] {
        let opened = Source::of(&world.paths(&[source]), &ListOptions::default());
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("t/f has a modification time 13569465600 s from 1970"), "{error}");
    }
}

#[test]
fn patterns_hold_for_what_is_named_as_well() {
    let world = World::new();
    world.file("d/f");
    world.file("f");
    let of = |names: &[&str], pattern| Source::of(&world.paths(names), &excluding(pattern));
    for (names, pattern) in
        [(&["f"][..], "f"), (&["f"], "/f"), (&["d"], "d/"), (&["d"], "/d/***"), (&["d", "f"], "*")]
    {
        let error = of(names, pattern).unwrap_err();
        assert!(matches!(error, SourceError::NothingLeft(_)), "{names:?} {pattern}: {error}");
    }
    assert_eq!(of(&["d/", "f"], "*").unwrap().entries(), Some(0), "the top of d/ is left");
    assert_eq!(of(&["d"], "f").unwrap().unmatched(), []);
    assert_eq!(of(&["d"], "/f").unwrap().unmatched(), [Rule::Exclude("/f".into())]);
    assert_eq!(of(&["f"], "/d/f").unwrap().unmatched().len(), 1);
}

/// Paths of sources, and what patterns say of them.
#[derive(Clone, Debug)]
struct Case {
    files: Vec<String>,
    sources: Vec<String>,
    rules: Vec<(bool, String)>,
}

/// Names of sources are names in them as well.
const NAMES: [&str; 8] = ["s", "t", "f", "a", "ab", "b.tmp", "a b", ".c"];

/// Of what a pattern is made: names of a file's path, some of them replaced, and what is before and behind them.
type Made =
    ((prop::sample::Index, usize, usize), Vec<Option<&'static str>>, &'static str, &'static str);

fn case() -> impl Strategy<Value = Case> {
    let name = || prop::sample::select(&NAMES[..]);
    let path = prop::collection::vec(name(), 1..4).prop_map(|names| names.join("/"));
    let below = (prop::sample::select(&["s", "t"][..]), path);
    let files = prop::collection::vec(below.prop_map(|(top, path)| format!("{top}/{path}")), 1..12);
    let one = prop::sample::select(&["s", "s/", "s/.", "t", "t/", "f", "g"][..]);
    let sources = prop::collection::btree_set(one, 1..4)
        .prop_map(|sources| sources.into_iter().map(str::to_owned).collect());
    let wildcard = || {
        let all = ["*", "**", "?", "a*", "*.tmp", "[ab]*", "[!s]", "**b", "a\\*", "s**"];
        prop::option::weighted(0.3, prop::sample::select(all.to_vec()))
    };
    let before = prop::sample::select(&["", "", "/", "**/"][..]);
    let behind = prop::sample::select(&["", "", "/", "/***", "/**", "***"][..]);
    let pattern = (any::<prop::sample::Index>(), 0..4_usize, 1..4_usize).prop_flat_map(move |of| {
        (Just(of), prop::collection::vec(wildcard(), 3), before.clone(), behind.clone())
    });
    let rules = prop::collection::vec((any::<bool>(), pattern), 1..4);
    (files, sources, rules).prop_map(|(files, sources, rules)| {
        // Made of a part of a path, so that many match.
        let pattern = |((of, from, names), wildcards, before, behind): Made| {
            let path: Vec<&str> = files[of.index(files.len())].split('/').collect();
            let from = from.min(path.len() - 1);
            let names = path[from..].iter().take(names).zip(&wildcards);
            let parts: Vec<&str> = names.map(|(name, wildcard)| wildcard.unwrap_or(name)).collect();
            format!("{before}{}{behind}", parts.join("/"))
        };
        let rules = rules.into_iter().map(|(includes, made)| (includes, pattern(made))).collect();
        Case { files, sources, rules }
    })
}

/// What is listed, by path from the top of the transfer, directories with `/` at the end. `None` if sources collide.
fn taken(world: &World, case: &Case) -> Option<BTreeSet<String>> {
    let rules = case.rules.iter().map(|(includes, pattern)| match includes {
        true => Rule::Include(pattern.clone()),
        false => Rule::Exclude(pattern.clone()),
    });
    let selection = Selection::new(&rules.collect::<Vec<_>>()).unwrap();
    let names: Vec<&str> = case.sources.iter().map(String::as_str).collect();
    let single = Some(names[0]).filter(|name| names.len() == 1 && !name.contains('/'));
    let source = match Source::of(&world.paths(&names), &ListOptions::new(selection)) {
        Ok(source) => source,
        Err(SourceError::NothingLeft(_)) => return Some(BTreeSet::new()),
        Err(SourceError::Tree { .. } | SourceError::SameName { .. }) => return None,
        Err(error) => panic!("{error}"),
    };
    let Some((_, encoded)) = source.tree() else { return Some([names[0].to_owned()].into()) };
    let listing = Listing::decode(&encoded).unwrap();
    let shown = |entry: &Entry| {
        let path = String::from_utf8(entry.path.clone()).unwrap();
        let path = single.map_or(path.clone(), |name| format!("{name}/{path}"));
        if entry.kind == Kind::Directory { path + "/" } else { path }
    };
    let top = single.map(|name| format!("{name}/"));
    Some(listing.entries().iter().map(shown).chain(top).collect())
}

fn taken_by_rsync(world: &World, case: &Case) -> BTreeSet<String> {
    let mut command = Command::new("rsync");
    command.args(["-a", "--dry-run", "--out-format=%n"]);
    for (includes, pattern) in &case.rules {
        let option = if *includes { "include" } else { "exclude" };
        command.arg(format!("--{option}={pattern}"));
    }
    let names: Vec<&str> = case.sources.iter().map(String::as_str).collect();
    let output = command.args(world.paths(&names)).arg(world.at("to/")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| *line != "./").map(str::to_owned).collect()
}

/// Whether the same is taken as by rsync.
fn compare(case: &Case) -> Result<(), TestCaseError> {
    let world = World::new();
    fs::create_dir(world.at("to")).unwrap();
    for top in ["s", "t"] {
        fs::create_dir(world.at(top)).unwrap();
    }
    world.file("f");
    world.file("g");
    for file in &case.files {
        // What is a directory of others, or below another file, is left out.
        let _ = fs::create_dir_all(world.at(file).parent().unwrap());
        let _ = fs::File::create_new(world.at(file));
    }
    if let Some(own) = taken(&world, case) {
        prop_assert_eq!(own, taken_by_rsync(&world, case));
    }
    Ok(())
}

fn has_rsync() -> bool {
    Command::new(OsStr::new("rsync")).arg("--version").output().is_ok()
}

#[test]
fn what_is_taken_is_what_rsync_takes() {
    if !has_rsync() {
        println!("SKIPPED: needs rsync (Debian's package rsync)");
        return;
    }
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() };
    proptest!(config, |(case in case())| compare(&case)?);
}
