//! `rdmc switch metrics`: a switch's state for Prometheus.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fmt::Display,
    io::{self, Write},
};

use control::proto::{Count, GroupReport, ShowReply};
use serde::Serialize;

use super::ask::Asked;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Example, for the textfile collector of Prometheus' node_exporter, every few seconds:
  rdmc switch metrics tor-a:4790 --cert monitor.pem --key monitor.key --ca ca.pem > rdmc.prom.new
  mv rdmc.prom.new /var/lib/node_exporter/rdmc.prom";

/// Print a switch's counters and groups in the Prometheus text format
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Metrics {
    #[command(flatten)]
    pub asked: Asked,
}

/// The answer.
#[derive(Serialize)]
struct State {
    switch: ShowReply,
    counters: Vec<Count>,
    groups: Vec<GroupReport>,
}

impl Metrics {
    pub fn run(&self) -> Result<(), Failure> {
        self.asked.answer(
            async |agent| {
                let switch = agent.show().await?;
                let (counters, groups) = (agent.counters().await?, agent.counted_groups().await?);
                Ok(State { switch, counters, groups })
            },
            |state, out| write(state, out),
        )
    }
}

/// A label's value: the format requires backslash, quote and line feed to be escaped.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Labels in braces.
fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// Writes a metric with its samples (labels and value); nothing without samples.
fn metric<V: Display>(
    out: &mut impl Write,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl IntoIterator<Item = (String, V)>,
) -> io::Result<()> {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    writeln!(out, "# HELP rdmc_switch_{name} {help}")?;
    writeln!(out, "# TYPE rdmc_switch_{name} {kind}")?;
    for (labels, value) in samples {
        writeln!(out, "rdmc_switch_{name}{labels} {value}")?;
    }
    Ok(())
}

fn write(state: &State, out: &mut impl Write) -> io::Result<()> {
    let State { switch, counters, groups } = state;
    let (name, version, plane) = (&*switch.name, &*switch.version, &*switch.plane);
    let info = labels(&[("switch", name), ("version", version), ("plane", plane)]);
    let own = || labels(&[("switch", name)]);
    metric(out, "info", "gauge", "The agent: always 1.", [(info, 1)])?;
    let uptime = switch.uptime_ms as f64 / 1000.0;
    metric(out, "uptime_seconds", "gauge", "Seconds since the agent started.", [(own(), uptime)])?;
    let installed = (own(), switch.groups);
    metric(out, "groups", "gauge", "Groups in the data plane.", [installed])?;
    let most = (own(), switch.groups_max);
    metric(out, "groups_max", "gauge", "Maximum number of groups in the data plane.", [most])?;
    let counts = counters
        .iter()
        .map(|count| (labels(&[("switch", name), ("kind", &count.name)]), count.count));
    let help = "Packets by how they were handled; docs/guide/switches.md lists the kinds.";
    metric(out, "packets_total", "counter", help, counts)?;
    write_groups(name, groups, out)
}

/// Labels of a group of a switch, and optionally one more.
fn of_group(switch: &str, group: &GroupReport, more: Option<(&str, &str)>) -> String {
    let key = group.key.clone().unwrap_or_default();
    let id = format!("{:#x}", key.id);
    let mut pairs = vec![("switch", switch), ("sender", &*key.sender), ("id", &*id)];
    pairs.extend(more);
    labels(&pairs)
}

/// The maximum number of groups whose counters are written: groups change often, and each adds a sample per counter.
const COUNTED_GROUPS_MAX: usize = 100;

/// Counters of a group by name, with the sums of its members' answers.
fn sums(group: &GroupReport) -> BTreeMap<&str, u64> {
    let mut sums = BTreeMap::new();
    if let Some(counters) = &group.counters {
        let members = counters.members.iter().flat_map(|member| &member.counts);
        for Count { name, count } in counters.counts.iter().chain(members) {
            *sums.entry(&**name).or_default() += count;
        }
    }
    sums
}

/// Counters of the groups with the most packets.
fn write_counters(switch: &str, groups: &[GroupReport], out: &mut impl Write) -> io::Result<()> {
    let mut counted: Vec<_> = groups.iter().map(|group| (group, sums(group))).collect();
    counted.sort_by_key(|(_, sums)| Reverse(sums.get("requests").copied()));
    counted.truncate(COUNTED_GROUPS_MAX);
    let bytes = counted.iter_mut().filter_map(|(group, sums)| {
        Some((of_group(switch, group, None), sums.remove("request_bytes")?))
    });
    let help = "Bytes of the packets of a group from its sender, without Ethernet headers.";
    metric(out, "group_request_bytes_total", "counter", help, bytes)?;
    let packets = counted.iter().flat_map(|(group, sums)| {
        let sample =
            |(kind, count): (&&str, &u64)| (of_group(switch, group, Some(("kind", kind))), *count);
        sums.iter().map(sample)
    });
    let help = "Packets of a group by how they were handled, for the groups with the most packets.";
    metric(out, "group_packets_total", "counter", help, packets)
}

