//! Checks of a machine, with the commands that fix what they find.
//!
//! A check is a pure function of a [`Machine`]. Unknown values give no finding.

use serde::Serialize;

use super::machine::{Limit, Machine, Nic, Packages, RdmaPort};

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Prevents rdmc from working.
    Problem,
    /// Reduces speed, or prevents the use of a device.
    Warning,
}

/// The finding of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Name of the check, for scripts.
    pub check: &'static str,
    pub severity: Severity,
    /// The fault and its effect.
    pub what: String,
    /// Commands that fix the fault, or a sentence if no command does.
    pub fix: Vec<String>,
}

type Check = fn(&Machine) -> Vec<Finding>;

const CHECKS: [Check; 13] = [
    addresses,
    open_files,
    locked_memory,
    libfabric,
    rdma_files,
    rdma_provider,
    rdma_addresses,
    rdma_links,
    mtu,
    streams,
    tcp_buffers,
    shared_memory,
    gpu,
];

/// All findings, problems first.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(machine)).collect();
    findings.sort_by_key(|finding| finding.severity == Severity::Warning);
    findings
}

/// The reason for the choice of `--fabric auto` here.
pub fn choice(machine: &Machine) -> String {
    let best = machine.fabrics.first().map_or("tcp", String::as_str);
    if best != "tcp" {
        let mine = |fabric: &str| fabric.split(':').next() == Some(best);
        let devices = machine.libfabric.devices.iter().map(|device| device.fabric.as_str());
        let names: Vec<&str> = devices
            .filter(|fabric| mine(fabric))
            .filter_map(|name| name.split(':').nth(1))
            .collect();
        return format!("libfabric has the provider {best} for {}", names.join(", "));
    }
    match &machine.libfabric.version {
        None => "libfabric cannot be used here".into(),
        Some(version) => {
            format!("libfabric {version} has no verbs, cxi or efa device whose link is not down")
        }
    }
}

fn finding(
    check: &'static str,
    severity: Severity,
    what: impl Into<String>,
    fix: impl IntoIterator<Item = String>,
) -> Finding {
    Finding { check, severity, what: what.into(), fix: fix.into_iter().collect() }
}

/// The severity of a limit: a problem below `least`, a warning below `advised`.
fn judged(limit: u64, least: u64, advised: u64) -> Option<Severity> {
    if limit < least {
        Some(Severity::Problem)
    } else {
        (limit < advised).then_some(Severity::Warning)
    }
}

fn install(machine: &Machine, debian: &str, red_hat: &str) -> String {
    match machine.packages {
        Some(Packages::Apt) => format!("sudo apt-get install {debian}"),
        Some(Packages::Dnf) => format!("sudo dnf install {red_hat}"),
        None => format!("install {red_hat} (Debian: {debian})"),
    }
}

fn active(machine: &Machine) -> impl Iterator<Item = &RdmaPort> {
    machine.rdma_ports.iter().filter(|port| port.is_active())
}

/// Names of the active ports, for a sentence.
fn active_names(machine: &Machine) -> String {
    active(machine).map(RdmaPort::name).collect::<Vec<_>>().join(", ")
}

fn verbs(fabric: &str) -> bool {
    fabric.split(':').next() == Some("verbs")
}

fn has_verbs(machine: &Machine) -> bool {
    machine.libfabric.devices.iter().any(|device| verbs(&device.fabric))
}

fn addresses(machine: &Machine) -> Vec<Finding> {
    let reachable = |nic: &Nic| !nic.is_loopback && !nic.addresses.is_empty();
    if machine.nics.is_empty() || machine.nics.iter().any(reachable) {
        return Vec::new();
    }
    let what = "no network interface has an address, so no other host can reach this one";
    vec![finding("addresses", Severity::Problem, what, ["ip address".to_owned()])]
}

/// A member of a group of 1000 has some 20 neighbours, with a few descriptors each.
const OPEN_FILES_LEAST: u64 = 128;
const OPEN_FILES_ADVISED: u64 = 1024;

fn open_files(machine: &Machine) -> Vec<Finding> {
    let limit = machine.limits.open_files;
    let Limit::At(files) = limit else { return Vec::new() };
    let Some(severity) = judged(files, OPEN_FILES_LEAST, OPEN_FILES_ADVISED) else {
        return Vec::new();
    };
    let what = format!("only {files} files may be open; each neighbour's connections take several");
    let fix = match machine.limits.open_files_hard.is_below(OPEN_FILES_ADVISED) {
        false => format!("ulimit -n {OPEN_FILES_ADVISED}"),
        true => format!(
            "echo '* - nofile {OPEN_FILES_ADVISED}' | sudo tee /etc/security/limits.d/rdmc.conf  \
             # and log in again"
        ),
    };
    vec![finding("open-files", severity, what, [fix])]
}

