//! Ranges of the object, and of files.

use proptest::prelude::*;
use tree::{Layout, Listing};

use crate::trees::{any_tree, file};

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
