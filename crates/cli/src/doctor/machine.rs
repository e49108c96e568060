//! The state of a machine. What cannot be read is `None` or an empty list.

use std::net::IpAddr;

use serde::Serialize;

/// The properties of a machine that rdmc depends on.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// Version of rdmc.
    pub rdmc: &'static str,
    /// The data planes that `rdmc switch` has in this build: `userspace`, `kernel`; none without the feature `switch`.
    pub switches: Vec<&'static str>,
    /// Name of the distribution.
    pub system: Option<String>,
    pub packages: Option<Packages>,
    pub kernel: Option<String>,
    /// CPUs that this process may use.
    pub cpus: Option<usize>,
    /// TCP connections of a push to each neighbour, as configured; `None` if that was not asked. Not the machine's, so not reported.
    #[serde(skip)]
    pub streams: Option<u8>,
    pub memory_bytes: Option<u64>,
    pub nics: Vec<Nic>,
    pub rdma_ports: Vec<RdmaPort>,
    /// Device files of RDMA: `uverbs0`, `rdma_cm`, …
    pub rdma_files: Vec<DeviceFile>,
    pub libfabric: Libfabric,
    /// The candidates for `--fabric auto`, best first.
    pub fabrics: Vec<String>,
    pub gpu: Gpu,
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
    /// The network interface of the same port, whose addresses it uses.
    pub nic: Option<String>,
}

impl RdmaPort {
    pub fn is_active(&self) -> bool {
        self.state.as_deref() == Some("ACTIVE")
    }

    /// Device and port, such as `mlx5_0/1`.
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

/// The state of libfabric.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Libfabric {
    /// `None` if libfabric cannot be used; then `trouble` has the reason.
    pub version: Option<String>,
    pub trouble: Option<String>,
    pub devices: Vec<FabricDevice>,
}

/// A device with a provider of libfabric.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FabricDevice {
    /// The fabric, as an argument of `--fabric`.
    pub fabric: String,
    pub bits_per_second: Option<u64>,
    pub is_up: Option<bool>,
    /// Its buffers count against the limit on locked memory.
    pub needs_registration: bool,
    /// Supports `rdmc push --offload`.
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
    /// The hard limit of open files.
    pub open_files_hard: Limit,
}

/// TCP in this kernel.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tcp {
    pub congestion_control: Option<String>,
    pub congestion_controls: Vec<String>,
    /// The maxima of automatic tuning.
    pub receive_buffer_bytes_max: Option<u64>,
    pub send_buffer_bytes_max: Option<u64>,
    /// The maxima that programs can request.
    pub receive_buffer_bytes_askable: Option<u64>,
    pub send_buffer_bytes_askable: Option<u64>,
    /// Why blocks between processes of one user on this machine go through shared memory; `None` if they are copied out of their
    /// sender's.
    pub no_direct_copies: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct HugePages {
    pub page_bytes: Option<u64>,
    pub total: Option<u64>,
    pub free: Option<u64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent: Option<String>,
}

/// The NVIDIA driver and its devices.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Gpu {
    /// The driver's version of CUDA.
    pub cuda: Option<String>,
    /// Why the driver cannot be used.
    pub trouble: Option<String>,
    /// The kernel module is loaded, so a driver is expected.
    pub has_module: bool,
    pub devices: Vec<GpuDevice>,
    /// GPUs of this machine are partitioned (MIG): a process sees at most one partition.
    pub has_mig: bool,
    /// The kernel module for GPUDirect RDMA, `nvidia_peermem`, is loaded.
    pub has_peer_memory: bool,
    /// PyTorch is configured to map its memory in parts (`expandable_segments:True`).
    pub expandable_segments: bool,
}

/// A device that CUDA sees.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuDevice {
    pub ordinal: u32,
    pub name: String,
    pub memory_bytes: u64,
}
