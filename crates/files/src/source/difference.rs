//! What differs between two listings of one source.

use std::{cmp::Ordering, ops::ControlFlow, slice};

use tree::{Entry, Kind, ListingError, Read, Reader, compare};

use super::{
    attributes::CHANGED,
    found::{Listed, Origin},
    identity::mode_changed,
};

/// The first difference, in the order of listings.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Difference {
    /// Path of the entry in the tree.
    pub(super) entry: Vec<u8>,
    pub(super) what: String,
}

/// Compares what was sent with what is there now, entry by entry. Times of directories are not compared.
pub(super) struct Comparison<'a> {
    /// What was sent, after the next entry.
    sent: Reader<'a>,
    next: Option<Read>,
    /// From the next one on: until the first difference both have the same files.
    origins: slice::Iter<'a, Origin>,
    first: Option<Difference>,
}

impl<'a> Comparison<'a> {
    /// `sent`: the encoded listing. `origins`: of the files with contents, in the same order.
    ///
    /// Errors: it is no listing.
    pub(super) fn new(sent: &'a [u8], origins: &'a [Origin]) -> Result<Self, ListingError> {
        let mut sent = Reader::new(sent)?;
        let next = sent.next().transpose()?;
        Ok(Self { sent, next, origins: origins.iter(), first: None })
    }

