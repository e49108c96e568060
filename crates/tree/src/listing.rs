//! A whole tree as a list, and its encoding.

use std::ops::Range;

use crate::{
    attributes::{self, Attributes, AttributesFault, Holder},
    entry::{Entry, Kind},
    error::{ListingError, too_large},
    extents,
    packed::{ANY_LINKS, ATTRIBUTES, HOLES, LISTING_BYTES_MAX, Packed, PackedKind, Unpacker},
    path::{check_link, check_path, check_text, compare},
};

/// The most entries of a listing.
pub const ENTRIES_MAX: usize = 1 << 24;

/// The most bytes of all paths, targets of links and extended attributes together: a bound on the memory that an encoded listing
/// takes.
pub const PATHS_BYTES_MAX: usize = 256 << 20;

/// A tree: its entries in the order of their paths, each directory before what is in it.
///
/// Its memory is that of the paths and some 80 bytes for each entry.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Listing {
    links: Links,
    entries: Vec<Entry>,
    /// If its entries have any.
    attributes: Option<attributes::Table>,
    /// If files have holes.
    data: Option<extents::Table>,
}

/// Where the symbolic links of a tree may lead.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Links {
    /// To places in the tree, and to its top.
    #[default]
    Inside,
    /// Anywhere, also nowhere.
    Anywhere,
}

/// What is checked of entries one after another.
#[derive(Default)]
struct Checks {
    links: Links,
    /// Directories that contain the last entry, by the lengths of their paths, and the last entry if it is one.
    open: Vec<usize>,
    paths_bytes: usize,
    bytes: u64,
}

impl Listing {
    /// Makes a tree of entries in any order, whose links lead into it.
    ///
    /// Errors: they are no tree. [`Kind::Name`] refers to entries by their number after sorting, so that entries with
    /// hard links have to be in order.
    pub fn new(entries: Vec<Entry>) -> Result<Self, ListingError> {
        Self::with_links(entries, Links::Inside)
    }

    /// As [`Listing::new`], with links that may lead elsewhere.
    pub fn with_links(mut entries: Vec<Entry>, links: Links) -> Result<Self, ListingError> {
        if !entries.iter().any(|entry| matches!(entry.kind, Kind::Name { .. })) {
            entries.sort_by(|one, other| compare(&one.path, &other.path));
        }
        let mut checks = Checks { links, ..Checks::default() };
        for number in 0..entries.len() {
            checks.add(&entries[..number], &entries[number])?;
        }
        Ok(Self { links, entries, attributes: None, data: None })
    }

    /// The same tree with attributes of its entries, in their order; what is not there has none.
    ///
    /// Errors: an entry cannot have them; they are too long together.
    pub fn with_attributes(
        mut self,
        all: impl IntoIterator<Item = Attributes>,
    ) -> Result<Self, ListingError> {
        let paths_bytes = self.entries.iter().map(Entry::own_bytes).sum();
        let mut checks = Checks { paths_bytes, ..Checks::default() };
        let mut table = attributes::Table::default();
        let mut all = all.into_iter();
        for (number, entry) in self.entries.iter().enumerate() {
            let added = table.add(number, &entry.kind, all.next().unwrap_or_default());
            checks.add_attributes(entry, added)?;
        }
        self.attributes = Some(table);
        Ok(self)
    }

    /// The same tree with where files with holes have data, by the numbers of their entries: ascending, with holes between.
    ///
    /// Errors: a file cannot have such data; there is too much of it.
    pub fn with_data(
        mut self,
        all: impl IntoIterator<Item = (usize, Vec<Range<u64>>)>,
    ) -> Result<Self, ListingError> {
        let paths_bytes = self.entries.iter().map(Entry::own_bytes).sum();
        let mut checks = Checks { paths_bytes, ..Checks::default() };
        let mut table = extents::Table::default();
        for (number, data) in all {
            let entry = &self.entries[number];
            let added = entry.bytes().and_then(|bytes| table.add(number, bytes, data));
            checks.add_holes(entry, added)?;
        }
        self.data = Some(table).filter(|table| !table.is_empty());
        Ok(self)
    }

