//! Which entries of a source are taken: patterns, as rsync's users write them.

use std::borrow::Cow;

use crate::{glob::Glob, path::PATH_BYTES_MAX};

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
/// Paths begin at the top of the transfer, as rsync's do: with the name of a source, or of a source whose contents are meant (`DIR/`)
/// with a name in it. A pattern is matched against the last name of a path, or, if it has a `/` before its end, or `**`, against the end
/// of the whole path; if it begins with `/`, against the whole path. If it ends with `/`, it matches directories only. `*` and `?` stand
/// for bytes but `/`, `**` for any bytes, `[..]` for a set; `\` takes the special meaning from what follows, if there is any wildcard.
/// `PATH/***` matches the directory and all that is in it.
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
    rule: Rule,
    directories_only: bool,
    scope: Scope,
    /// Paths are matched with `/` before them, so that `**/` at the start also stands for nothing.
    from_slash: bool,
    /// Paths of directories are matched with `/` behind them, so that `/***` at the end also stands for nothing.
    to_slash: bool,
    glob: Glob,
    /// It has matched an entry.
    has_matched: bool,
}

/// Which part of a path is matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    Whole,
    /// As many of the last names as there are.
    Last(usize),
    /// The whole, or what is behind any `/`.
    AnyEnd,
}

impl Rule {
    /// The pattern as it was given.
    pub fn pattern(&self) -> &str {
        let (Self::Include(pattern) | Self::Exclude(pattern)) = self;
        pattern
    }
}

impl Selection {
    /// Compiles rules.
    ///
    /// Errors: an invalid pattern.
    pub fn new(rules: &[Rule]) -> Result<Self, PatternError> {
        let rules = rules.iter().map(Compiled::new).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// Returns whether an entry is taken, if the directory that it is in is; by its path from the top of the transfer. Remembers
    /// which patterns match it.
    pub fn takes(&mut self, path: &[u8], is_directory: bool) -> bool {
        self.takes_unless(|| false, path, is_directory).unwrap_or(true)
    }

    /// The same; `None` once this says that it is to end: thousands of patterns take their time. It is asked before each pattern.
    pub fn takes_unless(
        &mut self,
        is_stopped: impl Fn() -> bool,
        path: &[u8],
        is_directory: bool,
    ) -> Option<bool> {
        let mut decision = None;
        for rule in &mut self.rules {
            if is_stopped() {
                return None;
            }
            if decision.is_some() && rule.has_matched || !rule.matches(path, is_directory) {
                continue;
            }
            rule.has_matched = true;
            decision.get_or_insert(matches!(rule.rule, Rule::Include(_)));
        }
        Some(decision.unwrap_or(true))
    }

    /// The rules in order.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|rule| &rule.rule)
    }

    /// The rules whose patterns have matched nothing so far.
    pub fn unmatched(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| !rule.has_matched).map(|rule| &rule.rule)
    }
}

impl Compiled {
    fn new(rule: &Rule) -> Result<Self, PatternError> {
        let pattern = rule.pattern();
        let refused = |reason: &str| {
            Err(PatternError { pattern: pattern.to_owned(), reason: reason.to_owned() })
        };
        // Peers send patterns as well: what one costs is bounded.
        if pattern.len() > PATH_BYTES_MAX {
            return refused("it is longer than a path");
        }
        let (text, directories_only) = match pattern.strip_suffix('/') {
            Some(directory) => (directory, true),
            None => (pattern, false),
        };
        // A `/` at the start counts, too: with it, names are matched from the top.
        let slashes = text.matches('/').count();
        let crosses = text.contains("**");
        let (from_slash, to_slash) = (text.starts_with("**"), text.ends_with("***"));
        let scope = match (text.starts_with('/'), crosses) {
            (true, _) => Scope::Whole,
            (false, true) if from_slash => Scope::Whole,
            (false, true) => Scope::AnyEnd,
            (false, false) => Scope::Last(slashes + 1),
        };
        let text = text.strip_prefix('/').unwrap_or(text);
        if text.is_empty() {
            return refused("it names nothing");
        }
        if text.split('/').any(str::is_empty) {
            return refused("a name in it is empty");
        }
        match Glob::new(text) {
            Ok(glob) => {
                let (rule, has_matched) = (rule.clone(), false);
                Ok(Self { rule, directories_only, scope, from_slash, to_slash, glob, has_matched })
            }
            Err(reason) => refused(reason),
        }
    }

    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        let mut path = Cow::Borrowed(path);
        if self.from_slash {
            path.to_mut().insert(0, b'/');
        }
        if self.to_slash && is_directory {
            path.to_mut().push(b'/');
        }
        let behind_slashes = |path: &[u8]| {
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            slashes.map(|(at, _)| at + 1).collect::<Vec<_>>()
        };
        match self.scope {
            Scope::Whole => self.glob.matches(&path),
            Scope::AnyEnd => {
                let starts = [0].into_iter().chain(behind_slashes(&path));
                starts.into_iter().any(|start| self.glob.matches(&path[start..]))
            }
            Scope::Last(names) => {
                let mut slashes = path.iter().rposition(|&byte| byte == b'/');
                for _ in 1..names {
                    slashes =
                        slashes.and_then(|end| path[..end].iter().rposition(|&byte| byte == b'/'));
                }
                self.glob.matches(&path[slashes.map_or(0, |at| at + 1)..])
            }
        }
    }
}
