//! Reads the state of this machine, and changes nothing.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::{
    fs::Access,
    process::{Resource, getrlimit},
};

use super::machine::{
    DeviceFile, FabricDevice, Gpu, GpuDevice, HugePages, Libfabric, Limit, Limits, Machine, Nic,
    Packages, RdmaPort, Tcp,
};

/// A file tree: `/`, or a directory in tests.
pub struct Tree(pub PathBuf);

impl Tree {
    /// A file's text, trimmed; `None` if it is empty or cannot be read.
    fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.0.join(path)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Names in a directory, sorted; empty if it does not exist.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The value of a key in a file of lines `key: value` or `key=value`.
    fn value(&self, path: &str, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let value = text.lines().find_map(|line| {
            let (name, value) = line.split_once([':', '='])?;
            (name == key).then(|| value.trim().trim_matches('"').to_owned())
        });
        value.filter(|value| !value.is_empty())
    }

    /// A value of /proc/meminfo that is given in kB.
    fn memory(&self, key: &str) -> Option<u64> {
        let value = self.value("proc/meminfo", key)?;
        value.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// The word in brackets, as in `always [madvise] never`.
    fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
    }
}

/// Reads everything; takes some tens of milliseconds, and longer if a GPU must be started.
pub fn gather() -> Machine {
    let tree = Tree("/".into());
    let files = from_files(&tree);
    let no_direct_copies = rdmc::check_direct_copies().err();
    Machine {
        tcp: Tcp { no_direct_copies, ..files.tcp },
        gpu: with_driver(files.gpu, gpu::Driver::open()),
        switches: switches(),
        libfabric: libfabric(),
        fabrics: rdmc::Fabric::candidates().iter().map(ToString::to_string).collect(),
        limits: limits(&tree),
        nics: nics(&tree, &if_addrs::get_if_addrs().unwrap_or_default()),
        cpus: std::thread::available_parallelism().ok().map(Into::into),
        shared_memory_bytes: rustix::fs::statvfs("/dev/shm")
            .ok()
            .map(|volume| volume.f_frsize.saturating_mul(volume.f_blocks)),
        ..files
    }
}

/// The part that is read from files.
pub fn from_files(tree: &Tree) -> Machine {
    let huge = |name: &str| tree.value("proc/meminfo", name).and_then(|text| text.parse().ok());
    let buffer = |name: &str| {
        tree.text(&format!("proc/sys/net/ipv4/{name}"))?.split_whitespace().nth(2)?.parse().ok()
    };
    Machine {
        rdmc: env!("CARGO_PKG_VERSION"),
        system: tree.value("etc/os-release", "PRETTY_NAME"),
        packages: packages(tree),
        kernel: tree.text("proc/sys/kernel/osrelease"),
        memory_bytes: tree.memory("MemTotal"),
        rdma_ports: rdma_ports(tree),
        rdma_files: rdma_files(tree),
        gpu: gpu_files(tree),
        tcp: Tcp {
            congestion_control: tree.text("proc/sys/net/ipv4/tcp_congestion_control"),
            congestion_controls: tree
                .text("proc/sys/net/ipv4/tcp_available_congestion_control")
                .map(|text| text.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
            receive_buffer_bytes_max: buffer("tcp_rmem"),
            send_buffer_bytes_max: buffer("tcp_wmem"),
            receive_buffer_bytes_askable: tree.number("proc/sys/net/core/rmem_max"),
            send_buffer_bytes_askable: tree.number("proc/sys/net/core/wmem_max"),
            no_direct_copies: None,
        },
        huge_pages: HugePages {
            page_bytes: tree.memory("Hugepagesize"),
            total: huge("HugePages_Total"),
            free: huge("HugePages_Free"),
            transparent: tree.chosen("sys/kernel/mm/transparent_hugepage/enabled"),
        },
        ..Machine::default()
    }
}

fn packages(tree: &Tree) -> Option<Packages> {
    let name = |key| tree.value("etc/os-release", key).unwrap_or_default();
    let names = format!("{} {}", name("ID"), name("ID_LIKE"));
    let is = |system| names.split(' ').any(|name| name == system);
    if is("debian") || is("ubuntu") {
        Some(Packages::Apt)
    } else if is("fedora") || is("rhel") {
        Some(Packages::Dnf)
    } else {
        None
    }
}

fn nics(tree: &Tree, interfaces: &[if_addrs::Interface]) -> Vec<Nic> {
    let mut names = tree.names("sys/class/net");
    // The directory may also contain files, such as bonding_masters.
    names.retain(|name| tree.0.join("sys/class/net").join(name).is_dir());
    names.extend(interfaces.iter().map(|interface| interface.name.clone()));
    names.sort();
    names.dedup();
    let nic = |name: String| {
        let mine = interfaces.iter().filter(|interface| interface.name == name);
        let file = |file: &str| format!("sys/class/net/{name}/{file}");
        // The kernel has -1 for an unknown speed.
        let megabits = tree.number(&file("speed"));
        Nic {
            is_loopback: mine.clone().any(if_addrs::Interface::is_loopback),
            addresses: mine.map(if_addrs::Interface::ip).collect(),
            is_up: tree.text(&file("operstate")).and_then(|state| match state.as_str() {
                "up" => Some(true),
                "unknown" => None,
                _ => Some(false),
            }),
            bits_per_second: megabits.and_then(|rate| rate.checked_mul(1_000_000)),
            mtu_bytes: tree.number(&file("mtu")),
            name,
        }
    };
    names.into_iter().map(nic).collect()
}

const RDMA: &str = "sys/class/infiniband";

fn rdma_ports(tree: &Tree) -> Vec<RdmaPort> {
    let mut found = Vec::new();
    for device in tree.names(RDMA) {
        for port in tree.names(&format!("{RDMA}/{device}/ports")) {
            let file = |name: &str| tree.text(&format!("{RDMA}/{device}/ports/{port}/{name}"));
            // "4: ACTIVE"
            let state = file("state").map(|text| match text.split_once(':') {
                Some((_, word)) => word.trim().to_owned(),
                None => text,
            });
            let beside = || tree.names(&format!("{RDMA}/{device}/device/net")).into_iter().next();
            found.push(RdmaPort {
                state,
                link_layer: file("link_layer"),
                rate: file("rate"),
                nic: file("gid_attrs/ndevs/0").or_else(beside),
                device: device.clone(),
                port,
            });
        }
    }
    found
}

fn rdma_files(tree: &Tree) -> Vec<DeviceFile> {
    let directory = "dev/infiniband";
    let is_file = |name: &String| name.starts_with("uverbs") || name == "rdma_cm";
    let usable = |path: &Path| rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK).is_ok();
    let files = tree.names(directory).into_iter().filter(is_file);
    files
        .map(|name| DeviceFile { is_usable: usable(&tree.0.join(directory).join(&name)), name })
        .collect()
}

