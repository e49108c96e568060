//! Encoding of trees, and entries that are none.

use proptest::prelude::*;
use tree::{Attributes, Entry, Kind, Links, Listing, ListingError};

use crate::trees::{any_tree, assert_is_read, directory, entry, file};

proptest! {
    #[test]
    fn every_tree_comes_back(tree in any_tree()) {
        let encoded = tree.encode().unwrap();
        assert_is_read(&tree);
        prop_assert_eq!(Listing::decode(&encoded).unwrap(), tree);
    }

    #[test]
    fn attributes_come_back(tree in any_tree(), made in prop::collection::vec(any_attributes(), 1..6)) {
        let all: Vec<Attributes> = (tree.entries().iter().zip(made.iter().cycle()))
            .map(|(entry, made)| match entry.kind {
                Kind::Directory | Kind::File { .. } => made.clone(),
                _ => Attributes { extended: Vec::new(), ..made.clone() },
            })
            .collect();
        let tree = tree.with_attributes(all.clone()).unwrap();
        let again = Listing::decode(&tree.encode().unwrap()).unwrap();
        assert_is_read(&tree);
        prop_assert_eq!(&again, &tree);
        let found = (0..all.len()).map(|entry| again.attributes(entry).unwrap().clone());
        prop_assert_eq!(found.collect::<Vec<_>>(), all);
    }

    /// What is decoded of changed bytes is a tree again, so that nothing in it leads outside.
    #[test]
    fn changed_bytes_are_a_tree_or_refused(tree in any_tree(), at: prop::sample::Index, to: u8) {
        let mut encoded = tree.encode().unwrap();
        if !encoded.is_empty() {
            let at = at.index(encoded.len());
            encoded[at] = to;
        }
        if let Ok(other) = Listing::decode(&encoded) {
            prop_assert_eq!(made_again(&other), other);
        }
    }

    #[test]
    fn any_bytes_are_a_tree_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(tree) = Listing::decode(&bytes) {
            prop_assert_eq!(made_again(&tree), tree);
        }
    }

    #[test]
    fn the_order_of_entries_does_not_matter(tree in any_tree(), seed: u64) {
        let mut entries = tree.entries().to_vec();
        prop_assume!(!entries.iter().any(|entry| matches!(entry.kind, Kind::Name { .. })));
        entries.sort_by_key(|entry| {
            entry.path.iter().fold(seed, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        });
        prop_assert_eq!(Listing::new(entries).unwrap(), tree);
    }
}

/// The same tree, of its entries.
fn made_again(tree: &Listing) -> Listing {
    let again = Listing::with_links(tree.entries().to_vec(), tree.links()).unwrap();
    let data = (0..tree.entries().len()).filter_map(|it| Some((it, tree.data(it)?.to_vec())));
    let again = again.with_data(data).unwrap();
    assert_is_read(tree);
    if tree.encode().unwrap()[0] & 2 == 0 {
        return again;
    }
    let attributes = (0..tree.entries().len()).map(|entry| tree.attributes(entry).unwrap().clone());
    again.with_attributes(attributes.collect::<Vec<_>>()).unwrap()
}

fn any_attributes() -> impl Strategy<Value = Attributes> {
    let extended = prop::collection::btree_map("[a-z]{1,3}", any::<Vec<u8>>(), 0..3);
    (any::<Option<u32>>(), any::<Option<u32>>(), extended).prop_map(|(user, group, extended)| {
        let named = |(name, value): (String, Vec<u8>)| (format!("user.{name}").into(), value);
        Attributes { user, group, extended: extended.into_iter().map(named).collect() }
    })
}

