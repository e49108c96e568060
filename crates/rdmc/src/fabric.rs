//! Which network a context uses, by name.

use std::{fmt, str::FromStr};

use crate::Error;

/// The network that a context moves blocks over. The same at all members of a group.
///
/// As text: `tcp`; a libfabric provider such as `verbs`, `efa`, `cxi` or `shm`; `ofi-tcp` for
/// libfabric's own TCP. Devices of this host may follow: `verbs:mlx5_0,mlx5_1`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Fabric {
    /// The embedded transport over TCP sockets; works everywhere.
    #[default]
    Tcp,
    /// A provider of libfabric.
    Libfabric {
        /// The provider's name in libfabric.
        provider: String,
        /// The devices (libfabric calls them domains) to use, several as rails; none for the best.
        devices: Vec<String>,
    },
}

/// Prefix of libfabric's providers whose name is that of the embedded transport.
const LIBFABRIC_PREFIX: &str = "ofi-";

impl Fabric {
    /// A provider of libfabric, with its best device.
    pub fn libfabric(provider: impl Into<String>) -> Self {
        Self::Libfabric { provider: provider.into(), devices: Vec::new() }
    }

    /// What this host could use by default, best first; the last is always
    /// [`Fabric::Tcp`]. Looks at the devices that are there, which may take some milliseconds.
    pub fn candidates() -> Vec<Self> {
        let mut candidates = hardware();
        candidates.push(Self::Tcp);
        candidates
    }

    /// The fabric without this host's devices: what all members have to agree on.
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

/// Fabrics of libfabric that are preferred to TCP on this host, best first.
#[cfg(feature = "fabric")]
fn hardware() -> Vec<Fabric> {
    let discovery = transport_fabric::discover();
    discovery.map(|d| d.automatic().map(Fabric::libfabric).collect()).unwrap_or_default()
}

/// Without libfabric there are none.
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