/// The memory that is registered at a time.
const LOCKED_BYTES_LEAST: u64 = 256 << 20;
/// Objects up to this length stay registered.
const LOCKED_BYTES_ADVISED: u64 = 4 << 30;

fn locked_memory(machine: &Machine) -> Vec<Finding> {
    let limits = &machine.limits;
    let registers = |name: &str| {
        machine.libfabric.devices.iter().any(|device| {
            device.needs_registration && device.fabric.split(':').next() == Some(name)
        })
    };
    // Only for the fabric of `auto`; other fabrics report the limit when they are used.
    let best = machine.fabrics.first().map_or("tcp", String::as_str);
    let Limit::At(bytes) = limits.locked_memory_bytes else { return Vec::new() };
    if limits.may_lock_more || !registers(best) {
        return Vec::new();
    }
    let Some(severity) = judged(bytes, LOCKED_BYTES_LEAST, LOCKED_BYTES_ADVISED) else {
        return Vec::new();
    };
    let what = format!(
        "only {} of memory may be locked; the fabric {best} locks what it sends and receives",
        plan::size::show(bytes)
    );
    let line = "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/rdmc-memlock.conf  \
                # and log in again; in a systemd service LimitMEMLOCK=infinity";
    let fix = [line.to_owned(), "rdmc push --fabric tcp …  # without it".to_owned()];
    vec![finding("locked-memory", severity, what, fix)]
}

fn libfabric(machine: &Machine) -> Vec<Finding> {
    let Some(trouble) = &machine.libfabric.trouble else { return Vec::new() };
    if active(machine).next().is_none() {
        return Vec::new();
    }
    let what = format!("{} could be used with libfabric, but {trouble}", active_names(machine));
    let fix = install(machine, "libfabric1", "libfabric");
    vec![finding("libfabric", Severity::Warning, what, [fix])]
}

/// Verbs needs a device file per device, and rdma_cm to connect.
fn rdma_files(machine: &Machine) -> Vec<Finding> {
    if active(machine).next().is_none() {
        return Vec::new();
    }
    let has = |name: &str| machine.rdma_files.iter().any(|file| file.name.starts_with(name));
    let mut findings = Vec::new();
    for (name, module) in [("uverbs", "ib_uverbs"), ("rdma_cm", "rdma_ucm")] {
        if !has(name) {
            let what = format!("there are RDMA devices, but /dev/infiniband/{name} is missing");
            let fix = format!("sudo modprobe {module}");
            findings.push(finding("rdma-files", Severity::Warning, what, [fix]));
        }
    }
    let closed = machine.rdma_files.iter().filter(|file| !file.is_usable);
    findings.extend(closed.map(|file| {
        let path = format!("/dev/infiniband/{}", file.name);
        let what = format!("this user may not open {path}");
        finding("rdma-files", Severity::Warning, what, [format!("sudo chmod a+rw {path}")])
    }));
    findings
}

fn rdma_provider(machine: &Machine) -> Vec<Finding> {
    let files_are_there = rdma_files(machine).is_empty();
    let addressed = rdma_addresses(machine).len() < active(machine).count();
    let expected = files_are_there && addressed && machine.libfabric.version.is_some();
    if !expected || has_verbs(machine) {
        return Vec::new();
    }
    let what =
        format!("libfabric does not offer {} with its provider verbs", active_names(machine));
    let fix = install(machine, "ibverbs-providers librdmacm1", "libibverbs librdmacm");
    let look = "FI_LOG_LEVEL=info fi_info -p verbs".to_owned();
    vec![finding("rdma-provider", Severity::Warning, what, [fix, look])]
}

/// Queue pairs are connected by IP address.
fn rdma_addresses(machine: &Machine) -> Vec<Finding> {
    let without = active(machine).filter_map(|port| {
        let nic = port.nic.as_deref()?;
        let known = machine.nics.iter().find(|known| known.name == nic)?;
        known.addresses.is_empty().then(|| {
            let what = format!(
                "{} cannot be used: its network interface {nic} has no IP address",
                port.name()
            );
            let fix = [
                format!("sudo ip link set dev {nic} up"),
                format!("sudo ip address add ADDRESS/PREFIX dev {nic}"),
            ];
            finding("rdma-addresses", Severity::Warning, what, fix)
        })
    });
    without.collect()
}

fn rdma_links(machine: &Machine) -> Vec<Finding> {
    let down = machine.rdma_ports.iter().filter_map(|port| {
        let state = port.state.as_deref().filter(|_| !port.is_active())?;
        let what = format!("the link of {} is not active ({state})", port.name());
        let fix = match (state, port.link_layer.as_deref(), &port.nic) {
            ("INIT", Some("InfiniBand"), _) => {
                "run a subnet manager in this network, such as opensm, on one host".into()
            }
            (_, Some("Ethernet"), Some(nic)) => format!("sudo ip link set dev {nic} up"),
            _ => "check the cable and the switch's port".into(),
        };
        Some(finding("rdma-links", Severity::Warning, what, [fix]))
    });
    down.collect()
}

