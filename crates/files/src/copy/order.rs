//! What a receiver is to make.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{fs::Stat, process::geteuid};
use tree::{Entry, Kind, Layout, Listing};

use super::{attributes::Wanted, error::TargetError};
use crate::{
    Manifest,
    messages::{Deletion, Top, TreeOffer},
    owners::{Kept, Numbers},
    place::{NAME_BYTES_MAX, Place, is_hidden},
};

/// What a receiver is to make: a tree, or a file as a tree of one entry in a directory that is there.
pub(crate) struct Order {
    pub(super) listing: Arc<Listing>,
    pub(super) layout: Arc<Layout>,
    /// Identifies the version of the source, for names of what is staged.
    pub(super) version: Vec<u8>,
    /// Attributes of the tree's top, if the copy is that of one directory.
    pub(super) top: Option<Top>,
    /// Existing files are compared by contents, not by length and time.
    pub(super) by_contents: bool,
    /// It is a file: an existing one is read only if its probe ([`crate::hash::probe`]) is this.
    pub(super) probe: Option<[u8; 32]>,
    pub(super) is_file: bool,
    /// It is a file that came as a tree of one entry: its digest is that of such a tree.
    pub(super) is_listed: bool,
    /// What is there is looked at, and may stay.
    pub(super) looks: bool,
    /// An existing directory is exchanged as a whole.
    pub(super) atomic: bool,
    pub(super) deletion: Option<Deletion>,
    /// The root wants to know which entries change, not only how many.
    pub(super) lists_changes: bool,
    /// The effective user of this process when the session began.
    pub(super) user_here: u32,
    /// Which attributes besides mode and time are kept.
    kept: Option<Kept>,
    /// Nothing is changed, not even what an earlier session has left.
    pub(super) dry_run: bool,
    /// The top of the entries' paths, for messages.
    pub(super) shown: PathBuf,
}

impl Order {
    /// Of a file at a place. `probe`: of the source; without it an existing file is not looked at.
    ///
    /// Errors: the name is too long, or none.
    pub(crate) fn of_file(
        place: &Place,
        manifest: &Manifest,
        probe: Option<[u8; 32]>,
    ) -> Result<Self, TargetError> {
        let entry = Entry {
            path: place.name().as_bytes().to_vec(),
            // Never set-user-id and the like, whatever the manifest has.
            mode: (manifest.mode & 0o777) as u16,
            modified_ns: manifest.modified_ns,
            kind: Kind::File { bytes: manifest.bytes },
        };
        let listing = Listing::new(vec![entry]).map_err(|_| refused_name(place))?;
        let numbers = [manifest.bytes.to_le_bytes(), manifest.modified_ns.to_le_bytes()];
        let version = [numbers.as_flattened(), manifest.name.as_bytes()].concat();
        let is_file = true;
        let shown = place.directory().to_owned();
        let order = Self::new(listing, version, None, shown);
        let looks = probe.is_some();
        Ok(Self { by_contents: true, lists_changes: true, probe, is_file, looks, ..order })
    }

    /// Of a tree, whose encoded listing identifies its version. `shown`: the path of its top.
    ///
    /// Errors: the listing is no tree; an entry has a name of what is staged.
    pub(crate) fn of_tree(
        name: &str,
        encoded: &[u8],
        offer: &TreeOffer,
        shown: &Path,
    ) -> Result<Self, TargetError> {
        let listing = Listing::decode(encoded)?;
        let is_own = |entry: &&Entry| std::str::from_utf8(entry.name()).is_ok_and(is_hidden);
        if let Some(entry) = listing.entries().iter().find(is_own) {
            return Err(TargetError::Reserved(shown.join(OsStr::from_bytes(&entry.path))));
        }
        let mut version = blake3::Hasher::new();
        version.update(name.as_bytes()).update(&[0]).update(encoded);
        let version = version.finalize().as_bytes().to_vec();
        let order = Self::new(listing, version, offer.top, shown.to_owned());
        Ok(Self {
            by_contents: offer.by_contents,
            atomic: offer.atomic,
            deletion: offer.deletion.clone(),
            lists_changes: offer.lists_changes,
            ..order
        })
    }

    /// Of a file at a place that is listed as a tree of one entry.
    ///
    /// Errors: as for [`Order::of_tree`]; it is no file; the name is too long, or none.
    pub(crate) fn of_listed_file(
        name: &str,
        encoded: &[u8],
        offer: &TreeOffer,
        place: &Place,
    ) -> Result<Self, TargetError> {
        let order = Self::of_tree(name, encoded, offer, place.directory())?;
        let [Entry { kind: Kind::File { .. }, .. }] = order.entries() else {
            return Err(TargetError::NoName(place.path().to_owned()));
        };
        let entry = Entry { path: place.name().as_bytes().to_vec(), ..order.entries()[0].clone() };
        let data = order.listing.data(0).map(|data| (0, data.to_vec()));
        let listing = Listing::new(vec![entry]).map_err(|_| refused_name(place))?;
        let listing = Arc::new(listing.with_data(data)?);
        let (is_file, is_listed, lists_changes) = (true, true, true);
        Ok(Self { listing, is_file, is_listed, lists_changes, ..order })
    }

