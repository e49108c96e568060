//! `rdmc switch trace`: what a switch does with each packet of a group.

use std::{
    io::{self, Write},
    net::IpAddr,
    str::FromStr,
};

use control::{TRACE_PACKETS_MAX, TRACE_TIME_MS_MAX, proto::TracedPacket};
use mcrdma::GroupKey;
use serde::Serialize;

use super::ask::Asked;
use crate::{
    failure::{Failure, plain},
    json, output,
};

const EXAMPLES: &str = "\
Example:
  rdmc switch trace tor-a:4790 --group 10.0.0.1/0xf54130 --packets 100 --cert host.pem --key host.key --ca ca.pem";

/// Show what a switch does with each packet of a group, for a limited time
///
/// For debugging: each packet of the sender with its copies, and each answer with the switch's decision. Only headers are
/// shown. Only one caller at a time can trace a group.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Trace {
    #[command(flatten)]
    pub asked: Asked,

    /// The group, as `rdmc switch groups` names it
    #[arg(long, value_name = "SENDER/ID")]
    group: Group,

    /// End after this many packets
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=TRACE_PACKETS_MAX as i64))]
    packets: u32,

    /// End after this time
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=TRACE_TIME_MS_MAX as i64 / 1000))]
    seconds: u32,
}

/// The argument of `--group`.
#[derive(Clone, Copy, Debug)]
struct Group(GroupKey);

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text}: no group; such as 10.0.0.1/0xf54130");
        let (sender, id) = text.split_once('/').ok_or_else(invalid)?;
        let sender: IpAddr = sender.parse().map_err(|_| invalid())?;
        let id = match id.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => id.parse(),
        };
        let id = id.ok().filter(|id| *id < 1 << 24).ok_or_else(invalid)?;
        Ok(Self(GroupKey { sender, id }))
    }
}

/// The answer as JSON.
#[derive(Default, Serialize)]
struct Traced {
    packets: Vec<TracedPacket>,
    lost: u64,
    end: String,
}

impl Trace {
    pub fn run(&self) -> Result<(), Failure> {
        let mut traced = Traced::default();
        self.asked.ask(async |agent| {
            let key = self.group.0;
            let reports = agent.trace(key, self.packets, self.seconds * 1000).await;
            let mut reports = reports.map_err(Failure::because)?;
            if !self.asked.json {
                output::print(|out| writeln!(out, "tracing {key}"))?;
            }
            while let Some(report) = agent.next(&mut reports).await.map_err(Failure::because)? {
                (traced.lost, traced.end) = (report.lost, report.end);
                if self.asked.json {
                    traced.packets.extend(report.packets);
                } else {
                    output::print(|out| write_packets(&report.packets, out))?;
                }
            }
            Ok(())
        })?;
        output::print(|out| match self.asked.json {
            true => json::write_pretty(out, &traced),
            false => write_end(&traced, out),
        })
    }
}

fn write_packets(packets: &[TracedPacket], out: &mut impl Write) -> io::Result<()> {
    for packet in packets {
        let seconds = packet.since_first_ns as f64 / 1e9;
        let (port, operation) = (plain(&packet.port), plain(&packet.operation));
        let (direction, source) = match packet.is_answer {
            true => ("←", format!(" of {}", plain(&packet.source))),
            false => ("→", String::new()),
        };
        write!(
            out,
            "{seconds:>12.6} s {port} {direction} {operation} {:#x}{source}: ",
            packet.psn
        )?;
        writeln!(out, "{}", decision(packet))?;
    }
    Ok(())
}

fn decision(packet: &TracedPacket) -> String {
    let name = plain(&packet.decision);
    if packet.copies.is_empty() {
        return name;
    }
    let copies = packet.copies.iter().map(|copy| match copy.has_failed {
        true => format!("{} (failed)", plain(&copy.port)),
        false => plain(&copy.port),
    });
    format!("{name} to {}", copies.collect::<Vec<_>>().join(", "))
}

fn write_end(traced: &Traced, out: &mut impl Write) -> io::Result<()> {
    let end = match traced.end.as_str() {
        "packets" => "the limit of packets was reached".to_owned(),
        "time" => "its time is over".to_owned(),
        "" => "the agent has ended it".to_owned(),
        other => plain(other),
    };
    match traced.lost {
        0 => writeln!(out, "ended: {end}; no packet is missing"),
        lost => {
            writeln!(out, "ended: {end}; {lost} packets are missing, as they were not read in time")
        }
    }
}

#[cfg(test)]
mod tests {
    use control::proto::TracedCopy;

    use super::*;

    #[test]
    fn groups_are_parsed_as_they_are_shown() {
        let parsed = |text: &str| text.parse::<Group>().map(|group| group.0.to_string());
        assert_eq!(parsed("10.0.0.1/0xf54130").unwrap(), "group 10.0.0.1/0xf54130");
        assert_eq!(parsed("fd00::1/9").unwrap(), "group fd00::1/0x9");
        for wrong in ["", "10.0.0.1", "10.0.0.1/", "tor/9", "10.0.0.1/0x1000000", "10.0.0.1/-1"] {
            let said = parsed(wrong).unwrap_err();
            assert!(said.starts_with(wrong) && said.contains("10.0.0.1/0xf54130"), "{said}");
        }
    }

    #[test]
    fn packets_are_shown_with_what_was_decided() {
        let copy = |port: &str, has_failed| TracedCopy { port: port.into(), has_failed };
        let request = TracedPacket {
            since_first_ns: 0,
            port: "swp1".into(),
            operation: "SEND middle".into(),
            psn: 0x1f,
            decision: "copies".into(),
            copies: vec![copy("swp2", false), copy("swp3", true)],
            ..TracedPacket::default()
        };
        let answer = TracedPacket {
            since_first_ns: 1_500_250_000,
            port: "swp2\u{1b}".into(),
            is_answer: true,
            operation: "ACK".into(),
            psn: 0x20,
            source: "10.0.0.2".into(),
            decision: "answers_suppressed".into(),
            ..TracedPacket::default()
        };
        let mut shown = Vec::new();
        write_packets(&[request, answer], &mut shown).unwrap();
        write_end(&Traced { lost: 3, end: "time".into(), ..Traced::default() }, &mut shown)
            .unwrap();
        let expected = "    0.000000 s swp1 → SEND middle 0x1f: copies to swp2, swp3 (failed)
    1.500250 s swp2\\u{1b} ← ACK 0x20 of 10.0.0.2: answers_suppressed
ended: its time is over; 3 packets are missing, as they were not read in time
";
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
    }
}
