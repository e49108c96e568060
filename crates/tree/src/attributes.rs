//! What of entries is kept besides mode and time, if that is asked for: owners and extended attributes.

use serde::{Deserialize, Serialize};

use crate::entry::Kind;

/// The most extended attributes of an entry.
const EXTENDED_MAX: usize = 256;

/// The longest name and the longest value of an extended attribute in bytes, as Linux takes them.
const NAME_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Memory of a name and a value beside their bytes.
const PAIR_BYTES: usize = 64;

/// Lists of access as Linux keeps them; other attributes of the system's and of security modules are not for a peer to set.
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACCESS: &[u8] = b"system.posix_acl_default";
const OF_USERS: &[u8] = b"user.";

/// Tags of the entries of access lists for users and groups by number.
const ACCESS_OF_USER: u16 = 2;
const ACCESS_OF_GROUP: u16 = 8;

/// Owner and extended attributes of an entry.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Attributes {
    /// The user that it belongs to, by number.
    pub user: Option<u32>,
    /// The group that it belongs to, by number.
    pub group: Option<u32>,
    /// Of files and directories: names and values in the order of names, each once: `user.NAME`, and access lists
    /// (`system.posix_acl_access`, of directories `system.posix_acl_default`).
    pub extended: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Whose a number is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Holder {
    /// A user's.
    User,
    /// A group's.
    Group,
}

impl Attributes {
    /// Replaces the numbers of users and groups, of the owners and in access lists.
    pub fn map_ids(&mut self, mut map: impl FnMut(Holder, u32) -> u32) {
        for (holder, id) in [(Holder::User, &mut self.user), (Holder::Group, &mut self.group)] {
            if let Some(id) = id {
                *id = map(holder, *id);
            }
        }
        let lists = self.extended.iter_mut().filter(|(name, _)| is_access(name));
        for (_, list) in lists {
            // A version, and entries of a tag, permissions (both 16 bits) and a number, in little endian.
            for entry in list.get_mut(4..).unwrap_or_default().chunks_exact_mut(8) {
                let holder = match u16::from_le_bytes([entry[0], entry[1]]) {
                    ACCESS_OF_USER => Holder::User,
                    ACCESS_OF_GROUP => Holder::Group,
                    _ => continue,
                };
                let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
                entry[4..].copy_from_slice(&map(holder, id).to_le_bytes());
            }
        }
    }

    /// Length of the names and values of extended attributes.
    pub fn extended_bytes(&self) -> u64 {
        self.extended.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
    }

    /// Checks that an entry of this kind can have them.
    ///
    /// Errors: it cannot, or they are too long.
    pub fn check(&self, kind: &Kind) -> Result<(), AttributesFault> {
        check(kind, self)
    }
}

/// Whether an extended attribute of this name is an access list.
pub fn is_access(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT_ACCESS
}

/// What is wrong with the attributes of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttributesFault {
    /// The first entry has those of the one before.
    #[error("there is no entry before")]
    NothingBefore,
    /// Too many, or too long a name or value.
    #[error("there are more than 256, or a name or value of no or too many bytes")]
    Length,
    /// Not one that may be set.
    #[error("one is neither user.NAME nor an access list")]
    Namespace,
    /// Not in the order of names, or twice.
    #[error("they are not in the order of their names")]
    Order,
    /// A link or a further name, or a file with what only directories have.
    #[error("an entry of its kind cannot have them")]
    Kind,
}

/// Attributes of all entries; those of consecutive ones with equal attributes are kept once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Table {
    /// The first entry of each run, and its attributes; the first run begins with entry 0.
    runs: Vec<(u32, Attributes)>,
}

/// The attributes of an entry as they are written.
#[derive(Serialize, Deserialize)]
pub(crate) enum Packed<'a> {
    /// Those of the entry before.
    Same,
    Other {
        user: Option<u32>,
        group: Option<u32>,
        #[serde(borrow)]
        extended: Vec<(&'a [u8], &'a [u8])>,
    },
}

