//! The encoding of a listing, entry by entry.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    attributes::{self, Attributes},
    entry::{Entry, Kind},
    error::{ListingError, too_large},
    extents,
};

/// The longest encoded listing, in bytes.
pub const LISTING_BYTES_MAX: usize = 256 << 20;

/// In the first byte of an encoded listing: links may lead anywhere.
pub(crate) const ANY_LINKS: u8 = 1;

/// In the first byte of an encoded listing: each entry is followed by its attributes.
pub(crate) const ATTRIBUTES: u8 = 2;

/// In the first byte of an encoded listing: each file is followed by where it has data.
pub(crate) const HOLES: u8 = 4;

/// An entry as it is written: what differs from the one before it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Packed<'a> {
    /// How many bytes the path has in common with the one before.
    pub(crate) shared: u16,
    /// The rest of the path.
    #[serde(borrow)]
    pub(crate) rest: &'a [u8],
    pub(crate) mode: u16,
    /// The difference to the time of the entry before, modulo 2^64.
    pub(crate) modified_ns: i64,
    #[serde(borrow)]
    pub(crate) kind: PackedKind<'a>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum PackedKind<'a> {
    Directory,
    File { bytes: u64 },
    Name { of: u32 },
    Link { target: &'a [u8] },
}

/// An entry as it was written.
pub(crate) struct Unpacked<'a> {
    pub(crate) entry: Entry,
    /// If the listing has any.
    pub(crate) attributes: Option<attributes::Packed<'a>>,
    /// Of a file with holes.
    pub(crate) data: extents::Packed,
}

/// Takes an encoded listing apart, entry by entry; of what entries say nothing is checked.
pub(crate) struct Unpacker<'a> {
    /// The first byte.
    pub(crate) code: u8,
    rest: &'a [u8],
    /// Of the entry before.
    path: Vec<u8>,
    modified_ns: i64,
    entries: usize,
}

impl<'a> Unpacker<'a> {
    /// Errors: the bytes are no listing, or too many.
    pub(crate) fn new(encoded: &'a [u8]) -> Result<Self, ListingError> {
        if encoded.len() > LISTING_BYTES_MAX {
            return Err(too_large("bytes of the encoded listing", LISTING_BYTES_MAX as u64));
        }
        let (&code, rest) = encoded.split_first().ok_or(ListingError::Version)?;
        if code & !(ANY_LINKS | ATTRIBUTES | HOLES) != 0 {
            return Err(ListingError::Version);
        }
        Ok(Self { code, rest, path: Vec::new(), modified_ns: 0, entries: 0 })
    }

    /// The next entry; `None` at the end. Errors: its bytes are none.
    pub(crate) fn next(&mut self) -> Result<Option<Unpacked<'a>>, ListingError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let packed = self.take::<Packed<'_>>()?;
        if usize::from(packed.shared) > self.path.len() {
            return Err(ListingError::Encoding(self.entries));
        }
        self.path.truncate(packed.shared.into());
        self.path.extend_from_slice(packed.rest);
        self.modified_ns = self.modified_ns.wrapping_add(packed.modified_ns);
        let entry = Entry {
            path: self.path.clone(),
            mode: packed.mode,
            modified_ns: self.modified_ns,
            kind: packed.kind.unpacked(),
        };
        let attributes = if self.code & ATTRIBUTES != 0 { Some(self.take()?) } else { None };
        let may_have_holes = self.code & HOLES != 0 && entry.bytes().is_some();
        let data = if may_have_holes { self.take()? } else { None };
        self.entries += 1;
        Ok(Some(Unpacked { entry, attributes, data }))
    }

    fn take<T: Deserialize<'a>>(&mut self) -> Result<T, ListingError> {
        let taken = postcard::take_from_bytes(self.rest);
        let (taken, rest) = taken.map_err(|_| ListingError::Encoding(self.entries))?;
        self.rest = rest;
        Ok(taken)
    }
}

/// An entry of an encoded listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The entry.
    pub entry: Entry,
    /// What it has besides mode and time, if the listing has that of any.
    pub attributes: Option<Attributes>,
    /// Where it has data, if it is a file with holes.
    pub data: Option<Vec<Range<u64>>>,
}

/// Reads a listing that this process has encoded, entry by entry: it takes no memory, and nothing is checked of what entries say.
/// [`crate::Listing::decode`] is for what others send.
pub struct Reader<'a> {
    unpacker: Unpacker<'a>,
    /// Of the entry before.
    attributes: Attributes,
}

impl<'a> Reader<'a> {
    /// Errors: the bytes are no listing.
    pub fn new(encoded: &'a [u8]) -> Result<Self, ListingError> {
        Ok(Self { unpacker: Unpacker::new(encoded)?, attributes: Attributes::default() })
    }

    fn read(&mut self) -> Result<Option<Read>, ListingError> {
        let Some(Unpacked { entry, attributes, data }) = self.unpacker.next()? else {
            return Ok(None);
        };
        let attributes = attributes.map(|packed| {
            if let Some(other) = packed.unpacked() {
                self.attributes = other;
            }
            self.attributes.clone()
        });
        let data = data.map(|packed| extents::ranges(&packed));
        let data = data.map(|data| data.ok_or(ListingError::Encoding(self.unpacker.entries)));
        Ok(Some(Read { entry, attributes, data: data.transpose()? }))
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Read, ListingError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl<'a> PackedKind<'a> {
    pub(crate) fn of(kind: &'a Kind) -> Self {
        match kind {
            Kind::Directory => Self::Directory,
            &Kind::File { bytes } => Self::File { bytes },
            &Kind::Name { of } => Self::Name { of },
            Kind::Link { target } => Self::Link { target },
        }
    }

    fn unpacked(self) -> Kind {
        match self {
            Self::Directory => Kind::Directory,
            Self::File { bytes } => Kind::File { bytes },
            Self::Name { of } => Kind::Name { of },
            Self::Link { target } => Kind::Link { target: target.to_vec() },
        }
    }
}