fn limits(tree: &Tree) -> Limits {
    let limit = |bound: Option<u64>| bound.map_or(Limit::Unlimited, Limit::At);
    let files = getrlimit(Resource::Nofile);
    Limits {
        locked_memory_bytes: limit(getrlimit(Resource::Memlock).current),
        may_lock_more: may_lock_more(tree),
        open_files: limit(files.current),
        open_files_hard: limit(files.maximum),
    }
}

/// CAP_IPC_LOCK is bit 14 of the effective capabilities.
fn may_lock_more(tree: &Tree) -> bool {
    let bits = tree.value("proc/self/status", "CapEff");
    bits.and_then(|bits| u64::from_str_radix(&bits, 16).ok())
        .is_some_and(|bits| bits >> 14 & 1 == 1)
}

/// What this program was built with.
#[cfg(feature = "switch")]
fn switches() -> Vec<&'static str> {
    match data_plane::HAS_KERNEL_PLANE {
        true => vec!["userspace", "kernel"],
        false => vec!["userspace"],
    }
}

#[cfg(not(feature = "switch"))]
fn switches() -> Vec<&'static str> {
    Vec::new()
}

fn libfabric() -> Libfabric {
    match rdmc::discovery::discover() {
        Ok(found) => Libfabric {
            version: Some(format!("{}.{}", found.version.0, found.version.1)),
            trouble: None,
            devices: found
                .devices
                .into_iter()
                .map(|device| FabricDevice {
                    fabric: device.fabric.to_string(),
                    bits_per_second: device.link_bits_per_second,
                    is_up: device.link_is_up,
                    needs_registration: device.needs_registration,
                    can_offload: device.can_offload,
                })
                .collect(),
        },
        Err(rdmc::Error::Fabric { cause, .. }) => {
            Libfabric { trouble: Some(cause), ..Libfabric::default() }
        }
        Err(error) => Libfabric { trouble: Some(error.to_string()), ..Libfabric::default() },
    }
}

fn gpu_files(tree: &Tree) -> Gpu {
    let gpus = "proc/driver/nvidia/capabilities";
    let parts =
        tree.names(gpus).into_iter().flat_map(|gpu| tree.names(&format!("{gpus}/{gpu}/mig")));
    let is_loaded = |module: &str| tree.0.join("sys/module").join(module).is_dir();
    Gpu {
        has_module: is_loaded("nvidia"),
        has_mig: parts.into_iter().any(|part| part.starts_with("gi")),
        has_peer_memory: is_loaded("nvidia_peermem"),
        ..Gpu::default()
    }
}

