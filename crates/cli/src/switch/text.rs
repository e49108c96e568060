//! The reports of agents as text.

use std::{
    io::{self, Write},
    time::Duration,
};

use control::proto::{
    Copy, Count, GroupReport, HostGroupsReply, Key, MemberCounters, PlannedSwitch, ShowReply,
};

use crate::failure::plain;

/// Writes the state of a switch.
pub fn show(switch: &ShowReply, out: &mut impl Write) -> io::Result<()> {
    let (name, version) = (plain(&switch.name), plain(&switch.version));
    writeln!(
        out,
        "{name}: rdmc {version}, copies in {}, for {}",
        match switch.plane.as_str() {
            "kernel" => "the kernel".to_owned(),
            other => plain(other),
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

/// Writes the groups of a switch.
pub fn groups(groups: &[GroupReport], out: &mut impl Write) -> io::Result<()> {
    if groups.is_empty() {
        return writeln!(out, "no groups");
    }
    for group in groups {
        let merges = if group.is_first { ", answers merged here" } else { "" };
        writeln!(
            out,
            "{} from queue pair {:#x}{merges}; leased by {}, renewed {} ago",
            key(group.key.as_ref()),
            group.sender_qpn,
            if group.callers.is_empty() { "none".into() } else { plain(&group.callers.join(", ")) },
            duration(group.since_renewal_ms),
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
        if let Some(counters) = &group.counters {
            writeln!(out, "  counted: {}", counted(&counters.counts))?;
            for MemberCounters { address, counts } in &counters.members {
                writeln!(out, "  counted of {}: {}", plain(address), counted(counts))?;
            }
        }
        if !group.trouble.is_empty() {
            writeln!(out, "  trouble: {}", plain(&group.trouble))?;
        }
    }
    Ok(())
}

/// Counters that are not 0.
fn counted(counts: &[Count]) -> String {
    let counts = counts.iter().filter(|count| count.count > 0);
    let counts = counts.map(|Count { name, count }| format!("{} {count}", plain(name)));
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
}

/// Writes the state of a host daemon.
pub fn host(host: &HostGroupsReply, out: &mut impl Write) -> io::Result<()> {
    if host.groups.is_empty() {
        writeln!(out, "no groups that applications of this host send to")?;
    }
    for group in &host.groups {
        writeln!(out, "{} from queue pair {:#x}", key(group.key.as_ref()), group.sender_qpn)?;
        for member in &group.members {
            let failed = match member.failure.is_empty() {
                true => String::new(),
                false => format!(", no longer a member: {}", plain(&member.failure)),
            };
            let (address, service) = (plain(&member.address), plain(&member.service));
            writeln!(out, "  {address}: {service} at {}{failed}", plain(&member.daemon))?;
        }
        if !group.trouble.is_empty() {
            writeln!(out, "  trouble: {}", plain(&group.trouble))?;
        }
    }
    if host.services.is_empty() {
        writeln!(out, "no listening services")?;
    }
    for service in &host.services {
        let groups = match service.offers {
            1 => "1 group".to_owned(),
            count => format!("{count} groups"),
        };
        writeln!(out, "{} listens: member of {groups}", plain(&service.name))?;
    }
    Ok(())
}

/// Writes the counters of a switch.
pub fn counts(counts: &[Count], out: &mut impl Write) -> io::Result<()> {
    let width = counts.iter().map(|count| count.name.len()).max().unwrap_or_default();
    for Count { name, count } in counts {
        writeln!(out, "{:<width$}  {count:>16}", plain(name))?;
    }
    Ok(())
}

/// Writes the copies that switches would make.
pub fn plan(switches: &[PlannedSwitch], out: &mut impl Write) -> io::Result<()> {
    for switch in switches {
        let passes = if switch.copies.is_empty() { ": packets pass unchanged" } else { "" };
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

/// A duration in one unit.
fn duration(ms: u64) -> String {
    let duration = Duration::from_millis(ms);
    match ms / 1000 {
        0 => format!("{ms} ms"),
        1..120 => format!("{} s", duration.as_secs()),
        120..7200 => format!("{} min", duration.as_secs() / 60),
        _ => format!("{} h", duration.as_secs() / 3600),
    }
}

#[cfg(test)]
mod tests {
    use control::proto::{GroupCounters, HostGroup, HostMember, ListeningService};

    use super::*;

    #[test]
    fn a_groups_counters_are_shown_by_name_but_for_zeros() {
        let count = |name: &str, count| Count { name: name.into(), count };
        let member = |address: &str, counts| MemberCounters { address: address.into(), counts };
        let counters = GroupCounters {
            counts: vec![count("requests", 7), count("copies_failed", 0), count("copies", 14)],
            members: vec![
                member("10.0.0.2", vec![count("acks_forwarded", 3)]),
                member("10.0.0.3", vec![count("acks_forwarded", 0)]),
            ],
        };
        let key = Some(Key { sender: "10.0.0.1".into(), id: 9 });
        let group = GroupReport { key, counters: Some(counters), ..GroupReport::default() };
        let mut shown = Vec::new();
        groups(&[group], &mut shown).unwrap();
        let expected = "\
group 10.0.0.1/0x9 from queue pair 0x0; leased by none, renewed 0 ms ago
  counted: requests 7, copies 14
  counted of 10.0.0.2: acks_forwarded 3
  counted of 10.0.0.3: nothing
";
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
    }

    #[test]
    fn a_hosts_groups_are_shown_with_failed_members() {
        let member = |address: &str, failed: &str| HostMember {
            daemon: format!("{address}:4789"),
            service: "weights".into(),
            address: address.into(),
            failure: failed.into(),
        };
        let group = HostGroup {
            key: Some(Key { sender: "10.0.0.1".into(), id: 0x80_0001 }),
            sender_qpn: 17,
            members: vec![member("10.0.0.2", ""), member("10.0.0.3", "it has\u{1b} died")],
            trouble: "tor is gone".into(),
        };
        let service = ListeningService { name: "weights".into(), offers: 1 };
        let mut shown = Vec::new();
        let reply = HostGroupsReply { groups: vec![group], services: vec![service] };
        host(&reply, &mut shown).unwrap();
        let expected = "\
group 10.0.0.1/0x800001 from queue pair 0x11
  10.0.0.2: weights at 10.0.0.2:4789
  10.0.0.3: weights at 10.0.0.3:4789, no longer a member: it has\\u{1b} died
  trouble: tor is gone
weights listens: member of 1 group
";
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
    }
}