#[test]
fn attributes_that_a_peer_may_not_set_are_refused() {
    let of = |entry: Entry, names: &[&str]| {
        let extended = names.iter().map(|name| (name.as_bytes().to_vec(), vec![1])).collect();
        let attributes = Attributes { extended, ..Attributes::default() };
        let made = Listing::new(vec![entry]).unwrap().with_attributes([attributes]);
        made.map(|_| ()).map_err(|error| error.to_string())
    };
    let (file, directory) = (|| file("a", 1), || directory("a"));
    let link = || entry(b"a", Kind::Link { target: b"b".into() });
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    for names in [&[][..], &["user.a"], &[access, "user.a", "user.b"]] {
        assert_eq!(of(file(), names), Ok(()), "{names:?}");
    }
    assert_eq!(of(directory(), &[access, default]), Ok(()));
    let long = format!("user.{}", "n".repeat(251));
    for (made, words) in [
        (of(file(), &["security.capability"]), "neither user.NAME"),
        (of(file(), &["trusted.overlay.opaque"]), "neither user.NAME"),
        (of(file(), &["user."]), "neither user.NAME"),
        (of(file(), &["user.b", "user.a"]), "order"),
        (of(file(), &["user.a", "user.a"]), "order"),
        (of(file(), &[default]), "of its kind"),
        (of(link(), &["user.a"]), "of its kind"),
        (of(file(), &[&long]), "too many bytes"),
        (of(file(), &["user.a\0b"]), "too many bytes"),
    ] {
        let error = made.unwrap_err();
        assert!(
            error.contains("\"a\" has invalid attributes: ") && error.contains(words),
            "{error}"
        );
    }
    // Of the entry before the first.
    let mut encoded = Listing::new(vec![file()]).unwrap().encode().unwrap();
    encoded[0] = 2;
    encoded.push(0);
    let error = Listing::decode(&encoded).unwrap_err().to_string();
    assert!(error.contains("there is no entry before"), "{error}");
    // A link after a file of which it has the attributes.
    let tree = vec![file(), entry(b"l", Kind::Link { target: b"a".into() })];
    let extended = vec![(b"user.a".to_vec(), vec![1])];
    let alike = vec![Attributes { extended, ..Attributes::default() }; 2];
    assert!(Listing::new(tree).unwrap().with_attributes(alike).is_err());
}

/// A few bytes must not become gigabytes of attributes, and equal ones take a byte an entry.
#[test]
fn attributes_are_bounded_and_small() {
    let entries: Vec<Entry> = (0..5_000).map(|number| file(&format!("{number:04}"), 1)).collect();
    let plain = Listing::new(entries).unwrap();
    let owned = |user| Attributes { user: Some(user), group: Some(7), extended: Vec::new() };
    let alike = plain.clone().with_attributes((0..5_000).map(|_| owned(1_000))).unwrap();
    let more = alike.encode().unwrap().len() - plain.encode().unwrap().len();
    assert!((5_000..5_100).contains(&more), "{more} bytes");
    let large = (0..5_000_u32).map(|number| Attributes {
        extended: vec![(b"user.a".to_vec(), [&number.to_le_bytes()[..], &[0; 60_000]].concat())],
        ..Attributes::default()
    });
    let error = plain.with_attributes(large).unwrap_err();
    assert!(error.to_string().contains("too large"), "{error}");
}

fn refused(entries: Vec<Entry>) -> ListingError {
    Listing::new(entries).unwrap_err()
}

