//! What has to hold of every session, whatever happens beside it.

use std::collections::BTreeMap;

use files::{TargetError, simulation::is_hidden};
use tree::Kind;

use super::{
    record::Record,
    roles::{Role, Roles},
    scenario::{COPY, CopyScenario},
    snapshot::{Node, NodeKind, Snapshot, inner},
};

/// Begins the paths in the destination.
const IN_COPY: &str = "copy/";
/// Begins the paths in a directory that was exchanged.
const IN_OLD: &str = ".copy.rdmc-old/";

/// What a session has moved to where only it looks, and has to move back: by inode and path where it was, and whether it may
/// be removed instead.
#[derive(Debug, Default)]
pub(super) struct Floating(BTreeMap<(u64, String), (Node, bool)>);

impl Floating {
    /// What has come back, if it is that; first of what was at this path. `role`: of the path.
    fn take(&mut self, path: &str, inode: u64, role: Role) -> Option<(Node, bool)> {
        let own = (inode, path.to_owned());
        let any = || self.0.keys().find(|(other, _)| *other == inode && role == Role::Other);
        let key = if self.0.contains_key(&own) { Some(own) } else { any().cloned() };
        key.and_then(|key| self.0.remove(&key))
    }

    /// Forgets what somebody has moved away.
    pub(super) fn settle(&mut self, after: &Snapshot) {
        self.0.retain(|(inode, _), _| after.hidden.values().any(|node| node.inode == *inode));
    }
}

/// Checks a session.
pub(super) fn session(
    scenario: &CopyScenario,
    record: &Record,
    floating: &mut Floating,
    violations: &mut Vec<String>,
) {
    let roles = Roles::of(scenario, record);
    let mut checks = Checks { scenario, record, roles, violations };
    let mut before = &record.start;
    for act in &record.acts {
        checks.window(before, &act.before, floating);
        before = &act.after;
    }
    checks.window(before, &record.end, floating);
    if record.session.faults.is_killed() {
        return;
    }
    match &record.session.outcome {
        Ok(_) => checks.success(),
        Err(error) => checks.failure(error),
    }
}

struct Checks<'a> {
    scenario: &'a CopyScenario,
    record: &'a Record,
    roles: Roles<'a>,
    violations: &'a mut Vec<String>,
}

