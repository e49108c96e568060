//! What of a source is listed.

use tree::{Links, Rule, Selection};

/// What of files and directories is sent, and how.
#[derive(Clone, Default, Debug)]
pub struct ListOptions {
    pub(super) selection: Selection,
    pub(super) links: Links,
}

impl ListOptions {
    /// What the patterns take, and links that lead into what is sent.
    pub fn new(selection: Selection) -> Self {
        Self { selection, links: Links::Inside }
    }

    /// Sends symbolic links as they are, wherever they lead: also out of what is sent, and nowhere.
    #[must_use]
    pub fn any_links(mut self, any_links: bool) -> Self {
        self.links = if any_links { Links::Anywhere } else { Links::Inside };
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
