//! Which bytes of the object belong to which file.

use std::{collections::BTreeMap, ops::Range};

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

/// The contents of all files of a tree as one object: one after another in the order of entries, without gaps and holes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Layout {
    /// The first byte of each file that has contents, ascending; the same as the next one's if it is all hole.
    starts: Vec<u64>,
    /// The numbers of their entries.
    entries: Vec<u32>,
    /// Of files with holes, by their numbers: where their data are.
    data: BTreeMap<usize, Vec<Range<u64>>>,
    bytes: u64,
}

impl Layout {
    /// Lays out the files of a tree.
    pub fn of(listing: &Listing) -> Self {
        let mut layout = Self::default();
        for (number, entry) in (0..).zip(listing.entries()) {
            let bytes = entry.bytes().unwrap_or(0);
            if bytes > 0 {
                let data = listing.data(number as usize);
                if let Some(data) = data {
                    layout.data.insert(layout.starts.len(), data.to_vec());
                }
                let length = |range: &Range<u64>| range.end - range.start;
                let bytes = data.map_or(bytes, |data| data.iter().map(length).sum());
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

    /// Whether a file with contents has holes.
    pub fn has_holes(&self, file: usize) -> bool {
        self.data.contains_key(&file)
    }

    /// Returns the bytes of the object that are a range of a file, without what is hole in it.
    pub fn in_object(&self, file: usize, in_file: Range<u64>) -> Vec<Range<u64>> {
        let start = self.starts[file];
        let Some(data) = self.data.get(&file) else {
            let range = start + in_file.start..start + in_file.end;
            return std::iter::once(range).collect();
        };
        let mut at = start;
        let mut found = Vec::new();
        for range in data {
            let (from, to) = (range.start.max(in_file.start), range.end.min(in_file.end));
            if from < to {
                found.push(at + from - range.start..at + to - range.start);
            }
            at += range.end - range.start;
        }
        found
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
        self.files_in(range.clone())
            .map(move |index| {
                let start = self.starts[index];
                let in_object = start.max(range.start)..self.end(index).min(range.end);
                let in_file = in_object.start - start..in_object.end - start;
                Piece { file: index, entry: self.entries[index] as usize, in_file, in_object }
            })
            .flat_map(|piece| {
                let data = self.data.get(&piece.file);
                let split = data.map_or_else(Vec::new, |data| split(&piece, data));
                data.is_none().then_some(piece).into_iter().chain(split)
            })
            .filter(|piece| !piece.in_object.is_empty())
    }

    /// Returns the numbers of the files that have a byte in a range of the object, in order.
    pub fn files_in(&self, range: Range<u64>) -> impl Iterator<Item = usize> + '_ {
        let first = self.starts.partition_point(|&start| start <= range.start).saturating_sub(1);
        let has_byte =
            move |&file: &usize| self.starts[file].max(range.start) < self.end(file).min(range.end);
        let end = range.end;
        (first..self.starts.len()).take_while(move |&file| self.starts[file] < end).filter(has_byte)
    }

    fn end(&self, index: usize) -> u64 {
        self.starts.get(index + 1).copied().unwrap_or(self.bytes)
    }
}

/// The parts of a piece of a file with holes; `in_file` of the piece counts the file's data.
fn split(piece: &Piece, data: &[Range<u64>]) -> Vec<Piece> {
    // How many bytes of data are before a range.
    let mut before = 0;
    let mut parts = Vec::new();
    for range in data {
        let after = before + range.end - range.start;
        let (from, to) = (piece.in_file.start.max(before), piece.in_file.end.min(after));
        if from < to {
            let at = piece.in_object.start + from - piece.in_file.start;
            let in_file = range.start + from - before..range.start + to - before;
            parts.push(Piece { in_file, in_object: at..at + (to - from), ..piece.clone() });
        }
        before = after;
    }
    parts
}
