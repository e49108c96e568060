//! Trees that are made up.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tree::{Entry, Kind, Listing, Read, Reader};

/// What a made-up file or link of a tree is.
#[derive(Clone, Debug)]
pub enum Made {
    File(u64),
    Again(usize),
    Link(String),
}

/// A path by its names.
type Names = Vec<Vec<u8>>;

/// Mode and modification time.
type Attributes = (u16, i64);

pub fn entry(path: &[u8], kind: Kind) -> Entry {
    Entry { path: path.to_vec(), mode: 0o644, modified_ns: 5, kind }
}

pub fn file(path: &str, bytes: u64) -> Entry {
    entry(path.as_bytes(), Kind::File { bytes })
}

pub fn directory(path: &str) -> Entry {
    entry(path.as_bytes(), Kind::Directory)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let letters = prop::sample::select(b"ab-.\xff \n".to_vec());
    prop::collection::vec(letters, 1..4).prop_filter("a name", |name| name != b"." && name != b"..")
}

fn made() -> impl Strategy<Value = Made> {
    prop_oneof![
        4 => (0..200_u64).prop_map(Made::File),
        1 => any::<usize>().prop_map(Made::Again),
        1 => prop::sample::select(vec!["x", "./x/y", ".//y/z"]).prop_map(|to| Made::Link(to.into())),
    ]
}

/// Trees of up to 30 files and links in up to four levels of directories.
pub fn any_tree() -> impl Strategy<Value = Listing> {
    let path = prop::collection::vec(name(), 1..5);
    let attributes = (0..=0o777_u16, any::<i64>());
    prop::collection::vec((path, made(), attributes), 0..30).prop_map(|all| {
        let mut kinds: BTreeMap<Names, Option<(Made, Attributes)>> = BTreeMap::new();
        for (path, made, attributes) in all {
            let directories = (1..path.len()).map(|names| path[..names].to_vec());
            let directories: Vec<_> = directories.collect();
            let is_free = directories.iter().all(|it| kinds.get(it).is_none_or(Option::is_none));
            if is_free && !kinds.contains_key(&path) {
                for directory in directories {
                    kinds.entry(directory).or_insert(None);
                }
                kinds.insert(path, Some((made, attributes)));
            }
        }
        let mut entries: Vec<Entry> = Vec::new();
        for (path, made) in kinds {
            let files = (0..entries.len()).filter(|&number| entries[number].bytes().is_some());
            let files: Vec<usize> = files.collect();
            let kind = match &made {
                None => Kind::Directory,
                Some((Made::File(bytes), _)) => Kind::File { bytes: *bytes },
                Some((Made::Again(_), _)) if files.is_empty() => Kind::File { bytes: 1 },
                Some((Made::Again(which), _)) => {
                    Kind::Name { of: files[which % files.len()] as u32 }
                }
                Some((Made::Link(target), _)) => Kind::Link { target: target.clone().into() },
            };
            let (mode, modified_ns) = made.map_or((0o755, 0), |(_, attributes)| attributes);
            entries.push(Entry { path: path.join(&b'/'), mode, modified_ns, kind });
        }
        Listing::new(entries).expect("it is a tree")
    })
}

/// Reading what was encoded gives what the tree has, entry by entry.
pub fn assert_is_read(tree: &Listing) {
    let encoded = tree.encode().unwrap();
    let read = Reader::new(&encoded).unwrap().collect::<Result<Vec<Read>, _>>().unwrap();
    let entries = tree.entries().iter().enumerate();
    let expected = entries.map(|(number, entry)| Read {
        entry: entry.clone(),
        attributes: tree.attributes(number).cloned(),
        data: tree.data(number).map(<[_]>::to_vec),
    });
    assert_eq!(read, expected.collect::<Vec<_>>());
}
