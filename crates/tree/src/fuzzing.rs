//! Fuzz target of this crate: listings from peers.

use crate::{Attributes, Layout, Listing};

/// Decodes a listing. What is accepted is a tree, is encoded again with the same meaning, and lays out its files without gaps.
/// Returns whether it was accepted.
pub fn listings(bytes: &[u8]) -> bool {
    let Ok(listing) = Listing::decode(bytes) else { return false };
    let again = Listing::with_links(listing.entries().to_vec(), listing.links());
    let attributes = (0..listing.entries().len()).map_while(|entry| listing.attributes(entry));
    let attributes: Vec<Attributes> = attributes.cloned().collect();
    let again = again.and_then(|again| match bytes[0] & 2 {
        0 => Ok(again),
        _ => again.with_attributes(attributes),
    });
    let files = 0..listing.entries().len();
    let data = files.filter_map(|entry| Some((entry, listing.data(entry)?.to_vec())));
    let again = again.and_then(|again| again.with_data(data));
    assert_eq!(again.as_ref(), Ok(&listing));
    let encoded = listing.encode().expect("it is no longer than what was decoded");
    assert_eq!(Listing::decode(&encoded).as_ref(), Ok(&listing));
    let layout = Layout::of(&listing);
    let middle = layout.bytes() / 2;
    for range in [0..middle, middle..layout.bytes(), middle..u64::MAX] {
        let covered: u64 = layout
            .pieces(range.clone())
            .map(|piece| piece.in_object.end - piece.in_object.start)
            .sum();
        assert_eq!(covered, range.end.min(layout.bytes()) - range.start);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Kind, Links};

    #[test]
    fn the_corpus_passes() {
        let entry =
            |path: &str, kind| Entry { path: path.into(), mode: 0o755, modified_ns: -7, kind };
        let tree = vec![
            entry("model", Kind::Directory),
            entry("model/config.json", Kind::File { bytes: 700 }),
            entry("model/latest", Kind::Link { target: b"./config.json".into() }),
            entry("model/shard-1", Kind::File { bytes: 1 << 40 }),
            entry("model/shard-2", Kind::Name { of: 3 }),
        ];
        let seed = |entries| Listing::new(entries).unwrap().encode().unwrap();
        let outwards = vec![entry("out", Kind::Link { target: b"/opt/../model".into() })];
        let outwards = Listing::with_links(outwards, Links::Anywhere).unwrap().encode().unwrap();
        let owned = vec![entry("d", Kind::Directory), entry("d/f", Kind::File { bytes: 7 })];
        let extended = vec![(b"user.note".to_vec(), b"value".to_vec())];
        let attributes = Attributes { user: Some(1000), group: Some(100), extended };
        let owned = Listing::new(owned).unwrap().with_attributes(vec![attributes; 2]).unwrap();
        let owned = owned.encode().unwrap();
        let holes =
            vec![entry("a", Kind::File { bytes: 9 }), entry("b", Kind::File { bytes: 1 << 40 })];
        let holes = Listing::new(holes).unwrap().with_data([(1, vec![0..7, 9..1 << 39])]).unwrap();
        let seeds = [
            ("holes", holes.encode().unwrap()),
            ("attributes", owned),
            ("tree", seed(tree)),
            ("empty_file", seed(vec![entry("a", Kind::File { bytes: 0 })])),
            ("links_anywhere", outwards),
        ];
        testing::replay("tree_listings", &seeds, listings);
    }
}
