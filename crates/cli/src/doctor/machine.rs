//! What is known of a machine. Whatever cannot be read is unknown: `None`, or an empty list.

use std::net::IpAddr;

use serde::Serialize;

/// One machine, as far as it matters to rdmc.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// Version of rdmc.
    pub rdmc: &'static str,
    /// The distribution, as it calls itself.
    pub system: Option<String>,
    pub packages: Option<Packages>,
    pub kernel: Option<String>,
    /// CPUs that this process may use.
    pub cpus: Option<usize>,
    pub memory_bytes: Option<u64>,
    pub nics: Vec<Nic>,
    pub rdma_ports: Vec<RdmaPort>,
    /// Device files of RDMA: `uverbs0`, `rdma_cm`, …
    pub rdma_files: Vec<DeviceFile>,
    pub libfabric: Libfabric,
    /// What `--fabric auto` may take here, best first.
    pub fabrics: Vec<String>,
    pub limits: Limits,
    pub tcp: Tcp,
    pub huge_pages: HugePages,
    /// Size of /dev/shm.
    pub shared_memory_bytes: Option<u64>,
}

/// The tool that installs packages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Packages {
    Apt,
    Dnf,
}

/// A network interface.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Nic {
    pub name: String,
    pub addresses: Vec<IpAddr>,
    pub is_up: Option<bool>,
    pub is_loopback: bool,
    pub bits_per_second: Option<u64>,
    pub mtu_bytes: Option<u64>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RdmaPort {
    pub device: String,
    pub port: String,
    /// As the kernel writes it: `ACTIVE`, `INIT`, `DOWN`, …
    pub state: Option<String>,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: Option<String>,
    /// As the kernel writes it, such as `100 Gb/sec (4X EDR)`.
    pub rate: Option<String>,
    /// The network interface of the same port, which gives it its addresses.
    pub nic: Option<String>,
}

impl RdmaPort {
    pub fn is_active(&self) -> bool {
        self.state.as_deref() == Some("ACTIVE")
    }

    /// As `ibv_devinfo` users say it: `mlx5_0/1`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.device, self.port)
    }
}

/// A device file and whether this user may open it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceFile {
    pub name: String,
    pub is_usable: bool,
}

/// What libfabric offers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Libfabric {
    /// Missing if it cannot be used; then `trouble` says why.
    pub version: Option<String>,
    pub trouble: Option<String>,
    pub devices: Vec<FabricDevice>,
}

/// A device with a provider of libfabric.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FabricDevice {
    /// As `--fabric` takes it.
    pub fabric: String,
    pub bits_per_second: Option<u64>,
    pub is_up: Option<bool>,
    /// Its memory counts against the limit on locked memory.
    pub needs_registration: bool,
    /// `rdmc push --offload` is used over it.
    pub can_offload: bool,
}

/// A limit of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    #[default]
    Unlimited,
    #[serde(untagged)]
    At(u64),
}

impl Limit {
    pub fn is_below(self, least: u64) -> bool {
        matches!(self, Self::At(most) if most < least)
    }
}

/// Limits of this process, as `ulimit` shows them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Limits {
    pub locked_memory_bytes: Limit,
    /// This process may lock memory beyond its limit (CAP_IPC_LOCK).
    pub may_lock_more: bool,
    pub open_files: Limit,
    /// What the soft limit of open files can be raised to without privileges.
    pub open_files_hard: Limit,
}

/// TCP in this kernel.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tcp {
    pub congestion_control: Option<String>,
    pub congestion_controls: Vec<String>,
    /// What buffers grow to by themselves.
    pub receive_buffer_bytes_max: Option<u64>,
    pub send_buffer_bytes_max: Option<u64>,
    /// What programs may ask for.
    pub receive_buffer_bytes_askable: Option<u64>,
    pub send_buffer_bytes_askable: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct HugePages {
    pub page_bytes: Option<u64>,
    pub total: Option<u64>,
    pub free: Option<u64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent: Option<String>,
}