    /// Returns where a file with holes has data, by the number of its entry; `None` if it has no holes.
    pub fn data(&self, entry: usize) -> Option<&[Range<u64>]> {
        self.data.as_ref()?.of(entry)
    }

    /// Returns the attributes of an entry besides mode and time, by its number; `None` if none are kept of any.
    pub fn attributes(&self, entry: usize) -> Option<&Attributes> {
        self.attributes.as_ref()?.of(entry)
    }

    /// Returns the length of the names and values of extended attributes of all entries.
    pub fn extended_bytes(&self) -> u64 {
        self.attributes.as_ref().map_or(0, |table| table.extended_bytes(self.entries.len()))
    }

    /// Replaces the numbers of users and groups in the attributes of all entries; asks at least once for each number.
    #[must_use]
    pub fn map_ids(mut self, mut map: impl FnMut(Holder, u32) -> u32) -> Self {
        if let Some(attributes) = &mut self.attributes {
            attributes.map_ids(&mut map);
        }
        self
    }

    /// Returns where its links may lead.
    pub fn links(&self) -> Links {
        self.links
    }

    /// Returns the entries in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the number of the entry with this path.
    pub fn find(&self, path: &[u8]) -> Option<usize> {
        self.entries.binary_search_by(|entry| compare(&entry.path, path)).ok()
    }

    /// Returns the encoded tree.
    ///
    /// Errors: it is longer than [`LISTING_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, ListingError> {
        let links = if self.links == Links::Anywhere { ANY_LINKS } else { 0 };
        let attributes = if self.attributes.is_some() { ATTRIBUTES } else { 0 };
        let mut encoded = vec![links | attributes | if self.data.is_some() { HOLES } else { 0 }];
        let (mut path, mut modified_ns) = (&[][..], 0_i64);
        for (number, entry) in self.entries.iter().enumerate() {
            let shared =
                entry.path.iter().zip(path).take_while(|(one, other)| one == other).count();
            let packed = Packed {
                shared: shared as u16,
                rest: &entry.path[shared..],
                mode: entry.mode,
                modified_ns: entry.modified_ns.wrapping_sub(modified_ns),
                kind: PackedKind::of(&entry.kind),
            };
            (path, modified_ns) = (&entry.path, entry.modified_ns);
            encoded = postcard::to_extend(&packed, encoded)
                .map_err(|_| ListingError::Encoding(number))?;
            if let Some(attributes) = &self.attributes {
                encoded = postcard::to_extend(&attributes.packed(number), encoded)
                    .map_err(|_| ListingError::Encoding(number))?;
            }
            if let (Some(data), Kind::File { .. }) = (&self.data, &entry.kind) {
                encoded = postcard::to_extend(&data.packed(number), encoded)
                    .map_err(|_| ListingError::Encoding(number))?;
            }
            if encoded.len() > LISTING_BYTES_MAX {
                return Err(too_large("bytes of the encoded listing", LISTING_BYTES_MAX as u64));
            }
        }
        Ok(encoded)
    }

    /// Decodes a tree that anybody may have sent.
    ///
    /// Errors: the bytes are no listing, or what they list is no tree.
    pub fn decode(encoded: &[u8]) -> Result<Self, ListingError> {
        let mut unpacker = Unpacker::new(encoded)?;
        let code = unpacker.code;
        let links = if code & ANY_LINKS != 0 { Links::Anywhere } else { Links::Inside };
        let mut attributes = (code & ATTRIBUTES != 0).then(attributes::Table::default);
        let mut data = (code & HOLES != 0).then(extents::Table::default);
        let mut entries: Vec<Entry> = Vec::new();
        let mut checks = Checks { links, ..Checks::default() };
        while let Some(unpacked) = unpacker.next()? {
            let entry = unpacked.entry;
            checks.add(&entries, &entry)?;
            if let (Some(attributes), Some(packed)) = (&mut attributes, unpacked.attributes) {
                let added = attributes.unpack(entries.len(), &entry.kind, packed);
                checks.add_attributes(&entry, added)?;
            }
            if let (Some(data), Some(bytes), Some(packed)) =
                (&mut data, entry.bytes(), unpacked.data)
            {
                let added = data.unpack(entries.len(), bytes, &packed);
                checks.add_holes(&entry, added)?;
            }
            entries.push(entry);
        }
        let data = data.filter(|data| !data.is_empty());
        Ok(Self { links, entries, attributes, data })
    }
}