/// Adds the driver's data.
fn with_driver(files: Gpu, opened: Result<gpu::Driver, gpu::Error>) -> Gpu {
    let asked = opened.and_then(|driver| Ok((driver.version()?, driver.devices()?)));
    let expandable_segments = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|value| is_expandable(&value)));
    match asked {
        Ok(((major, minor), devices)) => Gpu {
            cuda: Some(format!("{major}.{minor}")),
            has_mig: files.has_mig || devices.iter().any(gpu::DeviceInfo::is_mig),
            devices: devices
                .into_iter()
                .map(|device| GpuDevice {
                    ordinal: device.ordinal,
                    name: device.name,
                    memory_bytes: device.bytes,
                })
                .collect(),
            expandable_segments,
            ..files
        },
        Err(error) => Gpu { trouble: Some(error.to_string()), expandable_segments, ..files },
    }
}

/// Reads PyTorch's options, such as `max_split_size_mb:128,expandable_segments:True`.
fn is_expandable(options: &str) -> bool {
    options.split(',').any(|option| option.trim().eq_ignore_ascii_case("expandable_segments:true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn an_empty_tree_gives_no_values() {
        let directory = tree(&[]);
        let machine = from_files(&Tree(directory.path().into()));
        assert!(machine.kernel.is_none() && machine.memory_bytes.is_none());
        assert!(machine.rdma_ports.is_empty() && machine.tcp.congestion_controls.is_empty());
    }

    #[test]
    fn invalid_contents_give_no_values() {
        let directory = tree(&[
            ("proc/meminfo", "MemTotal: lots\nHugepagesize: 99999999999999999999 kB\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "1 2"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "never"),
        ]);
        let machine = from_files(&Tree(directory.path().into()));
        assert!(machine.memory_bytes.is_none() && machine.tcp.receive_buffer_bytes_max.is_none());
        assert!(
            machine.huge_pages.page_bytes.is_none() && machine.huge_pages.transparent.is_none()
        );
    }

    #[test]
    fn an_rdma_host_is_read() {
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        let at = |name: &str| format!("{port}/{name}");
        let directory = tree(&[
            (
                "etc/os-release",
                "PRETTY_NAME=\"Rocky Linux 9\"\nID=rocky\nID_LIKE=\"rhel centos\"\n",
            ),
            ("proc/meminfo", "MemTotal:       1024 kB\nHugePages_Total:       3\n"),
            ("proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("dev/infiniband/uverbs0", ""),
            ("dev/infiniband/umad0", ""),
            (&at("state"), "4: ACTIVE\n"),
            (&at("link_layer"), "Ethernet\n"),
            (&at("gid_attrs/ndevs/0"), "ens1\n"),
            ("sys/class/net/ens1/speed", "100000\n"),
            ("sys/class/net/ens2/speed", "-1\n"),
        ]);
        let tree = Tree(directory.path().into());
        let machine = from_files(&tree);
        assert_eq!(machine.system.as_deref(), Some("Rocky Linux 9"));
        assert_eq!(machine.packages, Some(Packages::Dnf));
        assert_eq!(machine.memory_bytes, Some(1 << 20));
        assert_eq!(machine.huge_pages.total, Some(3));
        assert_eq!(machine.tcp.receive_buffer_bytes_max, Some(6_291_456));
        assert!(machine.rdma_ports[0].is_active());
        assert_eq!(machine.rdma_ports[0].nic.as_deref(), Some("ens1"));
        assert_eq!(machine.rdma_files.len(), 1);
        assert!(may_lock_more(&tree));
        let rates: Vec<_> = nics(&tree, &[]).iter().map(|nic| nic.bits_per_second).collect();
        assert_eq!(rates, [Some(100_000_000_000), None]);
    }

    #[test]
    fn divided_gpus_and_modules_are_seen() {
        let none = tree(&[]);
        let gpu = from_files(&Tree(none.path().into())).gpu;
        assert!(!gpu.has_module && !gpu.has_mig && !gpu.has_peer_memory);
        let directory = tree(&[
            ("proc/driver/nvidia/capabilities/gpu0/mig/gi3/access", "DeviceFileMinor: 30\n"),
            ("sys/module/nvidia/version", "550.54\n"),
            ("sys/module/nvidia_peermem/version", "550.54\n"),
        ]);
        let gpu = from_files(&Tree(directory.path().into())).gpu;
        assert!(gpu.has_module && gpu.has_mig && gpu.has_peer_memory);
    }

    #[test]
    fn a_missing_driver_is_named() {
        let missing = gpu::Driver::open_library(Path::new("/nowhere/libcuda.so.1"));
        let gpu = with_driver(Gpu { has_module: true, ..Gpu::default() }, missing);
        assert!(gpu.has_module && gpu.cuda.is_none() && gpu.devices.is_empty());
        assert!(gpu.trouble.is_some_and(|trouble| trouble.starts_with("no NVIDIA driver")));
    }

    #[test]
    fn options_of_pytorch_are_read() {
        assert!(is_expandable("max_split_size_mb:128, expandable_segments:True"));
        assert!(!is_expandable("expandable_segments:False") && !is_expandable(""));
    }
}
