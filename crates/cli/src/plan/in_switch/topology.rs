//! Generates or reads a topology.

use mcrdma::plan::{Device, Topology};

use super::{file, source::Source};
use crate::{failure::Failure, input};

/// Generates or reads a topology. `tor_only`: in a generated topology only switches with hosts copy.
pub fn topology_of(source: &Source, tor_only: bool) -> Result<Topology, Failure> {
    let above = if tor_only { Device::Plain } else { Device::Copies };
    match source {
        Source::Racks { racks, hosts } => Ok(Topology::racks(*racks, *hosts, above)),
        Source::FatTree { ports, hosts } => Ok(Topology::fat_tree(*ports, *hosts, above)),
        Source::File(path) if tor_only => Err(Failure::Usage(format!(
            "--tor-only is for racks:... and fat-tree:...; in {}, set copies = false for switches that cannot copy",
            path.display()
        ))),
        Source::File(path) => {
            let text = input::read(path, input::LIST_BYTES_MAX).map_err(|failure| {
                Failure::Failed(format!(
                    "{failure}; a topology is a file, racks:RACKSxHOSTS, or fat-tree:PORTS"
                ))
            })?;
            file::parse(&text)
                .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
        }
    }
}
