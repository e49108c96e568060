//! One entry of a tree.

/// What an entry is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file with contents of this length in bytes.
    File {
        /// Length of the contents.
        bytes: u64,
    },
    /// A further name of a file of the tree: a hard link.
    Name {
        /// The number of that file's entry, which is an earlier one.
        of: u32,
    },
    /// A symbolic link.
    Link {
        /// Its text: relative and to a place inside the tree, unless the listing's links may lead anywhere.
        target: Vec<u8>,
    },
}

/// One entry of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Relative to the top of the tree, with `/` between names: any bytes but 0.
    pub path: Vec<u8>,
    /// Permission bits, `0o777` at most, of directories with the sticky bit `0o1777`; of no meaning for links.
    pub mode: u16,
    /// Modification time in nanoseconds since 1970, negative before.
    pub modified_ns: i64,
    /// What it is.
    pub kind: Kind,
}

impl Entry {
    /// Returns the last component of the path.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|&byte| byte == b'/').next().unwrap_or(&self.path)
    }

    /// Returns the path of the directory that it is in; `None` at the top of the tree.
    pub fn parent(&self) -> Option<&[u8]> {
        let at = self.path.iter().rposition(|&byte| byte == b'/')?;
        Some(&self.path[..at])
    }

    /// Returns how many bytes its path and the text of a link have.
    pub(crate) fn own_bytes(&self) -> usize {
        let target = match &self.kind {
            Kind::Link { target } => target.len(),
            _ => 0,
        };
        self.path.len() + target
    }

    /// Returns the length of the contents; `None` of an entry without contents of its own.
    pub fn bytes(&self) -> Option<u64> {
        match self.kind {
            Kind::File { bytes } => Some(bytes),
            Kind::Directory | Kind::Name { .. } | Kind::Link { .. } => None,
        }
    }
}