#[test]
fn entries_that_are_no_tree_are_refused_by_name() {
    let text = |entries| refused(entries).to_string();
    assert_eq!(text(vec![file("a/b", 1)]), "\"a/b\" is in no directory of the tree");
    let in_a_file = vec![file("a", 1), file("a/b", 1)];
    assert_eq!(text(in_a_file), "\"a/b\" is in no directory of the tree");
    let through_a_link = vec![entry(b"a", Kind::Link { target: b"b".into() }), file("a/c", 1)];
    assert_eq!(text(through_a_link), "\"a/c\" is in no directory of the tree");
    assert_eq!(text(vec![file("a", 1), directory("a")]), "\"a\" is there twice");
    assert!(text(vec![file("../a", 1)]).contains("has . or .. in it"));
    assert!(text(vec![file("/a", 1)]).contains("begins with /"));
    let link = entry(b"a", Kind::Link { target: b"../b".into() });
    assert!(text(vec![link]).contains("symbolic link to \"../b\": it leads out of the tree"));
    let back = vec![
        directory("d"),
        entry(b"d/s", Kind::Link { target: b"..".into() }),
        entry(b"l", Kind::Link { target: b"d/s/../etc".into() }),
    ];
    assert!(text(back).contains("symbolic link to \"d/s/../etc\": it has .. after a name"));
    let of_a_directory = vec![directory("a"), entry(b"b", Kind::Name { of: 0 })];
    assert!(text(of_a_directory).contains("not an earlier file"));
    let of_itself = vec![entry(b"a", Kind::Name { of: 0 })];
    assert!(text(of_itself).contains("not an earlier file"));
    let unordered = vec![file("b", 1), file("a", 1), entry(b"c", Kind::Name { of: 0 })];
    assert!(text(unordered).contains("comes after"));
    let set_user_id = vec![Entry { mode: 0o4755, ..file("a", 1) }];
    assert!(text(set_user_id).contains("mode 4755"));
    assert!(text(vec![Entry { mode: 0o1777, ..file("a", 1) }]).contains("mode 1777"));
    assert!(text(vec![Entry { mode: 0o2777, ..directory("a") }]).contains("mode 2777"));
    Listing::new(vec![Entry { mode: 0o1777, ..directory("a") }]).unwrap();
    let long = vec![file("a", i64::MAX as u64), file("b", 1)];
    assert!(text(long).contains("too large"));
}

#[test]
fn links_lead_out_only_where_the_listing_says_so() {
    let to = |target: &[u8]| vec![entry(b"a", Kind::Link { target: target.to_vec() })];
    for target in [&b"/etc/passwd"[..], b"../../x", b"nowhere", b"b/../..", &[b'n'; 300]] {
        let tree = Listing::with_links(to(target), Links::Anywhere).unwrap();
        let mut encoded = tree.encode().unwrap();
        assert_eq!(Listing::decode(&encoded).unwrap(), tree);
        // The same entries of a tree whose links stay inside.
        encoded[0] = Listing::default().encode().unwrap()[0];
        assert_eq!(Listing::decode(&encoded).is_ok(), target == b"nowhere", "{target:?}");
    }
    for target in [&b""[..], b"a\0b", &[b'a'; 4096]] {
        assert!(Listing::with_links(to(target), Links::Anywhere).is_err(), "{target:?}");
    }
    let through = [to(b"/etc"), vec![file("a/passwd", 1)]].concat();
    assert!(Listing::with_links(through, Links::Anywhere).is_err());
    assert_eq!(Listing::decode(b""), Err(ListingError::Version));
    assert_eq!(Listing::decode(b"\x08"), Err(ListingError::Version));
}

/// A few bytes must not become gigabytes of paths.
#[test]
fn paths_that_repeat_what_came_before_are_bounded() {
    let deep: Vec<Vec<u8>> =
        (1..16).map(|names| vec![vec![b'd'; 255]; names].join(&b'/')).collect();
    let mut entries: Vec<Entry> = deep.iter().map(|path| entry(path, Kind::Directory)).collect();
    let last = deep.last().unwrap();
    entries.extend((0..70_000).map(|number: u32| {
        let name = format!("/{number:06}");
        entry(&[last, name.as_bytes()].concat(), Kind::File { bytes: 0 })
    }));
    let error = Listing::new(entries).unwrap_err();
    assert!(error.to_string().contains("bytes of paths"), "{error}");
}

#[test]
fn an_entry_takes_few_bytes() {
    let mut entries: Vec<Entry> =
        (0..100).map(|one| directory(&format!("shard-{one:02}"))).collect();
    let path = |number: u32| format!("shard-{:02}/sample-{number:06}.jpg", number % 100);
    entries.extend((0..100_000).map(|number| Entry {
        modified_ns: 1_700_000_000_000_000_000 + i64::from(number) * 1_000_003,
        ..file(&path(number), 4_096)
    }));
    let tree = Listing::new(entries).unwrap();
    let encoded = tree.encode().unwrap();
    assert!(encoded.len() < 30 * 100_100, "{} bytes", encoded.len());
    assert_eq!(Listing::decode(&encoded).unwrap().entries().len(), 100_100);
}
