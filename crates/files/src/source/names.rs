//! Names of what is sent, for reports.

use std::sync::Arc;

use tree::{Kind, Listing};

/// The names of a source's entries, by their numbers.
#[derive(Clone, Debug)]
pub struct EntryNames(Names);

#[derive(Clone, Debug)]
enum Names {
    File(String),
    /// Its encoded listing.
    Tree(Arc<[u8]>),
}

impl EntryNames {
    pub(super) fn of_file(name: &str) -> Self {
        Self(Names::File(name.to_owned()))
    }

    pub(super) fn of_tree(encoded: &Arc<[u8]>) -> Self {
        Self(Names::Tree(Arc::clone(encoded)))
    }

    /// The name of a file, or the paths of a tree's entries, of directories with `/` at the end. Takes memory for all of them.
    pub fn to_vec(&self) -> Vec<String> {
        let encoded = match &self.0 {
            Names::File(name) => return vec![name.clone()],
            Names::Tree(encoded) => encoded,
        };
        // The source has encoded it.
        let listing = Listing::decode(encoded).unwrap_or_default();
        let shown = |entry: &tree::Entry| {
            let path = String::from_utf8_lossy(&entry.path);
            let end = if entry.kind == Kind::Directory { "/" } else { "" };
            format!("{path}{end}")
        };
        listing.entries().iter().map(shown).collect()
    }
}