fn write_groups(name: &str, groups: &[GroupReport], out: &mut impl Write) -> io::Result<()> {
    write_counters(name, groups, out)?;
    let of_group = |group: &GroupReport, member: Option<&str>| {
        of_group(name, group, member.map(|member| ("member", member)))
    };
    let renewed =
        groups.iter().map(|group| (of_group(group, None), group.since_renewal_ms as f64 / 1000.0));
    let help = "Seconds since the group's lease was renewed.";
    metric(out, "group_since_renewal_seconds", "gauge", help, renewed)?;
    let troubled =
        groups.iter().map(|group| (of_group(group, None), u8::from(!group.trouble.is_empty())));
    let help = "1 if packets may not reach all its members.";
    metric(out, "group_trouble", "gauge", help, troubled)?;
    let of_members = |value: fn(&GroupReport, usize) -> u32| {
        groups.iter().flat_map(move |group| {
            let samples = group.members.iter().enumerate();
            samples.map(move |(index, member)| {
                (of_group(group, Some(&member.address)), value(group, index))
            })
        })
    };
    let help = "Messages that the member has completed, modulo 2^24.";
    let messages = of_members(|group, index| group.members[index].msn);
    metric(out, "group_member_messages", "gauge", help, messages)?;
    let help = "Packets that another member has acknowledged but this one has not.";
    metric(out, "group_member_lag_packets", "gauge", help, of_members(lag))
}

/// The number of packet numbers: 24 bits, which wrap around.
const NUMBERS: u32 = 1 << 24;

/// How many packets a member lags behind the most advanced one.
fn lag(group: &GroupReport, index: usize) -> u32 {
    let own = group.members[index].expected_psn;
    let ahead = group.members.iter().map(|other| other.expected_psn.wrapping_sub(own) % NUMBERS);
    // A difference of more than half of all numbers means behind.
    ahead.filter(|ahead| *ahead < NUMBERS / 2).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use control::proto::{GroupCounters, Key, MemberCounters, MemberState};

    use super::*;

    #[test]
    fn a_switch_is_written_in_the_text_format() {
        let count = |name: &str, count| Count { name: name.into(), count };
        let member = |address: &str, expected_psn, msn| MemberState {
            address: address.into(),
            expected_psn,
            msn,
        };
        let group = GroupReport {
            key: Some(Key { sender: "10.0.0.1".into(), id: 0x80_0001 }),
            members: vec![member("10.0.0.2", 0xff_fffe, 3), member("10.0.0.3", 2, 4)],
            trouble: "a\u{1b}b".into(),
            since_renewal_ms: 1500,
            counters: Some(GroupCounters {
                counts: vec![
                    count("requests", 2),
                    count("request_bytes", 99),
                    count("icrc_errors", 1),
                ],
                members: vec![
                    MemberCounters { counts: vec![count("icrc_errors", 2)], ..Default::default() },
                    MemberCounters {
                        counts: vec![count("acks_forwarded", 3)],
                        ..Default::default()
                    },
                ],
            }),
            ..GroupReport::default()
        };
        let switch = ShowReply {
            name: "tor \"a\"\\\n".into(),
            version: "1.0".into(),
            plane: "kernel".into(),
            groups: 1,
            groups_max: 65_536,
            uptime_ms: 250,
            ..ShowReply::default()
        };
        let counters = vec![count("copies", u64::MAX)];
        let mut found = Vec::new();
        write(&State { switch, counters, groups: vec![group] }, &mut found).unwrap();
        let found = String::from_utf8(found).unwrap();
        let samples: Vec<&str> = found.lines().filter(|line| !line.starts_with('#')).collect();
        let own = r#"switch="tor \"a\"\\\n""#;
        let group = format!(r#"{own},sender="10.0.0.1",id="0x800001""#);
        let expected = [
            format!(r#"info{{{own},version="1.0",plane="kernel"}} 1"#),
            format!("uptime_seconds{{{own}}} 0.25"),
            format!("groups{{{own}}} 1"),
            format!("groups_max{{{own}}} 65536"),
            format!(r#"packets_total{{{own},kind="copies"}} 18446744073709551615"#),
            format!("group_request_bytes_total{{{group}}} 99"),
            format!(r#"group_packets_total{{{group},kind="acks_forwarded"}} 3"#),
            format!(r#"group_packets_total{{{group},kind="icrc_errors"}} 3"#),
            format!(r#"group_packets_total{{{group},kind="requests"}} 2"#),
            format!("group_since_renewal_seconds{{{group}}} 1.5"),
            format!("group_trouble{{{group}}} 1"),
            format!(r#"group_member_messages{{{group},member="10.0.0.2"}} 3"#),
            format!(r#"group_member_messages{{{group},member="10.0.0.3"}} 4"#),
            format!(r#"group_member_lag_packets{{{group},member="10.0.0.2"}} 4"#),
            format!(r#"group_member_lag_packets{{{group},member="10.0.0.3"}} 0"#),
        ];
        assert_eq!(samples, expected.map(|line| format!("rdmc_switch_{line}")));
        let types = found.lines().filter(|line| line.starts_with("# TYPE")).count();
        let helps = found.lines().filter(|line| line.starts_with("# HELP")).count();
        assert_eq!((types, helps), (11, 11), "{found}");
    }

    #[test]
    fn counters_are_written_of_the_groups_with_the_most_packets() {
        let group = |id: u32| GroupReport {
            key: Some(Key { sender: "10.0.0.1".into(), id }),
            counters: Some(GroupCounters {
                counts: vec![Count { name: "requests".into(), count: id.into() }],
                members: Vec::new(),
            }),
            ..GroupReport::default()
        };
        let groups: Vec<GroupReport> = (0..150).map(group).collect();
        let mut found = Vec::new();
        write_counters("tor", &groups, &mut found).unwrap();
        let found = String::from_utf8(found).unwrap();
        let counts: Vec<u64> = found
            .lines()
            .filter_map(|line| {
                line.strip_prefix("rdmc_switch_group_packets_total")?.rsplit(' ').next()
            })
            .map(|count| count.parse().unwrap())
            .collect();
        assert_eq!(counts, (50..150).rev().collect::<Vec<u64>>());
    }
}
