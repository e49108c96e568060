//! Names of users and groups: their numbers differ from host to host.

use std::{
    collections::{BTreeSet, HashMap},
    io,
};

use nix::unistd::{Gid, Group, Uid, User};
use serde::{Deserialize, Serialize};
use tree::{Attributes, Holder};

/// The most names that are sent: a receiver asks its system for each.
const NAMES_MAX: usize = 4_096;

/// What a receiver has to know of attributes besides modes and times, which it gives copies.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Copies have the access lists that the source has, and no others.
    pub access: bool,
    /// The same of `user.*` attributes.
    pub extended: bool,
    /// Of the file, or of the directory whose copy is the destination.
    pub own: Attributes,
    /// Names of numbers in attributes, as the root's host knows them.
    pub names: Vec<(Holder, u32, String)>,
}

/// The names that this host knows of users and groups. Root's are the same everywhere, and left out.
///
/// Errors: too many.
pub(crate) fn names_of(ids: &BTreeSet<(Holder, u32)>) -> io::Result<Vec<(Holder, u32, String)>> {
    let named = ids.iter().filter(|(_, id)| *id != 0).filter_map(|&(holder, id)| {
        // Not found is an error on some systems.
        let name = match holder {
            Holder::User => User::from_uid(Uid::from_raw(id)).ok()?.map(|user| user.name),
            Holder::Group => Group::from_gid(Gid::from_raw(id)).ok()?.map(|group| group.name),
        };
        Some((holder, id, name?))
    });
    let names: Vec<_> = named.take(NAMES_MAX + 1).collect();
    if names.len() > NAMES_MAX {
        let what = format!("more than {NAMES_MAX} users and groups; --numeric-ids sends no names");
        return Err(io::Error::other(what));
    }
    Ok(names)
}

/// What number users and groups of the root's host have here: by their names, otherwise their own.
#[derive(Debug)]
pub(crate) struct Numbers(HashMap<(Holder, u32), u32>);

impl Numbers {
    /// `None` if a peer has sent too many names.
    pub(crate) fn of(names: &[(Holder, u32, String)]) -> Option<Self> {
        if names.len() > NAMES_MAX {
            return None;
        }
        let known = names.iter().filter(|(_, id, name)| *id != 0 && !name.contains('\0'));
        let numbers = known.filter_map(|(holder, id, name)| {
            let here = match holder {
                Holder::User => User::from_name(name).ok()?.map(|user| user.uid.as_raw()),
                Holder::Group => Group::from_name(name).ok()?.map(|group| group.gid.as_raw()),
            };
            Some(((*holder, *id), here?))
        });
        Some(Self(numbers.collect()))
    }

    pub(crate) fn here(&self, holder: Holder, id: u32) -> u32 {
        self.0.get(&(holder, id)).copied().unwrap_or(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_known_by_name_and_others_by_number() {
        let nobody = User::from_name("nobody").unwrap().expect("every Linux has a nobody");
        let nobody = nobody.uid.as_raw();
        let unknown = 1_234_567_890;
        assert_eq!(User::from_uid(Uid::from_raw(unknown)).unwrap(), None);
        let ids = [(Holder::User, 0), (Holder::User, nobody), (Holder::User, unknown)];
        let names = names_of(&ids.into_iter().collect()).unwrap();
        assert_eq!(names, [(Holder::User, nobody, "nobody".to_owned())]);
        let name = |id, name: &str| (Holder::User, id, name.to_owned());
        let sent =
            [name(77, "nobody"), name(78, "no such user"), name(0, "nobody"), name(79, "a\0")];
        let numbers = Numbers::of(&sent).unwrap();
        let here = [77, 78, 0, 79].map(|id| numbers.here(Holder::User, id));
        assert_eq!(here, [nobody, 78, 0, 79]);
        assert_eq!(numbers.here(Holder::Group, 77), 77);
        assert!(Numbers::of(&vec![name(1, "a"); NAMES_MAX + 1]).is_none());
    }
}
