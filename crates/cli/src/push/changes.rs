//! The changes of a push at hosts, as text and as JSON.

use std::{
    fmt,
    io::{self, Write},
};

use files::{Change, ChangeCounts, Changes, EntryNames, HostReport, OthersDirectories};
use serde::Serialize;

use crate::failure::plain_name;

/// The number of entries that a push changes at a host.
#[derive(Serialize)]
pub struct Summary {
    /// Entries that the host lacked.
    new: u64,
    /// Entries with other contents or targets, or of another kind.
    changed: u64,
    /// Entries of which only mode, time, owner, access list or `user.*` attributes differed.
    attributes: u64,
    kept: u64,
    /// Entries that only the host had.
    removed: u64,
    /// The destination itself, if it is the copy of a directory: `new`, `attributes` or `kept`; not counted.
    top: Option<&'static str>,
    /// Directories of other users, which keep their mode and time.
    others_directories: Option<Others>,
}

#[derive(Serialize)]
struct Others {
    count: u64,
    /// The path of the first one in the destination; empty for the destination itself.
    first: String,
}

impl Summary {
    pub fn of(changes: &Changes) -> Self {
        let ChangeCounts { new, contents, attributes, kept, removed } = changes.counts();
        let top = changes.top().map(|change| match change {
            Change::New => "new",
            Change::Contents | Change::Attributes => "attributes",
            Change::Kept => "kept",
        });
        let others_directories = changes.others_directories().map(|others| Others {
            count: others.count,
            first: String::from_utf8_lossy(&others.first).into_owned(),
        });
        Self { new, changed: contents, attributes, kept, removed, top, others_directories }
    }
}

/// The number of entries for each kind of change: `1 new, 3 kept`.
pub struct Counted<'a>(pub &'a Changes);

impl Counted<'_> {
    /// Whether nothing changes.
    pub fn is_nothing(&self) -> bool {
        let ChangeCounts { new, contents, attributes, removed, .. } = self.0.counts();
        let is_kept = self.0.top().is_none_or(|change| change == Change::Kept);
        new + contents + attributes + removed == 0 && is_kept
    }
}

impl fmt::Display for Counted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.counts();
        let kinds = [
            (counts.new, "new"),
            (counts.contents, "changed"),
            (counts.attributes, "with other attributes"),
            (counts.removed, "to be removed"),
            (counts.kept, "kept"),
        ];
        let mut parts: Vec<String> = (kinds.iter())
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        match self.0.top() {
            Some(Change::Attributes) => {
                parts.push("the directory itself gets other attributes".into())
            }
            Some(Change::New) if parts.is_empty() => parts.push("a new directory".into()),
            _ if parts.is_empty() => parts.push("an empty directory".into()),
            _ => {}
        }
        formatter.write_str(&parts.join(", "))
    }
}

/// The message about directories of other users, after the name of the host; `None` if there are none.
pub fn others_directories(host: &HostReport) -> Option<String> {
    let OthersDirectories { count, first } = host.changes.as_ref()?.others_directories()?;
    let first = match &first[..] {
        [] => host.destination.clone(),
        first => format!("{}/{}", host.destination, String::from_utf8_lossy(first)),
    };
    let first = plain_name(&first);
    Some(match count {
        1 => format!("{first} belongs to another user and keeps its mode and time"),
        _ => format!(
            "{count} directories belong to other users and keep their modes and times: {first} is the first"
        ),
    })
}

/// Lists the changes at hosts, a line for each entry; kept entries are left out. `names`: those of the source's entries.
pub fn write_listed<'a>(
    out: &mut impl Write,
    hosts: impl Iterator<Item = &'a HostReport>,
    names: &EntryNames,
) -> io::Result<()> {
    let names = names.to_vec();
    for host in hosts {
        let (host, Some(changes)) = (&host.name, &host.changes) else { continue };
        for (entry, change) in changes.listed() {
            let what = match change {
                Change::New => "new",
                Change::Contents => "changed",
                Change::Attributes => "attributes",
                Change::Kept => continue,
            };
            let name = names.get(entry).map_or("", String::as_str);
            writeln!(out, "{host}: {what}: {}", plain_name(name))?;
        }
        for path in changes.removed() {
            writeln!(out, "{host}: removed: {}", plain_name(&String::from_utf8_lossy(path)))?;
        }
        if changes.is_cut() {
            writeln!(out, "{host}: and more that are not listed")?;
        }
    }
    Ok(())
}