impl Checks {
    /// Checks an entry that follows others, which are correct.
    fn add(&mut self, before: &[Entry], entry: &Entry) -> Result<(), ListingError> {
        let number = before.len();
        let shown = || shown(&entry.path);
        check_path(&entry.path).map_err(|fault| ListingError::Path {
            entry: number,
            path: shown(),
            fault,
        })?;
        if let Some(last) = before.last() {
            match compare(&last.path, &entry.path) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Err(ListingError::Twice(shown())),
                std::cmp::Ordering::Greater => {
                    return Err(ListingError::Order { entry: number, path: shown() });
                }
            }
        }
        self.check_parent(before, entry)?;
        let mode_max = if matches!(entry.kind, Kind::Directory) { 0o1777 } else { 0o777 };
        if entry.mode > mode_max {
            return Err(ListingError::Mode { path: shown(), mode: entry.mode });
        }
        self.paths_bytes += entry.own_bytes();
        match &entry.kind {
            Kind::Directory => self.open.push(number),
            &Kind::File { bytes } => {
                let all = self.bytes.checked_add(bytes).filter(|&all| all <= i64::MAX as u64);
                self.bytes = all.ok_or_else(|| too_large("bytes of contents", i64::MAX as u64))?;
            }
            &Kind::Name { of } => {
                if before.get(of as usize).and_then(Entry::bytes).is_none() {
                    return Err(ListingError::NoFile { path: shown(), of });
                }
            }
            Kind::Link { target } => {
                let target_shown = || crate::listing::shown(target);
                let checked = match self.links {
                    Links::Inside => check_link(&entry.path, target),
                    Links::Anywhere => check_text(target),
                };
                checked.map_err(|fault| ListingError::Link {
                    path: shown(),
                    target: target_shown(),
                    fault,
                })?;
            }
        }
        if number >= ENTRIES_MAX {
            return Err(too_large("entries", ENTRIES_MAX as u64));
        }
        self.check_bytes()
    }

    /// Counts what is kept of an entry's attributes.
    fn add_attributes(
        &mut self,
        entry: &Entry,
        added: Result<usize, AttributesFault>,
    ) -> Result<(), ListingError> {
        let path = || shown(&entry.path);
        self.paths_bytes +=
            added.map_err(|fault| ListingError::Attributes { path: path(), fault })?;
        self.check_bytes()
    }

    /// Counts what is kept of where a file has data; `None` if it cannot have it.
    fn add_holes(&mut self, entry: &Entry, added: Option<usize>) -> Result<(), ListingError> {
        self.paths_bytes += added.ok_or_else(|| ListingError::Holes(shown(&entry.path)))?;
        self.check_bytes()
    }

    fn check_bytes(&self) -> Result<(), ListingError> {
        match self.paths_bytes > PATHS_BYTES_MAX {
            true => Err(too_large("bytes of paths", PATHS_BYTES_MAX as u64)),
            false => Ok(()),
        }
    }

    /// Checks that the entry's directory is there. As entries are in order, only those that contain the last one can be it.
    fn check_parent(&mut self, before: &[Entry], entry: &Entry) -> Result<(), ListingError> {
        let Some(parent) = entry.parent() else {
            self.open.clear();
            return Ok(());
        };
        while let Some(&directory) = self.open.last() {
            if before[directory].path == parent {
                return Ok(());
            }
            self.open.pop();
        }
        Err(ListingError::NoDirectory(shown(&entry.path)))
    }
}

/// A path as text for messages.
fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(&path[..path.len().min(300)]).into_owned()
}
