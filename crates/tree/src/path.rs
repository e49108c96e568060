//! Paths inside a tree, and where symbolic links lead.

use std::{cmp::Ordering, fmt};

/// The longest path in bytes, as Linux takes it.
pub const PATH_BYTES_MAX: usize = 4095;

/// The longest name of a file in bytes, as common file systems take it.
pub const NAME_BYTES_MAX: usize = 255;

/// What is wrong with a path or with the target of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathFault {
    /// It has no bytes, or is longer than [`PATH_BYTES_MAX`].
    Length,
    /// A name in it has no bytes, or is longer than [`NAME_BYTES_MAX`].
    Name,
    /// A byte of it is 0.
    Zero,
    /// It begins with `/`.
    Absolute,
    /// It has a name `.` or `..`.
    Dots,
    /// It leads out of the tree.
    Outside,
    /// It has `..` after a name, which may be a link to anywhere.
    Back,
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "it has no bytes or more than 4095",
            Self::Name => "a name in it has no bytes or more than 255",
            Self::Zero => "a byte of it is 0",
            Self::Absolute => "it begins with /",
            Self::Dots => "it has . or .. in it",
            Self::Outside => "it leads out of the tree",
            Self::Back => "it has .. after a name, which may be another link",
        })
    }
}

/// Checks a path of an entry.
///
/// Errors: what is wrong with it.
pub fn check_path(path: &[u8]) -> Result<(), PathFault> {
    check_bytes(path)?;
    for name in names(path) {
        match name {
            b"" => return Err(PathFault::Name),
            b"." | b".." => return Err(PathFault::Dots),
            name if name.len() > NAME_BYTES_MAX => return Err(PathFault::Name),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that the symbolic link at `path` leads into the tree or to its top, whatever else is a link in it: its text is
/// relative, and begins with at most as many `..` as there are directories above the link, which are real ones.
///
/// Errors: what is wrong with it.
pub fn check_link(path: &[u8], target: &[u8]) -> Result<(), PathFault> {
    check_bytes(target)?;
    let mut above = names(path).count() - 1;
    let mut has_name = false;
    for name in names(target) {
        match name {
            b"" | b"." => {}
            b".." if has_name => return Err(PathFault::Back),
            b".." => above = above.checked_sub(1).ok_or(PathFault::Outside)?,
            name if name.len() > NAME_BYTES_MAX => return Err(PathFault::Name),
            _ => has_name = true,
        }
    }
    Ok(())
}

/// Checks the text of a symbolic link that may lead anywhere.
///
/// Errors: what is wrong with it.
pub(crate) fn check_text(target: &[u8]) -> Result<(), PathFault> {
    match check_bytes(target) {
        Err(PathFault::Absolute) => Ok(()),
        checked => checked,
    }
}

fn check_bytes(path: &[u8]) -> Result<(), PathFault> {
    match path {
        [] => Err(PathFault::Length),
        long if long.len() > PATH_BYTES_MAX => Err(PathFault::Length),
        zero if zero.contains(&0) => Err(PathFault::Zero),
        [b'/', ..] => Err(PathFault::Absolute),
        _ => Ok(()),
    }
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
}

/// Compares paths by their names: a directory comes before what is in it, and that before what follows the directory.
pub fn compare(one: &[u8], other: &[u8]) -> Ordering {
    names(one).cmp(names(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_tree_or_name_nothing_are_refused() {
        for good in [&b"a"[..], b"a/b", b"...", b".a", b"a b", b"\xff\xfe", b"-", b"a\n"] {
            assert_eq!(check_path(good), Ok(()), "{good:?}");
        }
        let bad = |path: &[u8], fault| assert_eq!(check_path(path), Err(fault), "{path:?}");
        bad(b"", PathFault::Length);
        bad(&[b'a'; 4096], PathFault::Length);
        bad(b"/a", PathFault::Absolute);
        bad(b"a\0b", PathFault::Zero);
        bad(b"..", PathFault::Dots);
        bad(b"a/../b", PathFault::Dots);
        bad(b"a/.", PathFault::Dots);
        bad(b"a//b", PathFault::Name);
        bad(b"a/", PathFault::Name);
        bad(&[b'a'; 256], PathFault::Name);
    }

    #[test]
    fn links_may_lead_anywhere_inside_the_tree() {
        for (path, target) in [
            ("a", "b"),
            ("a", "."),
            ("d/a", ".."),
            ("d/e/a", "../.."),
            ("d/a", "../b"),
            ("d/e/a", "../../b/c"),
            ("d/a", "..//./b"),
        ] {
            assert_eq!(check_link(path.as_bytes(), target.as_bytes()), Ok(()), "{path} {target}");
        }
        let bad = |path: &str, target: &str, fault| {
            assert_eq!(check_link(path.as_bytes(), target.as_bytes()), Err(fault), "{target}");
        };
        bad("a", "..", PathFault::Outside);
        bad("d/a", "../../b", PathFault::Outside);
        // With e -> .. and the like the second .. would lead out.
        bad("d/a", "e/../b", PathFault::Back);
        bad("d/e/a", "../f/../b", PathFault::Back);
        bad("a", "/etc/passwd", PathFault::Absolute);
        bad("a", "", PathFault::Length);
        bad("a", "b\0", PathFault::Zero);
        bad("a", &"b".repeat(256), PathFault::Name);
    }

    #[test]
    fn a_directory_is_followed_by_what_is_in_it() {
        let mut paths = [&b"a.b"[..], b"a/b", b"a", b"a/b/c", b"b", b"a/c", b"a-b"];
        paths.sort_by(|one, other| compare(one, other));
        assert_eq!(paths, [&b"a"[..], b"a/b", b"a/b/c", b"a/c", b"a-b", b"a.b", b"b"]);
    }
}
