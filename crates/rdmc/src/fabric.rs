//! The network that a context uses.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    str::FromStr,
    thread,
};

use collective::model::WriteCosts;

use plan::costs::{Costs, Machine, Network};

use crate::{Error, link_rate};

/// The network over which a context moves blocks; the same at all members of a group.
///
/// As text: `tcp`; a libfabric provider such as `verbs`, `efa`, `cxi` or `shm`; `ofi-tcp` for
/// libfabric's TCP provider. Devices of this host may follow: `verbs:mlx5_0,mlx5_1`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Fabric {
    /// The built-in transport over TCP sockets; available on every host.
    #[default]
    Tcp,
    /// A provider of libfabric.
    Libfabric {
        /// The provider's name in libfabric.
        provider: String,
        /// The devices to use (libfabric's domains); several are used as rails; empty selects the best device.
        devices: Vec<String>,
    },
}

/// How many processors this process may use; at least 1.
fn processors() -> u32 {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    u32::try_from(processors).unwrap_or(u32::MAX)
}

/// The prefix for libfabric providers that have the same name as the built-in transport.
const LIBFABRIC_PREFIX: &str = "ofi-";

impl Fabric {
    /// Returns the fabric of a libfabric provider, with its best device.
    pub fn libfabric(provider: impl Into<String>) -> Self {
        Self::Libfabric { provider: provider.into(), devices: Vec::new() }
    }

    /// Returns the fabrics that this host can use by default, best first; the last is always
    /// [`Fabric::Tcp`]. If the host has RDMA hardware, queries its devices, which may take a few
    /// tenths of a second.
    pub fn candidates() -> Vec<Self> {
        let mut candidates = hardware();
        candidates.push(Self::Tcp);
        candidates
    }

    /// Returns the costs of a group whose members are on separate hosts, with links of this rate in bits per second; `None`
    /// assumes 10 Gbit/s over TCP and 100 Gbit/s over other fabrics.
    pub fn costs_between_hosts(&self, rate_bits_per_second: Option<u64>) -> Costs {
        Costs::between_hosts(self.network(), rate_bits_per_second)
    }

    /// Returns the rate in bits per second of the link of this machine that has this address, for
    /// [`Fabric::costs_between_hosts`]; `None` if the system does not know it, and over other fabrics than TCP.
    pub fn link_rate(&self, own: IpAddr) -> Option<u64> {
        match self {
            Self::Tcp => link_rate::of_address(own),
            Self::Libfabric { .. } => None,
        }
    }

    /// Returns the costs of a group whose members all run on one machine, such as [`Fabric::this_machine`], and share its
    /// processors.
    pub fn costs_of_one_machine(&self, members: u32, machine: Machine) -> Costs {
        Costs::of_one_machine(self.network(), members, machine)
    }

    /// Returns the costs by which a team chooses the ways of its operations, where rank 0 runs here: those of the kind of network,
    /// and how many of the members, which are at these addresses, share each of this machine's processors. `shares_memory`: whether members of one machine
    /// share memory instead of using [`Fabric::Tcp`].
    pub fn team_costs(&self, members: &[SocketAddr], shares_memory: bool) -> WriteCosts {
        let here = members.first().map(SocketAddr::ip);
        let together = members.iter().filter(|member| Some(member.ip()) == here).count();
        let is_local = together == members.len();
        let costs = match self {
            Self::Tcp if is_local && shares_memory => WriteCosts::SHARED_MEMORY,
            Self::Tcp if is_local => WriteCosts::TCP_LOCAL,
            Self::Tcp => WriteCosts::TCP,
            Self::Libfabric { provider, .. } if provider == "shm" => WriteCosts::SHARED_MEMORY,
            Self::Libfabric { .. } => WriteCosts::DEVICE,
        };
        let members_per_core = together as f64 / f64::from(processors());
        WriteCosts { members_per_core, ..costs }
    }

    /// Returns the properties of this machine that its members share, for [`Fabric::costs_of_one_machine`].
    pub fn this_machine() -> Machine {
        Machine {
            processors: processors(),
            copies_directly: transport_tcp::check_direct_copies().is_ok(),
        }
    }

    fn network(&self) -> Network {
        match self {
            Self::Tcp => Network::Tcp,
            Self::Libfabric { .. } => Network::Device,
        }
    }

    /// Returns the fabric's name, without this host's devices; the same at all members.
    pub fn name(&self) -> String {
        match self {
            Self::Tcp => "tcp".into(),
            Self::Libfabric { provider, .. } if provider == "tcp" => {
                format!("{LIBFABRIC_PREFIX}{provider}")
            }
            Self::Libfabric { provider, .. } => provider.clone(),
        }
    }
}

/// Returns the libfabric fabrics preferred over TCP on this host, best first.
#[cfg(feature = "fabric")]
fn hardware() -> Vec<Fabric> {
    if !transport_fabric::may_have_hardware() {
        return Vec::new();
    }
    let discovery = transport_fabric::discover();
    discovery.map(|d| d.automatic().map(Fabric::libfabric).collect()).unwrap_or_default()
}

/// Returns nothing: this build has no libfabric.
#[cfg(not(feature = "fabric"))]
fn hardware() -> Vec<Fabric> {
    Vec::new()
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        match self {
            Self::Libfabric { devices, .. } if !devices.is_empty() => {
                write!(f, ":{}", devices.join(","))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Fabric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, devices) = text.split_once(':').unwrap_or((text, ""));
        let devices: Vec<String> =
            devices.split(',').filter(|device| !device.is_empty()).map(str::to_owned).collect();
        let word = |text: &str| {
            let lawful = |c: char| c.is_ascii_alphanumeric() || "-_;.".contains(c);
            !text.is_empty() && text.len() <= 64 && text.chars().all(lawful)
        };
        if !word(name) || !devices.iter().all(|device| word(device)) {
            return Err(Error::setting(
                "fabric",
                format!("{text:?}"),
                "tcp, or a libfabric provider such as verbs or shm, with devices as in \
                 verbs:mlx5_0,mlx5_1",
            ));
        }
        match (name, devices.is_empty()) {
            ("tcp", true) => Ok(Self::Tcp),
            ("tcp", false) => Err(Error::setting(
                "fabric",
                format!("{text:?}"),
                "tcp without devices; addresses and routes choose the interface",
            )),
            (name, _) => {
                let provider = name.strip_prefix(LIBFABRIC_PREFIX).unwrap_or(name).to_owned();
                Ok(Self::Libfabric { provider, devices })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for text in ["tcp", "ofi-tcp", "verbs", "shm", "verbs:mlx5_0,mlx5_1"] {
            assert_eq!(text.parse::<Fabric>().unwrap().to_string(), text);
        }
        assert_eq!("ofi-tcp".parse::<Fabric>().unwrap(), Fabric::libfabric("tcp"));
        assert_eq!("verbs:mlx5_0".parse::<Fabric>().unwrap().name(), "verbs");
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for text in ["", ":", "tcp:eth0", "ver bs", "verbs:a b"] {
            assert!(text.parse::<Fabric>().is_err(), "{text:?}");
        }
    }
}
