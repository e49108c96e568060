//! Ranges of the object, and of files.

use std::ops::Range;

use proptest::prelude::*;
use tree::{Entry, Kind, Layout, Listing, ListingError};

use crate::trees::{any_tree, assert_is_read, file};

proptest! {
    /// Every byte of a range is in one piece, in order, and in the place that its file has.
    #[test]
    fn pieces_cover_a_range_exactly(tree in any_tree(), one in 0..3_000_u64, other in 0..3_000_u64) {
        let layout = Layout::of(&tree);
        let range = one.min(other)..one.max(other);
        let mut at = range.start.min(layout.bytes());
        for piece in layout.pieces(range.clone()) {
            prop_assert_eq!(piece.in_object.start, at);
            at = piece.in_object.end;
            let whole = layout.range(piece.entry);
            prop_assert_eq!(layout.entry(piece.file), piece.entry);
            prop_assert_eq!(layout.range_of(piece.file), whole.clone());
            let bytes = tree.entries()[piece.entry].bytes().unwrap();
            prop_assert_eq!(whole.end - whole.start, bytes);
            prop_assert_eq!(piece.in_file.start, piece.in_object.start - whole.start);
            prop_assert_eq!(piece.in_file.end, piece.in_object.end - whole.start);
            prop_assert!(piece.in_file.start < piece.in_file.end && piece.in_file.end <= bytes);
        }
        prop_assert_eq!(at, range.end.min(layout.bytes()));
    }

    #[test]
    fn files_lie_one_after_another(tree in any_tree()) {
        let layout = Layout::of(&tree);
        let mut at = 0;
        for (number, entry) in tree.entries().iter().enumerate() {
            let (range, bytes) = (layout.range(number), entry.bytes().unwrap_or(0));
            if bytes > 0 {
                prop_assert_eq!(range.start, at);
                at += bytes;
            }
            prop_assert_eq!(range.end - range.start, bytes);
        }
        prop_assert_eq!(layout.bytes(), at);
        let files = tree.entries().iter().filter(|entry| entry.bytes().unwrap_or(0) > 0);
        prop_assert_eq!(layout.files(), files.count());
    }

    #[test]
    fn entries_are_found_by_their_paths(tree in any_tree()) {
        for (number, entry) in tree.entries().iter().enumerate() {
            prop_assert_eq!(tree.find(&entry.path), Some(number));
            prop_assert_eq!(tree.find(&[&entry.path[..], b"/no such name"].concat()), None);
        }
    }
}

#[test]
fn a_block_holds_the_end_of_one_file_and_the_start_of_the_next() {
    let files = vec![file("a", 10), file("b", 0), file("c", 5), file("d", 100)];
    let layout = Layout::of(&Listing::new(files).unwrap());
    let pieces: Vec<_> =
        layout.pieces(8..20).map(|piece| (piece.entry, piece.in_file, piece.in_object)).collect();
    assert_eq!(pieces, [(0, 8..10, 8..10), (2, 0..5, 10..15), (3, 0..5, 15..20)]);
    assert_eq!(layout.pieces(115..200).count(), 0);
    assert_eq!(layout.pieces(5..5).count(), 0);
}

/// Files with holes: their data alone are in the object.
fn with_holes(files: &[(u64, Vec<Range<u64>>)]) -> Listing {
    let entries = files.iter().enumerate().map(|(number, (bytes, _))| Entry {
        path: format!("{number:03}").into(),
        mode: 0o644,
        modified_ns: 0,
        kind: Kind::File { bytes: *bytes },
    });
    let listing = Listing::new(entries.collect()).unwrap();
    let data =
        files.iter().enumerate().filter(|(_, (bytes, data))| data.first() != Some(&(0..*bytes)));
    listing.with_data(data.map(|(number, (_, data))| (number, data.clone()))).unwrap()
}

proptest! {
    #[test]
    fn of_files_with_holes_the_data_are_laid_out(
        files in prop::collection::vec((prop::collection::vec(1..9_u64, 0..7), any::<bool>()), 1..6),
        start in 0..60_u64,
        length in 0..60_u64,
    ) {
        let files: Vec<(u64, Vec<Range<u64>>)> = files.into_iter().map(|(lengths, starts_with_data)| {
            let (mut at, mut data) = (0, Vec::new());
            for (number, length) in lengths.into_iter().enumerate() {
                if (number % 2 == 0) == starts_with_data {
                    data.push(at..at + length);
                }
                at += length;
            }
            (at.max(1), data)
        }).collect();
        let listing = with_holes(&files);
        let encoded = listing.encode().unwrap();
        prop_assert_eq!(&Listing::decode(&encoded).unwrap(), &listing);
        assert_is_read(&listing);
        // By definition: each byte of data in turn.
        let bytes = |(file, (_, data)): (usize, &(u64, Vec<Range<u64>>))| {
            data.iter().cloned().flatten().map(move |at| (file, at)).collect::<Vec<_>>()
        };
        let object: Vec<(usize, u64)> = files.iter().enumerate().flat_map(bytes).collect();
        let layout = Layout::of(&listing);
        prop_assert_eq!(layout.bytes(), object.len() as u64);
        let pieces = layout.pieces(start..start + length);
        let found: Vec<(usize, u64)> =
            pieces.flat_map(|piece| piece.in_file.map(move |at| (piece.file, at))).collect();
        let end = object.len().min((start + length) as usize);
        prop_assert_eq!(&found[..], object.get(start as usize..end).unwrap_or_default());
        let mut touched: Vec<usize> = found.iter().map(|(file, _)| *file).collect();
        touched.dedup();
        prop_assert_eq!(layout.files_in(start..start + length).collect::<Vec<_>>(), touched);
        for (file, (bytes, _)) in files.iter().enumerate() {
            let part = bytes / 3..*bytes;
            let ranges = layout.in_object(file, part.clone());
            let found: Vec<(usize, u64)> =
                ranges.into_iter().flatten().map(|at| object[at as usize]).collect();
            let expected: Vec<(usize, u64)> =
                object.iter().copied().filter(|(of, at)| *of == file && part.contains(at)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn holes_that_a_file_cannot_have_are_refused() {
    let kind = |bytes| Kind::File { bytes };
    let file =
        |bytes| Entry { path: b"f".to_vec(), mode: 0o644, modified_ns: 0, kind: kind(bytes) };
    let cases: [(u64, &[(u64, u64)]); 6] = [
        (0, &[]),
        (9, &[(0, 9)]),
        (9, &[(0, 10)]),
        (9, &[(3, 3)]),
        (9, &[(0, 3), (3, 5)]),
        (9, &[(4, 6), (2, 3)]),
    ];
    for (bytes, data) in cases {
        let listing = Listing::new(vec![file(bytes)]).unwrap();
        let ranges = data.iter().map(|&(start, end)| start..end).collect();
        let error = listing.with_data([(0, ranges)]).unwrap_err();
        assert!(matches!(error, ListingError::Holes(_)), "{data:?}: {error}");
    }
}