impl Checks<'_> {
    fn violation(&mut self, what: &str, path: &str) {
        self.violations.push(format!("{path:?} {what}"));
    }

    /// Whether the session exchanges back, since another process had replaced the old directory right before the exchange. What
    /// others have created in the new directory in between goes with it.
    fn is_taken_back(&self, before: &Snapshot, now: &Snapshot) -> bool {
        let top = |it: &Snapshot| it.get(COPY).map(|node| node.inode);
        let exposed = top(before).filter(|_| top(before) != top(&self.record.start));
        exposed.is_some_and(|inode| now.hidden.values().any(|node| node.inode == inode))
    }

    /// What only the session has done between two looks.
    fn window(&mut self, before: &Snapshot, now: &Snapshot, floating: &mut Floating) {
        let is_killed = self.record.session.faults.is_killed();
        let is_working = is_killed || !std::ptr::eq(now, &raw const self.record.end);
        for (path, old) in &before.nodes {
            if path.is_empty() {
                continue;
            }
            let role = self.roles.role(before, path);
            match now.get(path) {
                Some(node) if node.inode == old.inode => {
                    self.stays(path, role, old, node, before, is_working);
                }
                _ if now.hidden.values().any(|node| node.inode == old.inode) => {
                    let may_go = role != Role::Other
                        || self.may_remove(path, old)
                        || self.is_taken_back(before, now);
                    floating.0.insert((old.inode, path.clone()), (old.clone(), may_go));
                }
                node => self.goes(path, role, old, node),
            }
        }
        for (path, node) in &now.nodes {
            let is_new = before.get(path).is_none_or(|old| old.inode != node.inode);
            if is_new && !path.is_empty() {
                self.comes(path, node, now, floating);
            }
        }
        let visible = |inode| now.nodes.values().any(|node| node.inode == inode);
        let hidden = |inode| now.hidden.values().any(|node| node.inode == inode);
        let mut lost = Vec::new();
        floating.0.retain(|(inode, path), (old, may_go)| {
            // A session that completes an exchange of another may remove what it has moved back.
            let look = &self.record.look().hidden;
            let was_left = look.iter().any(|(at, it)| at.starts_with(IN_OLD) && it.inode == *inode);
            let may_go =
                *may_go || self.roles.lists(path) || was_left && self.may_remove(path, old);
            if !may_go && !visible(*inode) && !hidden(*inode) {
                lost.push(path.clone());
            }
            hidden(*inode)
        });
        lost.iter().for_each(|path| self.violation("was moved out of the way and is lost", path));
    }

    fn stays(
        &mut self,
        path: &str,
        role: Role,
        old: &Node,
        node: &Node,
        all: &Snapshot,
        is_working: bool,
    ) {
        if node.bytes != old.bytes {
            self.violation("was written to", path);
        } else if !node.is_untouched(old) {
            let mut names = all.nodes.iter().filter(|(_, other)| other.inode == old.inode);
            let is_linked = !old.is_directory()
                && names.any(|(path, _)| self.roles.role(all, path) == Role::Other)
                && self.record.changed_from(self.record.session.looked_at).is_empty();
            // Its time changes as what is in it is removed, and its mode meanwhile.
            let is_given = is_working && node.mode == old.mode | 0o700;
            let is_emptied = role == Role::Other
                && old.is_directory()
                && (old.mode == node.mode || is_given || self.roles.is_restored(node))
                && self.may_remove(path, old);
            // An exchange that was killed is completed: what is moved into directories changes their time, until they get it back.
            let is_completed = old.is_directory()
                && !self.record.plan.faults.is_empty()
                && old.mode == node.mode
                && path.starts_with(IN_COPY)
                && all.hidden.keys().any(|path| path.starts_with(IN_OLD));
            if !is_emptied && !is_completed && !self.roles.may_set(old, node, is_linked) {
                let facts = |it: &Node| format!("{:o} {}", it.mode, it.modified_ns);
                let what = format!("had {} and has {}", facts(old), facts(node));
                self.violation(&what, path);
            }
        }
    }

    /// `node`: what has the path instead.
    fn goes(&mut self, path: &str, role: Role, old: &Node, node: Option<&Node>) {
        let entries = self.record.source.listing.entries();
        match role {
            Role::Entry(entry) if !old.is_directory() => match node {
                // What has it instead is looked at as something new.
                Some(_) => {}
                None if entries[entry].kind == Kind::Directory => {}
                // Its directory was moved to where the session removes what is not listed.
                None if self.may_remove(path, old) => {}
                None => self.violation("is gone for a moment", path),
            },
            Role::Entry(entry)
                if entries[entry].kind == Kind::Directory && self.scenario.atomic => {}
            Role::Top if self.scenario.atomic && old.is_directory() && node.is_some() => {}
            // Before the session looked its directory was moved to where nothing is listed.
            Role::Entry(_)
                if node.is_none() && !self.roles.lists(path) && self.may_remove(path, old) => {}
            Role::Top | Role::Entry(_) => {
                self.violation("is another directory or none", path);
            }
            Role::Other if self.may_remove(path, old) => {}
            // In a directory that somebody has put in the place of one that is exchanged.
            Role::Other if self.scenario.atomic && self.roles.lists(path) => {}
            Role::Other => self.violation("is lost", path),
        }
    }

    /// Whether `--delete` may remove it: it was there when the session looked, and only the session's own doing has changed
    /// it since.
    fn may_remove(&self, path: &str, old: &Node) -> bool {
        let record = self.record;
        let is_kept = is_kept(path);
        let looked = record.look();
        // What an exchange that was killed has left is moved back before the session looks.
        let was_there = |path: &str| path.starts_with(IN_COPY) || path.starts_with(IN_OLD);
        let mut there = looked.nodes.iter().chain(&looked.hidden);
        let known = there.find(|(path, node)| was_there(path) && node.inode == old.inode);
        let Some((_, known)) = known.filter(|_| self.scenario.deletes && !is_kept) else {
            return false;
        };
        // Between the last look at its change time and its removal nothing can be compared.
        let late = record.session.published_at.map(|at| record.changed_from(at));
        let is_late = late.is_some_and(|late| !late.is_empty());
        old.is_directory() || old.is_untouched(known) || is_late
    }

    fn comes(&mut self, path: &str, node: &Node, all: &Snapshot, floating: &mut Floating) {
        let role = self.roles.role(all, path);
        if let Some((old, may_go)) = floating.take(path, node.inode, role) {
            let is_as_before = node.is_untouched(&old) || may_go || self.is_given_back(&old, node);
            if !is_as_before && !self.roles.may_set(&old, node, false) {
                self.violation("was changed while it was out of the way", path);
            }
            return;
        }
        match role {
            Role::Top if node.is_directory() && self.roles.is_directory(node) => {}
            Role::Entry(entry) if self.roles.is_copy(entry, node) => {}
            // A further name of a file that somebody has written to after it was checked.
            Role::Entry(entry)
                if let Kind::Name { of } = self.record.source.listing.entries()[entry].kind
                    && self.is_changed_late(&self.path(of as usize)) => {}
            // Somebody has written to it after it was checked, and removed it where it was.
            Role::Entry(_)
                if self
                    .record
                    .is_written_from(self.record.session.published_at.unwrap_or(0), node) => {}
            Role::Entry(_) => self.violation("is neither the old one nor the source's", path),
            Role::Top | Role::Other => self.violation("was made by the session", path),
        }
    }

    /// Whether a directory has its time of the start again, as an exchange that was killed is completed: another process has looked
    /// while something was moved into it.
    fn is_given_back(&self, old: &Node, node: &Node) -> bool {
        let start = self.record.start.of_inode(node.inode);
        let has_time = start.is_some_and(|start| start.modified_ns == node.modified_ns);
        node.is_directory() && node.mode == old.mode && has_time
    }

    /// The path of an entry in the directory of the run.
    fn path(&self, entry: usize) -> String {
        let path = String::from_utf8_lossy(&self.record.source.listing.entries()[entry].path);
        match self.scenario.is_tree {
            true => inner(COPY, &path),
            false => path.into_owned(),
        }
    }

    fn failure(&mut self, error: &TargetError) {
        let text = error.to_string();
        let is_compared = matches!(error, TargetError::Mismatch { .. });
        let is_named = text.contains('/') || is_compared && !self.record.acts.is_empty();
        if !is_named {
            self.violations.push(format!("the error names no path: {text}"));
        }
    }

    /// Whether another process has changed a path after the session's last comparison with it.
    fn is_changed_late(&self, path: &str) -> bool {
        let changed = self.record.changed_from(self.record.session.published_at.unwrap_or(0));
        let folds_case = self.scenario.folds_case;
        changed.iter().any(|it| *it == path || folds_case && it.eq_ignore_ascii_case(path))
    }

    /// After success the copy has everything as the source has it, but for what somebody changed after it was published.
    fn success(&mut self) {
        let record = self.record;
        if collides(self.scenario, record, false) {
            self.violation("has two entries of one name, and no error says so", COPY);
            return;
        }
        let folds_case = self.scenario.folds_case;
        let mut inodes = BTreeMap::new();
        for (number, entry) in record.source.listing.entries().iter().enumerate() {
            let path = self.path(number);
            let of = match entry.kind {
                Kind::Name { of } => of as usize,
                _ => number,
            };
            let first = self.path(of);
            if self.is_changed_late(&path) || self.is_changed_late(&first) {
                continue;
            }
            let Some(node) = record.end.find(&path, folds_case) else {
                self.violation("is missing after success", &path);
                continue;
            };
            if let Some(problem) = self.difference(number, node) {
                self.violation(&format!("is published, and {problem}"), &path);
            }
            let other = inodes.insert(node.inode, of);
            if !node.is_directory() && other.is_some_and(|other| other != of) {
                self.violation("is one file with another entry", &path);
            }
            let first = record.end.find(&first, folds_case).map(|node| node.inode);
            if first != Some(node.inode) {
                self.violation("is no further name of its file", &path);
            }
        }
        let Some(top) = record.source.top.filter(|_| !self.is_changed_late(COPY)) else { return };
        let is_right = |node: &Node| {
            (node.mode & 0o1777, node.modified_ns) == (top.mode & 0o1777, top.modified_ns)
        };
        if !record.end.get(COPY).is_some_and(is_right) {
            self.violation("has not the mode and time of the source's top", COPY);
        }
    }

    /// Whether a file was there when the session looked, with the length and time of its entry, and is the same still: another process has
    /// written to it before, and kept its time. Then it stays, unless contents are compared.
    fn is_kept_by_time(&self, number: usize, node: &Node) -> bool {
        let (source, path) = (&self.record.source, self.path(number));
        let there = self.record.look().find(&path, self.scenario.folds_case);
        let (entry, contents) = (&source.listing.entries()[number], source.contents_of(number));
        there.is_some_and(|there| node.is_untouched(there))
            && !source.by_contents
            && (node.bytes.len(), node.modified_ns) == (contents.len(), entry.modified_ns)
    }

    /// How what is published differs from its entry.
    fn difference(&self, number: usize, node: &Node) -> Option<&'static str> {
        let entry = &self.record.source.listing.entries()[number];
        let mode = u32::from(entry.mode);
        match node.kind {
            _ if !self.roles.is_copy(number, node) && !self.is_kept_by_time(number, node) => {
                Some("has other contents")
            }
            _ if matches!(entry.kind, Kind::Name { .. }) => None,
            _ if node.modified_ns != entry.modified_ns => Some("has another time"),
            NodeKind::Directory if node.mode & 0o1777 != mode & 0o1777 => Some("has another mode"),
            NodeKind::File if node.mode != mode & 0o777 => Some("has another mode"),
            _ => None,
        }
    }
}