const FAST_BITS_PER_SECOND: u64 = 25_000_000_000;

fn is_fast(nic: &Nic) -> bool {
    let is_fast = nic.bits_per_second.is_some_and(|rate| rate >= FAST_BITS_PER_SECOND);
    is_fast && nic.is_up != Some(false)
}

/// At high rates small packets take much processor time.
fn mtu(machine: &Machine) -> Vec<Finding> {
    let small = machine.nics.iter().filter_map(|nic| {
        let mtu = nic.mtu_bytes.filter(|&mtu| mtu <= 1500)?;
        is_fast(nic).then(|| {
            let what = format!("{} is fast, but its packets have at most {mtu} bytes", nic.name);
            let fix = format!(
                "sudo ip link set dev {} mtu 9000  # if the switches and the other hosts support it",
                nic.name
            );
            finding("mtu", Severity::Warning, what, [fix])
        })
    });
    small.collect()
}

/// With so many processors rdmc uses two threads for several streams.
const STREAMS_CPUS_LEAST: usize = 4;

/// One processor copies and encrypts what a connection carries (docs/results/threads.md). RDMA devices do that themselves.
fn streams(machine: &Machine) -> Vec<Finding> {
    let uses_tcp = machine.fabrics.first().is_some_and(|fabric| fabric == "tcp");
    let has_cpus = machine.cpus.is_some_and(|cpus| cpus >= STREAMS_CPUS_LEAST);
    let fast = machine.nics.iter().find(|nic| is_fast(nic) && !nic.addresses.is_empty());
    let Some(nic) = fast.filter(|_| uses_tcp && has_cpus && machine.streams == Some(1)) else {
        return Vec::new();
    };
    let what = format!(
        "{} is fast, but a push uses one TCP connection to each neighbour, and so one processor",
        nic.name
    );
    let fix = ["rdmc push --streams 4 …  # or streams = 4 in the configuration".to_owned()];
    vec![finding("streams", Severity::Warning, what, fix)]
}

/// Enough for 10 Gb/s at a round trip of 2.5 ms: smaller buffers limit a single connection.
const TCP_BUFFER_BYTES_ADVISED: u64 = 4 << 20;

fn tcp_buffers(machine: &Machine) -> Vec<Finding> {
    let tcp = &machine.tcp;
    let names = [
        ("tcp_rmem", "4096 131072 16777216", tcp.receive_buffer_bytes_max),
        ("tcp_wmem", "4096 65536 16777216", tcp.send_buffer_bytes_max),
    ];
    let small = names.into_iter().filter_map(|(name, advised, bytes)| {
        let bytes = bytes.filter(|&bytes| bytes < TCP_BUFFER_BYTES_ADVISED)?;
        let what = format!(
            "buffers of TCP connections grow only to {} (net.ipv4.{name})",
            plan::size::show(bytes)
        );
        let fix = format!("sudo sysctl -w net.ipv4.{name}='{advised}'");
        Some(finding("tcp-buffers", Severity::Warning, what, [fix]))
    });
    small.collect()
}

const SHARED_MEMORY_BYTES_ADVISED: u64 = 256 << 20;

fn shared_memory(machine: &Machine) -> Vec<Finding> {
    let offered = machine.libfabric.devices.iter().any(|device| device.fabric.starts_with("shm"));
    let small = |&bytes: &u64| bytes < SHARED_MEMORY_BYTES_ADVISED;
    let Some(bytes) = machine.shared_memory_bytes.filter(small).filter(|_| offered) else {
        return Vec::new();
    };
    let what =
        format!("/dev/shm has only {}, which the fabric shm can fill", plan::size::show(bytes));
    let fix = "sudo mount -o remount,size=1G /dev/shm  # in a container: --shm-size=1g".to_owned();
    vec![finding("shared-memory", Severity::Warning, what, [fix])]
}

/// Only if the kernel has the driver's module: other machines have no usable GPU.
fn gpu(machine: &Machine) -> Vec<Finding> {
    let gpu = &machine.gpu;
    let Some(trouble) = gpu.trouble.as_ref().filter(|_| gpu.has_module) else { return Vec::new() };
    let what =
        format!("the NVIDIA kernel module is loaded, but memory of GPUs cannot be used: {trouble}");
    vec![finding("gpu", Severity::Warning, what, ["nvidia-smi".to_owned()])]
}

#[cfg(test)]
mod tests;