impl Packed<'_> {
    /// The attributes; `None` if they are those of the entry before.
    pub(crate) fn unpacked(self) -> Option<Attributes> {
        let Self::Other { user, group, extended } = self else { return None };
        let extended = extended.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
        Some(Attributes { user, group, extended: extended.collect() })
    }
}

impl Table {
    /// Adds those of the next entry, by its number. Returns how much memory it takes for names and values.
    pub(crate) fn add(
        &mut self,
        entry: usize,
        kind: &Kind,
        attributes: Attributes,
    ) -> Result<usize, AttributesFault> {
        check(kind, &attributes)?;
        if self.runs.last().is_some_and(|(_, last)| *last == attributes) {
            return Ok(0);
        }
        let bytes = |(name, value): &(Vec<u8>, Vec<u8>)| PAIR_BYTES + name.len() + value.len();
        let kept = attributes.extended.iter().map(bytes).sum();
        self.runs.push((entry as u32, attributes));
        Ok(kept)
    }

    /// The same of what a peer has sent.
    pub(crate) fn unpack(
        &mut self,
        entry: usize,
        kind: &Kind,
        packed: Packed<'_>,
    ) -> Result<usize, AttributesFault> {
        match packed.unpacked() {
            None => {
                let (_, last) = self.runs.last().ok_or(AttributesFault::NothingBefore)?;
                check(kind, last).map(|()| 0)
            }
            Some(attributes) => self.add(entry, kind, attributes),
        }
    }

    /// Those of an entry as they are written.
    pub(crate) fn packed(&self, entry: usize) -> Packed<'_> {
        match self.runs.binary_search_by_key(&(entry as u32), |(first, _)| *first) {
            Err(_) => Packed::Same,
            Ok(run) => {
                let Attributes { user, group, extended } = &self.runs[run].1;
                let extended = extended.iter().map(|(name, value)| (&name[..], &value[..]));
                Packed::Other { user: *user, group: *group, extended: extended.collect() }
            }
        }
    }

    /// Replaces the numbers of users and groups.
    pub(crate) fn map_ids(&mut self, map: &mut impl FnMut(Holder, u32) -> u32) {
        self.runs.iter_mut().for_each(|(_, attributes)| attributes.map_ids(&mut *map));
    }

    /// Length of the names and values of this many entries.
    pub(crate) fn extended_bytes(&self, entries: usize) -> u64 {
        let ends = self.runs.iter().skip(1).map(|&(first, _)| first as usize).chain([entries]);
        let bytes = |(first, attributes): &(u32, Attributes), end: usize| {
            attributes.extended_bytes().saturating_mul((end - *first as usize) as u64)
        };
        let all = self.runs.iter().zip(ends).map(|(run, end)| bytes(run, end));
        all.fold(0, u64::saturating_add)
    }

    /// Those of an entry.
    pub(crate) fn of(&self, entry: usize) -> Option<&Attributes> {
        let run = self.runs.partition_point(|(first, _)| *first as usize <= entry);
        self.runs.get(run.checked_sub(1)?).map(|(_, attributes)| attributes)
    }
}

fn check(kind: &Kind, attributes: &Attributes) -> Result<(), AttributesFault> {
    let extended = &attributes.extended;
    let can_have_them = matches!(kind, Kind::Directory | Kind::File { .. });
    if !extended.is_empty() && !can_have_them {
        return Err(AttributesFault::Kind);
    }
    if extended.len() > EXTENDED_MAX {
        return Err(AttributesFault::Length);
    }
    if !extended.windows(2).all(|pair| pair[0].0 < pair[1].0) {
        return Err(AttributesFault::Order);
    }
    for (name, value) in extended {
        if name.len() > NAME_BYTES_MAX || name.contains(&0) || value.len() > VALUE_BYTES_MAX {
            return Err(AttributesFault::Length);
        }
        match &name[..] {
            ACCESS => {}
            DEFAULT_ACCESS if *kind == Kind::Directory => {}
            DEFAULT_ACCESS => return Err(AttributesFault::Kind),
            name if name.strip_prefix(OF_USERS).is_some_and(|name| !name.is_empty()) => {}
            _ => return Err(AttributesFault::Namespace),
        }
    }
    Ok(())
}
