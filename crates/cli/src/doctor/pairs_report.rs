//! The report of connections between machines.

use std::{
    fmt,
    io::{self, Write},
    net::SocketAddr,
};

use files::PortRange;
use measure::{ReachReport, Unreachable};
use serde::Serialize;

use crate::failure::{Exit, plain};

/// The maximum number of machines that a line names; the JSON document has all.
const NAMED_MAX: usize = 8;

/// The JSON document.
#[derive(Serialize)]
pub struct PairsReport {
    hosts: Vec<String>,
    /// The requested range of ports.
    ports: Option<String>,
    /// The number of connections that were tried, two for each pair of machines.
    tried: usize,
    /// Connections that failed.
    unreachable: Vec<Pair>,
    /// Hosts that failed.
    failed: Vec<FailedHost>,
    /// Why the check ended early.
    error: Option<String>,
    /// The remedy; missing if all connections succeeded.
    remedy: Option<String>,
    pub exit_code: Exit,
}

/// A connection that failed.
#[derive(Serialize)]
struct Pair {
    /// The connecting machine; missing for this machine.
    from: Option<String>,
    /// The target; missing for this machine.
    to: Option<String>,
    address: SocketAddr,
    reason: String,
}

#[derive(Serialize)]
struct FailedHost {
    host: String,
    reason: String,
}

impl PairsReport {
    pub fn new(hosts: Vec<String>, ports: Option<PortRange>, report: ReachReport) -> Self {
        let name = |machine: Option<usize>| machine.map(|host| hosts[host].clone());
        let pair = |it: Unreachable| {
            let (from, to) = (name(it.from), name(it.to));
            Pair { from, to, address: it.address, reason: it.reason }
        };
        let unreachable: Vec<Pair> = report.unreachable.into_iter().map(pair).collect();
        let failed = hosts
            .iter()
            .zip(report.failures)
            .filter_map(|(host, reason)| Some(FailedHost { host: host.clone(), reason: reason? }));
        let remedy = (!unreachable.is_empty()).then(|| match ports {
            Some(ports) => format!(
                "allow TCP ports {ports} into these machines, from each of the others (docs/guide/ports.md)"
            ),
            None => "allow all TCP ports into these machines, from each of the others, or only a range that you give with \
                     --ports (docs/guide/ports.md)"
                .to_owned(),
        });
        Self {
            ports: ports.map(|ports| ports.to_string()),
            tried: report.tried,
            unreachable,
            failed: failed.collect(),
            error: report.error.map(|error| error.to_string()),
            remedy,
            exit_code: Exit::Done,
            hosts,
        }
    }

    pub fn exit(&self) -> Exit {
        if self.error.is_some() || self.unreachable.len() >= self.tried {
            Exit::Failed
        } else if self.unreachable.is_empty() && self.failed.is_empty() {
            Exit::Done
        } else {
            Exit::Partly
        }
    }

    /// Lines for standard error.
    pub fn failures(&self) -> impl Iterator<Item = impl fmt::Display> {
        let failed = self.failed.iter().filter(|_| self.error.is_none());
        let hosts = failed.map(|failed| format!("{}: {}", failed.host, failed.reason));
        self.error.clone().into_iter().chain(hosts)
    }

    /// Writes the report as text: a line for each machine that others cannot connect to, and for each reason.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let at = self.ports.as_ref().map_or(String::new(), |ports| format!(", ports {ports}"));
        let made = self.tried.saturating_sub(self.unreachable.len());
        writeln!(
            out,
            "{made} of {} connections between this machine and {} hosts could be made (TCP{at})",
            self.tried,
            self.hosts.len() - self.failed.len(),
        )?;
        let mut rest = &self.unreachable[..];
        while let Some(first) = rest.first() {
            let is_alike = |pair: &&Pair| (&pair.to, &pair.reason) == (&first.to, &first.reason);
            let count = rest.iter().take_while(is_alike).count();
            let (alike, others) = rest.split_at(count);
            writeln!(
                out,
                "  {} ({}) cannot be reached from {}: {}",
                name(&first.to),
                first.address,
                names(alike),
                plain(&first.reason)
            )?;
            rest = others;
        }
        match &self.remedy {
            Some(remedy) => writeln!(out, "{remedy}"),
            None => Ok(()),
        }
    }
}

fn name(machine: &Option<String>) -> &str {
    machine.as_deref().unwrap_or("this machine")
}

/// The machines that tried these connections.
fn names(pairs: &[Pair]) -> String {
    let shown: Vec<&str> = pairs.iter().take(NAMED_MAX).map(|pair| name(&pair.from)).collect();
    match pairs.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(
        unreachable: &[(Option<usize>, Option<usize>)],
        failures: Vec<Option<String>>,
    ) -> PairsReport {
        let pair = |&(from, to)| Unreachable {
            from,
            to,
            address: ([10, 0, 0, 1], 7000).into(),
            reason: "no answer".to_owned(),
        };
        let unreachable = unreachable.iter().map(pair).collect();
        let report = ReachReport { failures, tried: 6, unreachable, error: None };
        PairsReport::new(vec!["a".into(), "b".into()], "7000-7100".parse().ok(), report)
    }

    fn text(report: &PairsReport) -> String {
        let mut text = Vec::new();
        report.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn machines_that_cannot_be_reached_have_a_line_each() {
        let none = || vec![None, None];
        let all = report(&[], none());
        assert_eq!(all.exit(), Exit::Done);
        assert_eq!(
            text(&all),
            "6 of 6 connections between this machine and 2 hosts could be made (TCP, ports 7000-7100)\n"
        );
        let some = report(&[(None, Some(0)), (Some(1), Some(0)), (Some(1), None)], none());
        assert_eq!(some.exit(), Exit::Partly);
        let text = text(&some);
        assert!(
            text.contains(
                "  a (10.0.0.1:7000) cannot be reached from this machine, b: no answer\n"
            ),
            "{text}"
        );
        assert!(text.contains("  this machine (10.0.0.1:7000) cannot be reached from b"), "{text}");
        assert!(text.contains("allow TCP ports 7000-7100 into"), "{text}");
        let failed = report(&[], vec![Some("is dead".into()), None]);
        assert_eq!((failed.exit(), failed.failures().count()), (Exit::Partly, 1));
        let pair = |number: usize| (Some(number % 2), None);
        assert_eq!(report(&(0..6).map(pair).collect::<Vec<_>>(), none()).exit(), Exit::Failed);
    }

    #[test]
    fn lines_do_not_grow_with_the_number_of_hosts() {
        let many = report(&[(None, Some(0)); 10], vec![None, None]);
        assert!(text(&many).contains("this machine and 2 more"), "{}", text(&many));
    }
}