    /// The next entry that is there now. Breaks off at the first difference.
    pub(super) fn compare(&mut self, now: &Listed) -> ControlFlow<()> {
        self.first = self.difference(now);
        match self.first {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }

    /// The first difference; `None` if there is none.
    pub(super) fn end(self) -> Option<Difference> {
        self.first.or_else(|| self.next.map(|next| removed(&next.entry)))
    }

    fn difference(&mut self, now: &Listed) -> Option<Difference> {
        let added = || difference(&now.entry, "it was added".to_owned());
        let Some(Read { entry: before, attributes, data }) = &self.next else {
            return Some(added());
        };
        match compare(&before.path, &now.entry.path) {
            Ordering::Less => return Some(removed(before)),
            Ordering::Greater => return Some(added()),
            Ordering::Equal => {}
        }
        let origin = before.bytes().filter(|&bytes| bytes > 0).and_then(|_| self.origins.next());
        let changed = match (origin, &now.origin) {
            (Some(origin), Some(now)) => origin.identity.check(&now.identity).and_then(|()| {
                let is_sent = data.as_ref().is_none_or(|data| now.has_only(data));
                is_sent.then_some(()).ok_or_else(|| "a hole of it was written to".to_owned())
            }),
            _ => Ok(()),
        };
        let changed = changed.and_then(|()| check(before, &now.entry));
        // Those of a further name are its file's.
        let is_own = !matches!(before.kind, Kind::Name { .. });
        let has_others = || is_own && *attributes != now.attributes;
        let what = match changed {
            Err(what) => what,
            Ok(()) if has_others() => CHANGED.to_owned(),
            Ok(()) => {
                // What this process has written it can read.
                self.next = self.sent.next().and_then(Result::ok);
                return None;
            }
        };
        Some(difference(before, what))
    }
}

fn difference(entry: &Entry, what: String) -> Difference {
    Difference { entry: entry.path.clone(), what }
}

fn removed(entry: &Entry) -> Difference {
    difference(entry, "it was removed or renamed".to_owned())
}

/// Errors: what has changed.
fn check(before: &Entry, now: &Entry) -> Result<(), String> {
    match (&before.kind, &now.kind) {
        (Kind::Link { target: one }, Kind::Link { target: other }) if one != other => {
            return Err("it leads elsewhere".into());
        }
        (one, other) if name_of(one) != name_of(other) => {
            return Err(format!("it was {} and is {}", name_of(one), name_of(other)));
        }
        (one, other) if one != other => return Err("another file has its name".into()),
        _ => {}
    }
    if before.kind != Kind::Directory && before.modified_ns != now.modified_ns {
        return Err("it was written to".into());
    }
    let has_mode = !matches!(before.kind, Kind::Link { .. });
    if has_mode && before.mode != now.mode {
        return Err(mode_changed(before.mode.into(), now.mode.into()));
    }
    Ok(())
}

fn name_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Directory => "a directory",
        Kind::File { .. } => "a file",
        Kind::Name { .. } => "a hard link",
        Kind::Link { .. } => "a symbolic link",
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{FileExt, PermissionsExt, symlink},
        path::{Path, PathBuf},
    };

    use tree::{Rule, Selection};

    use crate::{ListOptions, Source, SourceError};

    /// What a change of this tree, with `*.tmp` left out, is called: the path in it, and what has changed. It is the same where a link
    /// is in the tree and what is found is compared later.
    fn look_after(change: impl Fn(&Path)) -> Option<(String, String)> {
        let without = look_after_in(false, &change);
        assert_eq!(look_after_in(true, &change), without);
        without
    }

    fn look_after_in(has_link: bool, change: impl Fn(&Path)) -> Option<(String, String)> {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().join("t");
        fs::create_dir_all(top.join("sub/deep")).unwrap();
        for name in ["a", "b", "sub/c", "sub/deep/d", "left.tmp"] {
            fs::write(top.join(name), name).unwrap();
        }
        fs::write(top.join("empty"), "").unwrap();
        if has_link {
            symlink("a", top.join("link")).unwrap();
        }
        fs::hard_link(top.join("a"), top.join("same")).unwrap();
        let selection = Selection::new(&[Rule::Exclude("*.tmp".into())]).unwrap();
        let options = ListOptions::new(selection);
        let open = |paths: &[PathBuf]| Source::of(paths, &options).unwrap();
        let other = directory.path().join("other");
        fs::write(&other, "").unwrap();
        let contents = top.join("");
        let (source, several) = (open(std::slice::from_ref(&top)), open(&[top.clone(), other]));
        let beside = directory.path().join("beside");
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join("b file of it"), "").unwrap();
        let together = open(&[contents, beside.join("")]);
        source.look_again().unwrap();
        change(&top);
        let what = |source: Source| match source.look_again() {
            Ok(()) => None,
            Err(SourceError::Changed { path, what }) => {
                Some((path.strip_prefix(&top).unwrap().display().to_string(), what))
            }
            Err(other) => panic!("{other}"),
        };
        let (one, other, third) = (what(source), what(several), what(together));
        assert_eq!(one, other);
        // The mode of a top that is not sent is none.
        if one.as_ref().is_none_or(|(path, _)| !path.is_empty()) {
            assert_eq!(one, third);
        }
        one
    }

    fn changed(path: &str, what: &str) -> Option<(String, String)> {
        Some((path.to_owned(), what.to_owned()))
    }

    #[test]
    fn a_hole_that_is_written_to_is_seen_and_named_whatever_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "data").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        let write = |bytes: &[u8]| {
            let modified = path.metadata().unwrap().modified().unwrap();
            file.write_all_at(bytes, 1 << 29).unwrap();
            file.set_modified(modified).unwrap();
        };
        let source = Source::of(std::slice::from_ref(&path), &ListOptions::default()).unwrap();
        // What it reads as stays the same.
        write(&[0; 70_000]);
        source.look_again().unwrap();
        write(b"x");
        let error = source.look_again().unwrap_err();
        assert!(
            matches!(&error, SourceError::Changed { path: at, what } if *at == path && what.contains("a hole")),
            "{error}"
        );
    }

    #[test]
    fn everything_that_changes_in_a_tree_is_seen_and_named() {
        let removed = "it was removed or renamed";
        assert_eq!(look_after(|_| ()), None);
        assert_eq!(
            look_after(|top| fs::remove_file(top.join("b")).unwrap()),
            changed("b", removed)
        );
        let rename = |top: &Path| fs::rename(top.join("sub"), top.join("tub")).unwrap();
        assert_eq!(look_after(rename), changed("sub", removed));
        let replace = |top: &Path| {
            let modified = fs::metadata(top.join("b")).unwrap().modified().unwrap();
            fs::write(top.join("new.tmp"), "c").unwrap();
            let new = fs::File::options().write(true).open(top.join("new.tmp")).unwrap();
            new.set_modified(modified).unwrap();
            fs::rename(top.join("new.tmp"), top.join("b")).unwrap();
        };
        assert_eq!(look_after(replace), changed("b", "another file has its name"));
        let add = |top: &Path| fs::write(top.join("sub/deep/e"), "").unwrap();
        assert_eq!(look_after(add), changed("sub/deep/e", "it was added"));
        let add = |top: &Path| fs::create_dir(top.join("sub/0")).unwrap();
        assert_eq!(look_after(add), changed("sub/0", "it was added"));
        let mode = |path: &str| {
            let chmod = |top: &Path| {
                fs::set_permissions(top.join(path), fs::Permissions::from_mode(0o700)).unwrap();
            };
            let (at, what) = look_after(chmod).unwrap();
            assert!(what.ends_with("and is 700"), "{what}");
            at
        };
        for path in ["b", "empty", "sub/deep", ""] {
            assert_eq!(mode(path), path);
        }
        let write = |top: &Path| fs::write(top.join("sub/c"), "longer than before").unwrap();
        let (path, what) = look_after(write).unwrap();
        assert!(path == "sub/c" && what.contains("had 5 bytes and has 18"), "{path}: {what}");
        let link = |top: &Path| {
            fs::remove_file(top.join("link")).unwrap();
            symlink("b", top.join("link")).unwrap();
        };
        assert_eq!(look_after_in(true, link), changed("link", "it leads elsewhere"));
        let link = |top: &Path| symlink("c", top.join("sub/a link")).unwrap();
        assert_eq!(look_after(link), changed("sub/a link", "it was added"));
        let link = |top: &Path| {
            fs::remove_file(top.join("b")).unwrap();
            symlink("a", top.join("b")).unwrap();
        };
        assert_eq!(look_after(link), changed("b", "it was a file and is a symbolic link"));
        let kind = |top: &Path| {
            fs::remove_file(top.join("empty")).unwrap();
            fs::create_dir(top.join("empty")).unwrap();
        };
        assert_eq!(look_after(kind), changed("empty", "it was a file and is a directory"));
        let separate = |top: &Path| {
            fs::remove_file(top.join("same")).unwrap();
            fs::copy(top.join("a"), top.join("same")).unwrap();
        };
        assert_eq!(look_after(separate), changed("same", "it was a hard link and is a file"));
        // What is not selected may come and go.
        let beside = |top: &Path| {
            fs::remove_file(top.join("left.tmp")).unwrap();
            fs::write(top.join("sub/other.tmp"), "x").unwrap();
        };
        assert_eq!(look_after(beside), None);
    }
}