    /// The same for a session that changes nothing.
    pub(crate) fn dry_run(self, dry_run: bool) -> Self {
        Self { dry_run, ..self }
    }

    /// The same with attributes besides modes and times.
    ///
    /// Errors: they are none of such a source; too many names.
    pub(crate) fn keeping(mut self, kept: Option<&Kept>) -> Result<Self, TargetError> {
        let Some(kept) = kept else { return Ok(self) };
        let numbers = Numbers::of(&kept.names).ok_or(TargetError::Kept("too many names"))?;
        let here = |holder, id| numbers.here(holder, id);
        let mut kept = kept.clone();
        kept.own.map_ids(here);
        let listing = Arc::unwrap_or_clone(self.listing);
        self.listing = Arc::new(match self.is_file {
            // Of a listing that has them as well the same.
            true => listing.with_attributes([std::mem::take(&mut kept.own)])?,
            false => listing.map_ids(here),
        });
        if kept.own.check(&Kind::Directory).is_err() {
            return Err(TargetError::Kept("no directory can have them"));
        }
        self.kept = Some(kept);
        Ok(self)
    }

    /// Whether this user may set the attributes of something.
    pub(super) fn may_set(&self, stat: &Stat) -> bool {
        self.user_here == 0 || stat.st_uid == self.user_here
    }

    /// Whether something besides modes and times is kept.
    pub(super) fn keeps_attributes(&self) -> bool {
        self.kept.is_some()
    }

    /// What an entry is to have besides mode and time.
    pub(super) fn wanted(&self, entry: usize) -> Option<Wanted<'_>> {
        let Kept { access, extended, .. } = *self.kept.as_ref()?;
        let attributes = self.listing.attributes(entry)?;
        Some(Wanted { attributes, access, extended })
    }

    /// The user whose an entry is to be.
    pub(super) fn user(&self, entry: usize) -> Option<u32> {
        self.wanted(entry)?.attributes.user
    }

    /// The same of the tree's top, if the copy is that of one directory.
    pub(super) fn wanted_of_top(&self) -> Option<Wanted<'_>> {
        let Kept { access, extended, own, .. } = self.kept.as_ref()?;
        self.top.map(|_| Wanted { attributes: own, access: *access, extended: *extended })
    }

    /// Whether a staged file gets its mode and time as soon as it is written. Not where others may enter the staging directory, which
    /// an exchanged directory's access list may let them, and not if its owner may not open it again then.
    pub(super) fn finishes_early(&self, entry: usize) -> bool {
        let is_hidden = !self.is_file && !self.atomic;
        is_hidden && self.kept.is_none() && self.entries()[entry].mode & 0o600 == 0o600
    }

    /// The mode with which a staged file is created: that of its entry if nobody else can see it, otherwise a private one.
    pub(super) fn staged_mode(&self, entry: usize) -> u32 {
        match self.finishes_early(entry) {
            true => self.entries()[entry].mode.into(),
            false => 0o600,
        }
    }

    fn new(listing: Listing, version: Vec<u8>, top: Option<Top>, shown: PathBuf) -> Self {
        let layout = Arc::new(Layout::of(&listing));
        let listing = Arc::new(listing);
        Self {
            listing,
            layout,
            version,
            top,
            by_contents: false,
            probe: None,
            is_file: false,
            is_listed: false,
            looks: true,
            atomic: false,
            deletion: None,
            lists_changes: false,
            user_here: geteuid().as_raw(),
            kept: None,
            dry_run: false,
            shown,
        }
    }

    /// Length of all contents in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// The same with the holes of files, and with the extended attributes that are kept.
    pub(crate) fn whole_bytes(&self) -> u64 {
        let extended = |kept: &Kept| self.listing.extended_bytes() + kept.own.extended_bytes();
        let extended = self.kept.as_ref().map_or(0, extended);
        self.entries().iter().filter_map(Entry::bytes).fold(extended, u64::saturating_add)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        self.listing.entries()
    }

    /// The path of an entry on disk, for messages.
    pub(super) fn shown(&self, path: &[u8]) -> PathBuf {
        match path {
            [] => self.shown.clone(),
            path => self.shown.join(OsStr::from_bytes(path)),
        }
    }
}

fn refused_name(place: &Place) -> TargetError {
    match place.name().len() > NAME_BYTES_MAX {
        true => TargetError::LongName(place.path().to_owned()),
        false => TargetError::NoName(place.path().to_owned()),
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} entries", self.entries().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_what_is_staged_are_refused() {
        for (name, is_refused) in [
            (".rdmc-0123456789ab", true),
            (".a.rdmc-lock", true),
            (".rdmc-lock", true),
            (".a", false),
        ] {
            let (path, kind) = (name.as_bytes().to_vec(), Kind::Directory);
            let entry = Entry { path, kind, mode: 0o700, modified_ns: 0 };
            let encoded = Listing::new(vec![entry]).unwrap().encode().unwrap();
            let order = Order::of_tree("", &encoded, &TreeOffer::default(), Path::new("/copy"));
            let refused = matches!(order, Err(TargetError::Reserved(path)) if path.ends_with(name));
            assert_eq!(refused, is_refused, "{name}");
        }
    }
}
