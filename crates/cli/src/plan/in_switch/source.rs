//! The argument of `--in-switch`: a generated topology, or a file.

use std::{path::PathBuf, str::FromStr};

/// The maximum number of hosts and switches of a topology.
pub const NODES_MAX: usize = 10_000;

/// The source of a topology.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Racks behind one spine.
    Racks { racks: usize, hosts: usize },
    /// A fat tree of switches with this many ports.
    FatTree { ports: usize, hosts: usize },
    /// A file that describes the topology.
    File(PathBuf),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let source = if let Some(rest) = text.strip_prefix("racks:") {
            racks(rest).ok_or("write racks:RACKSxHOSTS, such as racks:4x2")?
        } else if let Some(rest) = text.strip_prefix("fat-tree:") {
            fat_tree(rest).ok_or("write fat-tree:PORTS with an even number, or fat-tree:PORTSxHOSTS, such as fat-tree:6x9")?
        } else {
            Self::File(text.into())
        };
        match source.nodes() {
            Some(nodes) if nodes <= NODES_MAX => Ok(source),
            _ => Err(format!("at most {NODES_MAX} hosts and switches")),
        }
    }
}

fn racks(text: &str) -> Option<Source> {
    let (racks, hosts) = text.split_once('x')?;
    let [racks, hosts] = [count(racks)?, count(hosts)?];
    Some(Source::Racks { racks, hosts })
}

fn fat_tree(text: &str) -> Option<Source> {
    let (ports, hosts) = text.split_once('x').map_or((text, None), |(p, h)| (p, Some(h)));
    let ports = count(ports)?;
    let hosts = hosts.map_or(Some(ports / 2), count)?;
    ports.is_multiple_of(2).then_some(Source::FatTree { ports, hosts })
}

/// Parses a count of at least one.
fn count(text: &str) -> Option<usize> {
    text.parse().ok().filter(|&count| count > 0)
}

impl Source {
    /// The number of hosts and switches; 0 for a file, `None` on overflow.
    fn nodes(&self) -> Option<usize> {
        match *self {
            Self::Racks { racks, hosts } => {
                racks.checked_mul(hosts.checked_add(1)?)?.checked_add(1)
            }
            Self::FatTree { ports, hosts } => {
                let cores = ports.checked_mul(ports)? / 4;
                let edges = cores.checked_mul(2)?;
                edges.checked_mul(hosts.checked_add(2)?)?.checked_add(cores)
            }
            Self::File(_) => Some(0),
        }
    }
}
