//! What agents say, for people.

use std::{
    io::{self, Write},
    time::Duration,
};

use control::proto::{Copy, Count, GroupReport, Key, PlannedSwitch, ShowReply};

use crate::failure::plain;

/// A switch.
pub fn show(switch: &ShowReply, out: &mut impl Write) -> io::Result<()> {
    let (name, version) = (plain(&switch.name), plain(&switch.version));
    writeln!(
        out,
        "{name}: rdmc {version}, copies in {}, for {}",
        match switch.plane.as_str() {
            "kernel" => "the kernel",
            _ => "userspace",
        },
        duration(switch.uptime_ms),
    )?;
    writeln!(
        out,
        "{} of {} groups; up to {} receivers each, with {} memory regions; forgotten after {}",
        switch.groups,
        switch.groups_max,
        switch.members_max,
        switch.regions_max,
        duration(switch.stale_after_ms.into()),
    )?;
    for port in &switch.ports {
        let agents = match port.agents.is_empty() {
            true => String::new(),
            false => format!(" → {}", plain(&port.agents.join(" or "))),
        };
        writeln!(out, "  port {} {}{agents}", port.number, plain(&port.name))?;
    }
    for next in &switch.agents_by_prefix {
        let (prefix, agent) = next.split_once('=').unwrap_or((next, ""));
        writeln!(out, "  {} → {}", plain(prefix), plain(agent))?;
    }
    Ok(())
}

/// Its groups.
pub fn groups(groups: &[GroupReport], out: &mut impl Write) -> io::Result<()> {
    if groups.is_empty() {
        return writeln!(out, "no groups");
    }
    for group in groups {
        let merges = if group.is_first { ", answers merged here" } else { "" };
        writeln!(
            out,
            "{} from queue pair {:#x}{merges}; wanted by {}, last heard {} ago",
            key(group.key.as_ref()),
            group.sender_qpn,
            if group.callers.is_empty() {
                "nobody".into()
            } else {
                plain(&group.callers.join(", "))
            },
            duration(group.silent_ms),
        )?;
        copies(&group.copies, out)?;
        for member in &group.members {
            let (address, messages) = (plain(&member.address), member.msn);
            writeln!(
                out,
                "  {address}: {messages} messages, expects packet {:#x}",
                member.expected_psn
            )?;
        }
        if !group.trouble.is_empty() {
            writeln!(out, "  trouble: {}", plain(&group.trouble))?;
        }
    }
    Ok(())
}

/// What it has counted.
pub fn counts(counts: &[Count], out: &mut impl Write) -> io::Result<()> {
    let width = counts.iter().map(|count| count.name.len()).max().unwrap_or_default();
    for Count { name, count } in counts {
        writeln!(out, "{:<width$}  {count:>16}", plain(name))?;
    }
    Ok(())
}

/// Where paths would part.
pub fn plan(switches: &[PlannedSwitch], out: &mut impl Write) -> io::Result<()> {
    for switch in switches {
        let passes = if switch.copies.is_empty() { ": packets pass as they are" } else { "" };
        writeln!(out, "{}{passes}", plain(&switch.name))?;
        copies(&switch.copies, out)?;
    }
    Ok(())
}

fn copies(copies: &[Copy], out: &mut impl Write) -> io::Result<()> {
    for copy in copies {
        let (ports, members) = (plain(&copy.ports.join(" or ")), plain(&copy.members.join(", ")));
        let rewritten = if copy.is_rewritten { ", rewritten for it" } else { "" };
        let agents = match copy.agents.is_empty() {
            true => String::new(),
            false => format!(", copied again by {}", plain(&copy.agents.join(" or "))),
        };
        writeln!(out, "  → {ports}: {members}{rewritten}{agents}")?;
    }
    Ok(())
}

fn key(key: Option<&Key>) -> String {
    let show = |key: &Key| format!("group {}/{:#x}", plain(&key.sender), key.id);
    key.map_or_else(|| "a group without a name".into(), show)
}

/// To the second, or less if it is less than that.
fn duration(ms: u64) -> String {
    let duration = Duration::from_millis(ms);
    match ms / 1000 {
        0 => format!("{ms} ms"),
        1..120 => format!("{} s", duration.as_secs()),
        120..7200 => format!("{} min", duration.as_secs() / 60),
        _ => format!("{} h", duration.as_secs() / 3600),
    }
}
