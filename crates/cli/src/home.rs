//! Home directories, into which a listening receiver does not write: a root that may push could log in as their user, by
//! `.ssh/authorized_keys` or a shell's start-up files.

use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, access},
    process::{Uid, geteuid},
};

use crate::failure::Failure;

const USERS: &str = "/etc/passwd";

/// The maximum number of links in a path (`MAXSYMLINKS` of Linux).
const LINKS_MAX: usize = 40;

/// Refuses a directory for pushed files that is a home directory, contains one, or is inside a `.ssh`. The same applies to the
/// target of a home's `.ssh`, if that is a link.
///
/// Homes, existing or not, are those of this user in the environment and in `/etc/passwd`, and for root those of all users
/// there: sshd accepts only files of the user and of root. Of users in other databases (LDAP), only the one who starts it is
/// known, by the environment.
///
/// Errors: names the directory, the home and its user.
pub fn refuse(directory: &Path) -> Result<(), Failure> {
    // A missing directory is reported later.
    let Ok(real) = fs::canonicalize(directory) else { return Ok(()) };
    if real.iter().any(|name| name == ".ssh") {
        return Err(Failure::Usage(format!(
            "--dir {} lets roots write into a .ssh directory, and thus log in (authorized_keys): use another directory",
            directory.display()
        )));
    }
    let own = env::var_os("HOME").map(|home| ("this user".into(), PathBuf::from(home)));
    // Without this file, as in some containers, only the user of the environment is known.
    let users = fs::read(USERS).unwrap_or_default();
    let listed = homes_of(geteuid(), &String::from_utf8_lossy(&users));
    let mut homes = listed.into_iter().chain(own).filter(|(_, home)| home.is_absolute());
    let reaches_login = |home: &Path| {
        let keys = home.join(".ssh");
        is_reached(home, &real) || is_reached(&keys, &real) || is_inside(&real, &keys)
    };
    let Some((user, home)) = homes.find(|(_, home)| reaches_login(home)) else {
        return Ok(());
    };
    let (directory, home) = (directory.display(), home.display());
    Err(Failure::Usage(format!(
        "--dir {directory} lets roots write into {home}, the home directory of {user}, or its .ssh, and thus log in as {user} \
         (.ssh/authorized_keys): use a directory that contains no home directory, such as {home}/incoming (for the user of a \
         service: usermod --home /nonexistent USER)"
    )))
}

/// Users and homes in a text like that of `/etc/passwd`: those with this user ID, for root all.
fn homes_of(own: Uid, users: &str) -> Vec<(String, PathBuf)> {
    let user = |line: &str| match line.split(':').collect::<Vec<_>>()[..] {
        [name, _, number, _, _, home, ..] if own.is_root() || number == own.to_string() => {
            Some((name.to_owned(), PathBuf::from(home)))
        }
        _ => None,
    };
    users.lines().filter_map(user).collect()
}

/// Whether a push can write into this home by a name below the directory, whose path has no links. A push can create missing
/// directories of the home.
fn is_reached(home: &Path, directory: &Path) -> bool {
    let Some((there, missing)) = resolve(home) else { return false };
    let is_below = there.join(missing).starts_with(directory) || is_same(&there, directory);
    // A push cannot write into read-only directories, such as by ProtectSystem= of a service.
    let is_writable = || access(&there, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    there.is_dir() && is_below && is_writable()
}

/// Whether the directory is that of this path, or inside it.
fn is_inside(directory: &Path, path: &Path) -> bool {
    directory.ancestors().any(|above| is_same(above, path))
}

/// Returns the longest existing part of a path, without links, and the missing names below it. A link to a missing target is
/// followed, since a push can create the target. `None` if there are too many links.
fn resolve(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let existing = |path: &Path| Some((path.to_owned(), fs::canonicalize(path).ok()?));
    let mut path = path.to_owned();
    for _ in 0..=LINKS_MAX {
        let (named, there) = path.ancestors().find_map(existing)?;
        let mut missing = path.strip_prefix(&named).ok()?.components();
        let below = missing.as_path().to_owned();
        let first = missing.next().map(|name| there.join(name));
        match first.map(fs::read_link) {
            Some(Ok(target)) => path = there.join(target).join(missing.as_path()),
            _ => return Some((there, below)),
        }
    }
    None
}

/// Whether two paths are the same directory, such as by a bind mount.
fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    id(one).is_some_and(|one| id(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_reaches_all_homes_and_others_their_own() {
        let users = "root:x:0:0:root:/root:/bin/bash\n\nbroken:x\nrdmc:x:9:9::/nonexistent:\n";
        let names = |number| {
            let homes = homes_of(Uid::from_raw(number), users);
            homes.into_iter().map(|(user, home)| format!("{user} {}", home.display())).collect()
        };
        let (all, own, none): (Vec<String>, Vec<String>, Vec<String>) =
            (names(0), names(9), names(10));
        assert_eq!(all, ["root /root", "rdmc /nonexistent"]);
        assert_eq!((own, none), (vec!["rdmc /nonexistent".to_owned()], vec![]));
    }

    #[test]
    fn homes_below_a_directory_are_reached_and_those_above_it_are_not() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path("a/home/incoming")).unwrap();
        fs::create_dir(path("a/homes")).unwrap();
        fs::write(path("a/file"), "").unwrap();
        std::os::unix::fs::symlink("home", path("a/link")).unwrap();
        let home = path("a/home");
        for reaching in ["a/home", "a"] {
            assert!(is_reached(&home, &path(reaching)), "{reaching}");
        }
        for elsewhere in ["a/home/incoming", "a/homes"] {
            assert!(!is_reached(&home, &path(elsewhere)), "{elsewhere}");
        }
        assert!(is_reached(&path("a/link"), &path("a/home")));
        for missing in ["a/new", "a/new/user", "a/link/new"] {
            assert!(is_reached(&path(missing), &path("a")), "{missing}");
            assert!(!is_reached(&path(missing), &path("a/homes")), "{missing}");
        }
        assert!(is_reached(&path("a/link/new"), &home));
        // Links with missing targets: a push can create the target.
        std::os::unix::fs::symlink("homes/user", path("a/dangling")).unwrap();
        std::os::unix::fs::symlink("dangling", path("a/second")).unwrap();
        std::os::unix::fs::symlink("loop", path("a/loop")).unwrap();
        for dangling in ["a/dangling", "a/second", "a/second/user"] {
            assert!(is_reached(&path(dangling), &path("a/homes")), "{dangling}");
            assert!(!is_reached(&path(dangling), &home), "{dangling}");
        }
        assert!(!is_reached(&path("a/loop/user"), &path("a/homes")));
        // Paths that cannot be homes, as those of services.
        for none in ["a/file", "a/file/none"] {
            assert!(!is_reached(&path(none), &path("a")), "{none}");
        }
    }
}
