//! Whether this user may change what has to change.

use rustix::{fs::Stat, io::Errno, process::geteuid};

use super::{
    error::{TargetError, refusal},
    order::Order,
    parents::{Parents, split},
};
use crate::disk::Directory;

/// Checks the directories that are there and get new entries, before anything is sent.
///
/// Errors: one that is another user's and not writable, or on a read-only file system; an entry of another user in a
/// directory in which only owners replace theirs.
pub(super) fn check(
    existing: &Directory,
    order: &Order,
    stages: &[bool],
) -> Result<(), TargetError> {
    let mut parents = Parents::new(existing);
    let mut last: Option<(&[u8], Option<Stat>)> = None;
    let is_there =
        |path: &[u8]| path.is_empty() || order.listing.find(path).is_some_and(|at| !stages[at]);
    for (_, entry) in order.entries().iter().enumerate().filter(|(number, _)| stages[*number]) {
        let parent = split(&entry.path).0;
        if last.is_none_or(|(last, _)| last != parent) {
            let sticky = match is_there(parent) {
                true => check_directory(&mut parents, &entry.path)
                    .map_err(|error| refusal(&order.shown(parent), "write in", 0, error.into()))?,
                false => None,
            };
            last = Some((parent, sticky));
        }
        let Some((_, Some(sticky))) = last else { continue };
        let there = parents.of(&entry.path).and_then(|(at, name)| at.stat(name));
        let user = geteuid().as_raw();
        if sticky.st_uid != user && there.is_ok_and(|there| there.st_uid != user) {
            return Err(TargetError::Sticky(order.shown(&entry.path)));
        }
    }
    Ok(())
}

/// Checks the directory of an entry; its attributes, if only owners may replace what is in it.
fn check_directory(parents: &mut Parents, path: &[u8]) -> Result<Option<Stat>, Errno> {
    let (directory, _) = parents.of(path)?;
    let stat = directory.own_stat()?;
    let user = geteuid();
    match directory.check_writable() {
        // It gets its owner's permission when it is written.
        Err(Errno::ACCESS) if stat.st_uid == user.as_raw() => {}
        checked => checked?,
    }
    Ok((stat.st_mode & 0o1000 != 0 && !user.is_root()).then_some(stat))
}
