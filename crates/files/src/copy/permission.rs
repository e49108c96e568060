//! Whether this user may change what has to change.

use rustix::{fs::Stat, io::Errno, process::geteuid};

use super::{
    error::{TargetError, refusal},
    order::Order,
    parents::{Parents, split},
    there::{Found, There},
};
use crate::disk::Directory;

/// Checks what is there and has to change, and the directories that get new entries, before anything is sent. `stages`: by the
/// number of the entry.
///
/// Errors: a directory that is another user's and not writable, or on a read-only file system; an entry of another user in a
/// directory in which only owners replace theirs; something immutable; a mount that would be replaced.
pub(super) fn check(
    existing: &Directory,
    order: &Order,
    there: &There,
    stages: &[bool],
) -> Result<(), TargetError> {
    let mut parents = Parents::new(existing);
    let mut last: Option<(&[u8], Option<Stat>)> = None;
    let is_there =
        |path: &[u8]| path.is_empty() || order.listing.find(path).is_some_and(|at| !stages[at]);
    for (number, entry) in order.entries().iter().enumerate() {
        let found = &there.found[number];
        if !stages[number] && found.is_finished() {
            continue;
        }
        let parent = split(&entry.path).0;
        if stages[number] && last.is_none_or(|(last, _)| last != parent) {
            let sticky = match is_there(parent) {
                true => check_directory(&mut parents, &entry.path, parent, order)?,
                false => None,
            };
            last = Some((parent, sticky));
        }
        if matches!(found, Found::Nothing) && order.looks {
            continue;
        }
        let Ok((at, name)) = parents.of(&entry.path) else { continue };
        if at.is_immutable(name) {
            return Err(TargetError::immutable(order.shown(&entry.path)));
        }
        if stages[number] && at.is_mount(name) {
            return Err(TargetError::mounted(order.shown(&entry.path)));
        }
        let Some((_, Some(sticky))) = last.filter(|_| stages[number]) else { continue };
        let (there, user) = (at.stat(name), geteuid().as_raw());
        if sticky.st_uid != user && there.is_ok_and(|there| there.st_uid != user) {
            return Err(TargetError::Sticky(order.shown(&entry.path)));
        }
    }
    Ok(())
}

/// Checks the directory of an entry; its attributes, if only owners may replace what is in it.
fn check_directory(
    parents: &mut Parents,
    path: &[u8],
    parent: &[u8],
    order: &Order,
) -> Result<Option<Stat>, TargetError> {
    let failed = |error: Errno| refusal(&order.shown(parent), "write in", 0, error.into());
    let (directory, _) = parents.of(path).map_err(failed)?;
    let (stat, user) = (directory.own_stat().map_err(failed)?, geteuid());
    if directory.is_itself_immutable() {
        return Err(TargetError::immutable(order.shown(parent)));
    }
    match directory.check_writable() {
        // It gets its owner's permission when it is written.
        Err(Errno::ACCESS) if stat.st_uid == user.as_raw() => {}
        checked => checked.map_err(failed)?,
    }
    Ok((stat.st_mode & 0o1000 != 0 && !user.is_root()).then_some(stat))
}
