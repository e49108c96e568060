//! What of a source is listed.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use tree::{Links, Rule, Selection};

use super::attributes::KeptAttributes;

/// What of files and directories is sent, and how.
#[derive(Clone, Default, Debug)]
pub struct ListOptions {
    pub(super) selection: Selection,
    pub(super) links: Links,
    /// An absolute path that is not sent.
    without: Option<PathBuf>,
    pub(super) attributes: KeptAttributes,
}

impl ListOptions {
    /// What the patterns take, and links that lead into what is sent.
    pub fn new(selection: Selection) -> Self {
        Self { selection, ..Self::default() }
    }

    /// Sends symbolic links as they are, wherever they lead: also out of what is sent, and nowhere.
    #[must_use]
    pub fn any_links(mut self, any_links: bool) -> Self {
        self.links = if any_links { Links::Anywhere } else { Links::Inside };
        self
    }

    /// Leaves out what has this absolute path, whatever the patterns say: copies on this machine that are in the source.
    #[must_use]
    pub fn without(mut self, path: Option<PathBuf>) -> Self {
        self.without = path;
        self
    }

    /// Whether a name in a directory is left out whatever the patterns say.
    pub(super) fn leaves_out(&self, directory: &Path, name: &OsStr) -> bool {
        let is_named = |it: &&PathBuf| it.file_name() == Some(name);
        let Some(without) = self.without.as_ref().filter(is_named) else { return false };
        let parent = without.parent().and_then(|parent| parent.canonicalize().ok());
        parent.is_some_and(|parent| directory.canonicalize().is_ok_and(|it| it == parent))
    }

    /// Sends owners, access lists and `user.*` attributes, which copies are to have as well.
    #[must_use]
    pub fn keeps(mut self, attributes: KeptAttributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// The patterns in order, each with whether it includes.
    pub(super) fn patterns(&self) -> Vec<(bool, String)> {
        let pattern = |rule: &Rule| (matches!(rule, Rule::Include(_)), rule.pattern().to_owned());
        self.selection.rules().map(pattern).collect()
    }

    /// The rules whose patterns have matched nothing.
    pub(super) fn unmatched(&self) -> Vec<Rule> {
        self.selection.unmatched().cloned().collect()
    }
}
