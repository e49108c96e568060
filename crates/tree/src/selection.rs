//! Which entries of a source are taken: patterns, as rsync's users write them.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use globset::{Glob, GlobBuilder, GlobMatcher};

/// What a pattern decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// What matches is taken.
    Include(String),
    /// What matches is left out; of a directory, all that is in it.
    Exclude(String),
}

/// Rules in order: the first that matches decides, and what none matches is taken.
///
/// A pattern is matched against the last name of a path, or, if it has a `/` before its end, or `**`, against the end of the whole path; if it
/// begins with `/`, against the whole path from the top of the source. If it ends with `/`, it matches directories only.
/// `*` and `?` stand for bytes but `/`, `**` for any bytes, `[..]` for a set; `\` takes the special meaning from what follows. `PATH/***` matches
/// the directory and all that is in it.
#[derive(Clone, Default, Debug)]
pub struct Selection {
    rules: Vec<Compiled>,
}

/// An invalid pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the pattern {pattern:?} is invalid: {reason}")]
pub struct PatternError {
    /// As it was given.
    pub pattern: String,
    /// What is wrong with it.
    pub reason: String,
}

#[derive(Clone, Debug)]
struct Compiled {
    includes: bool,
    directories_only: bool,
    /// Whether only the last name is matched.
    by_name: bool,
    glob: GlobMatcher,
    /// The same for `PATH/***`: what is in the directory.
    below: Option<GlobMatcher>,
}

impl Selection {
    /// Compiles rules.
    ///
    /// Errors: an invalid pattern.
    pub fn new(rules: &[Rule]) -> Result<Self, PatternError> {
        let rules = rules.iter().map(Compiled::new).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// Returns whether an entry is taken, if the directory that it is in is; by its path from the top of the source.
    pub fn takes(&self, path: &[u8], is_directory: bool) -> bool {
        let decides = |rule: &&Compiled| rule.matches(path, is_directory);
        self.rules.iter().find(decides).is_none_or(|rule| rule.includes)
    }
}

impl Compiled {
    fn new(rule: &Rule) -> Result<Self, PatternError> {
        let (includes, pattern) = match rule {
            Rule::Include(pattern) => (true, pattern),
            Rule::Exclude(pattern) => (false, pattern),
        };
        let refused = |reason: String| PatternError { pattern: pattern.clone(), reason };
        let (text, is_whole) = match pattern.strip_suffix("/***") {
            Some(directory) => (directory, true),
            None => (pattern.as_str(), false),
        };
        let (text, directories_only) = match text.strip_suffix('/') {
            Some(directory) => (directory, true),
            None => (text, is_whole),
        };
        let (text, is_anchored) = match text.strip_prefix('/') {
            Some(below_top) => (below_top, true),
            None => (text, false),
        };
        if text.is_empty() {
            return Err(refused("it names nothing".to_owned()));
        }
        let by_name = !is_anchored && !text.contains('/') && !text.contains("**");
        // The end of a path, from any of its names on.
        let text = if by_name || is_anchored { text.to_owned() } else { format!("**/{text}") };
        let compile = |text: &str| -> Result<Glob, PatternError> {
            GlobBuilder::new(text)
                .literal_separator(true)
                .backslash_escape(true)
                .build()
                .map_err(|error| refused(error.kind().to_string()))
        };
        let below = match (is_whole, by_name) {
            (false, _) => None,
            (true, true) => Some(compile(&format!("**/{text}/**"))?.compile_matcher()),
            (true, false) => Some(compile(&format!("{text}/**"))?.compile_matcher()),
        };
        let glob = compile(&text)?.compile_matcher();
        Ok(Self { includes, directories_only, by_name, glob, below })
    }

    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let as_path = |bytes| Path::new(OsStr::from_bytes(bytes));
        if self.below.as_ref().is_some_and(|below| below.is_match(as_path(path))) {
            return true;
        }
        if self.directories_only && !is_directory {
            return false;
        }
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        self.glob.is_match(as_path(if self.by_name { name } else { path }))
    }
}
