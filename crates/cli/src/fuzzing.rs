//! Entry points for fuzzers (`./dev fuzz`): texts from users, and invitations.

use crate::{
    hosts, hosts_file,
    invitation::Invitation,
    launch::{Order, Report},
    slurm,
};

/// Parses a text; the first byte selects the kind. True if the text is valid.
pub fn texts(bytes: &[u8]) -> bool {
    let Some((&kind, text)) = bytes.split_first() else { return false };
    let Ok(text) = std::str::from_utf8(text) else { return false };
    match kind {
        b'h' => hosts::parse(text).inspect(|hosts| check_hosts(hosts)).is_ok(),
        b'f' => hosts_file::parse(text).inspect(|hosts| check_hosts(hosts)).is_ok(),
        b'i' => Invitation::from_line(text).inspect(comes_back).is_ok(),
        b's' => plan::size::parse(text)
            .inspect(|&bytes| assert!(!plan::size::show(bytes).is_empty()))
            .is_ok(),
        b'r' => plan::size::parse_rate(text)
            .inspect(|&rate| assert!(plan::size::parse_rate(&plan::size::show_rate(rate)).is_ok()))
            .is_ok(),
        b'k' => rdmc::Secret::from_hex(text)
            .inspect(|secret| {
                assert_eq!(secret.to_hex().to_lowercase(), text.trim().to_lowercase())
            })
            .is_ok(),
        b'o' => Order::from_line(text)
            .inspect(|order| assert_eq!(Order::from_line(&order.to_line()).as_ref(), Ok(order)))
            .is_ok(),
        b'p' => Report::from_line(text)
            .inspect(|report| {
                assert_eq!(Report::from_line(&report.to_line()).as_ref(), Some(report))
            })
            .is_some(),
        b'e' => !slurm::failed_nodes(text).is_empty(),
        b't' => !slurm::racks(text).is_empty(),
        b'c' => text.parse::<rdmc::CompletionMode>().is_ok(),
        b'n' => text.parse::<rdmc::Fabric>().is_ok(),
        _ => false,
    }
}

/// Names become arguments of launchers: no spaces, no options, nothing that a shell interprets.
fn check_hosts(hosts: &[hosts::Host]) {
    assert!((1..=hosts::HOSTS_MAX).contains(&hosts.len()));
    for host in hosts {
        assert!(!host.name.is_empty() && !host.name.starts_with('-'), "{:?}", host.name);
        assert!(!host.name.contains(|c: char| c.is_whitespace() || "/\\$`'\"&|;<>".contains(c)));
    }
}

fn comes_back(invitation: &Invitation) {
    let line = invitation.to_line();
    let again = Invitation::from_line(&line).expect("it was written here");
    assert_eq!(*again.to_line(), *line);
    assert_eq!(line.lines().count(), 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_passes() {
        let trace = Some(trace::Part { origin_ns: 1_700_000_000_000_000_000, process: None });
        let secret = rdmc::Secret::from_bytes([9; 32]);
        let hex = secret.to_hex();
        let addresses = vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        let line = Invitation {
            host: "a".into(),
            token: secret.clone(),
            secret,
            addresses,
            networks: Vec::new(),
            port: 7,
            makes_directories: false,
            trace,
        };
        let line = line.to_line();
        let seeds: Vec<(&str, Vec<u8>)> = [
            ("hosts", "hnode[01-16],login,me@n[1,3,5-8].rack[1-2],[::1]:7000"),
            ("file", "f# all\na[1-2]\n\n  b # the big one\n"),
            ("file_of_mpi", "f[left]\na slots=8\nb slots=4 max_slots=8\n[right]\na slots=2\n"),
            ("invitation", &format!("i{}", *line)),
            (
                "order",
                &format!(
                    "o{{\"hosts\":[{{\"host\":1,\"name\":\"a\",\"token\":\"{}\"}}],\"words\":[\"ssh\",\"{{host}}\"],\
                     \"rdmc\":\"rdmc\",\"copies_self\":false,\"fanout\":32,\"depth\":1,\"timeout_ms\":30000,\
                     \"verbose\":false}}",
                    *hex
                ),
            ),
            ("report", "p{\"host\":1,\"reason\":\"no route\",\"line\":null}"),
            ("srun", "esrun: error: n[2-3],x: tasks 0-2: Exited with exit code 1"),
            ("topology", "tSwitchName=left Level=0 LinkSpeed=1 Nodes=n[1-2]"),
            ("size", "s64KiB"),
            ("rate", "r250mbit"),
            ("secret", &format!("k{}", *hex)),
            ("completion", "cpolling"),
            ("fabric", "ntcp"),
        ]
        .map(|(name, text)| (name, text.into()))
        .into();
        testing::replay("cli_texts", &seeds, texts);
    }
}
