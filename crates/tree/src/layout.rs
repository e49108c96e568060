//! Which bytes of the object belong to which file.

use std::ops::Range;

use crate::listing::Listing;

/// A part of a file, and of the object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The number of the file among those with contents.
    pub file: usize,
    /// The number of the file's entry.
    pub entry: usize,
    /// Where it is in the file.
    pub in_file: Range<u64>,
    /// Where it is in the object.
    pub in_object: Range<u64>,
}

/// The contents of all files of a tree as one object: one after another in the order of entries, without gaps.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Layout {
    /// The first byte of each file that has contents, ascending.
    starts: Vec<u64>,
    /// The numbers of their entries.
    entries: Vec<u32>,
    bytes: u64,
}

impl Layout {
    /// Lays out the files of a tree.
    pub fn of(listing: &Listing) -> Self {
        let mut layout = Self::default();
        for (number, entry) in (0..).zip(listing.entries()) {
            let bytes = entry.bytes().unwrap_or(0);
            if bytes > 0 {
                layout.starts.push(layout.bytes);
                layout.entries.push(number);
                // A listing has checked that the sum fits.
                layout.bytes += bytes;
            }
        }
        layout
    }

    /// Returns the length of the object in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of the object that are a file's, by the number of its entry; empty for all other entries.
    pub fn range(&self, entry: usize) -> Range<u64> {
        match self.entries.binary_search(&(entry as u32)) {
            Ok(index) => self.starts[index]..self.end(index),
            Err(_) => 0..0,
        }
    }

    /// Returns how many files have contents.
    pub fn files(&self) -> usize {
        self.starts.len()
    }

    /// Returns the number of a file's entry; files with contents are numbered from 0.
    pub fn entry(&self, file: usize) -> usize {
        self.entries[file] as usize
    }

    /// Returns the bytes of the object that are a file's.
    pub fn range_of(&self, file: usize) -> Range<u64> {
        self.starts[file]..self.end(file)
    }

    /// Returns the parts of files that a range of the object consists of, in order; what is beyond its end is nothing.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        let range = range.start.min(self.bytes)..range.end.min(self.bytes);
        let first = self.starts.partition_point(|&start| start <= range.start).saturating_sub(1);
        let files = first..self.starts.len();
        files
            .take_while({
                let end = range.end;
                move |&index| self.starts[index] < end
            })
            .map(move |index| {
                let start = self.starts[index];
                let in_object = start.max(range.start)..self.end(index).min(range.end);
                let in_file = in_object.start - start..in_object.end - start;
                Piece { file: index, entry: self.entries[index] as usize, in_file, in_object }
            })
            .filter(|piece| !piece.in_object.is_empty())
    }

    fn end(&self, index: usize) -> u64 {
        self.starts.get(index + 1).copied().unwrap_or(self.bytes)
    }
}