/// Whether the patterns leave something to the host.
fn is_kept(path: &str) -> bool {
    path.split('/').any(|name| name.ends_with(".keep"))
}

/// Whether entries of the listing have one name at this host. `links`: also if they are one file in the source.
pub(super) fn collides(scenario: &CopyScenario, record: &Record, links: bool) -> bool {
    let entries = record.source.listing.entries();
    let first = |number: usize| match entries[number].kind {
        Kind::Name { of } => of as usize,
        _ => number,
    };
    let is_same = |number: usize| {
        let path = &entries[number].path;
        (0..number).any(|other| {
            entries[other].path.eq_ignore_ascii_case(path)
                && (links || first(other) != first(number))
        })
    };
    scenario.folds_case && (0..entries.len()).any(is_same)
}

/// A session whose publication failed keeps everything that it had verified.
pub(super) fn nothing_is_sent_again(
    previous: Option<&Record>,
    record: &Record,
    violations: &mut Vec<String>,
) {
    let Some(previous) = previous else { return };
    let is_killed = previous.session.faults.is_killed();
    let is_beside = !previous.acts.is_empty() || !record.plan.faults.is_empty();
    let is_same = previous.plan.version == record.plan.version;
    let has_failed = previous.session.outcome.is_err() && previous.session.verified_at.is_some();
    // An exchange that was killed is undone. What others could write to is not taken up again.
    let writers = |entry: &tree::Entry| entry.mode & 0o022 != 0;
    let is_dropped = is_killed && previous.source.atomic
        || !record.source.is_tree && record.source.listing.entries().iter().any(writers);
    if is_beside || !is_same || !has_failed || is_dropped {
        return;
    }
    if let Some(received @ 1..) = record.session.received {
        violations.push(format!("{received} verified bytes were sent again"));
    }
}

/// After success nothing of rdmc is left, nor anything that is to be removed.
pub(super) fn nothing_is_left(
    scenario: &CopyScenario,
    record: &Record,
    floating: &Floating,
    violations: &mut Vec<String>,
) {
    // Not in what somebody has moved away.
    let is_here = |path: &&String| {
        let mut names = path.split('/');
        let directory: Vec<&str> = names.by_ref().take_while(|name| !is_hidden(name)).collect();
        matches!(directory[..], [] | [COPY])
    };
    let left = record.end.hidden.keys().filter(is_here);
    let left = left.map(|path| format!("{path:?} is left"));
    let lost = floating.0.keys().map(|(_, path)| format!("{path:?} was not moved back"));
    violations.extend(left.chain(lost));
    if !scenario.deletes {
        return;
    }
    let roles = Roles::of(scenario, record);
    let kept: Vec<&String> = record.end.nodes.keys().filter(|path| is_kept(path)).collect();
    for path in record.end.nodes.keys().filter(|path| path.starts_with(IN_COPY)) {
        let below = format!("{path}/");
        let holds = kept.iter().any(|kept| *kept == path || kept.starts_with(&below));
        if !holds && roles.role(&record.end, path) == Role::Other {
            violations.push(format!("{path:?} is not removed"));
        }
    }
}

/// A second session has nothing to do.
pub(super) fn nothing_changes(
    scenario: &CopyScenario,
    record: &Record,
    violations: &mut Vec<String>,
) {
    match &record.session.outcome {
        Ok(was_there) if *was_there || scenario.deletes => {}
        other => violations.push(format!("the same push again: {other:?}")),
    }
    if record.session.received != Some(0) {
        violations.push(format!("the same push again receives {:?}", record.session.received));
    }
    let changed = record.end.changed_since(&record.start);
    let changed: Vec<&&str> = changed.iter().filter(|path| !path.is_empty()).collect();
    if !changed.is_empty() {
        violations.push(format!("the same push again changes {changed:?}"));
    }
}
