//! The report as text.

use std::io::{self, Write};

use plan::size;

use super::{
    checks::Severity,
    machine::{Limit, Machine, Nic, RdmaPort},
    report::Report,
};

const UNKNOWN: &str = "unknown";

fn known(text: Option<&str>) -> &str {
    text.unwrap_or(UNKNOWN)
}

fn bytes(count: Option<u64>) -> String {
    count.map_or_else(|| UNKNOWN.into(), size::show)
}

fn rate(bits_per_second: Option<u64>) -> String {
    bits_per_second.map_or_else(|| "rate unknown".into(), size::show_rate)
}

pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let machine = &report.machine;
    for (name, value) in rows(machine) {
        writeln!(out, "{name:<16} {value}")?;
    }
    writeln!(out, "{:<16} {}: {}", "--fabric auto", report.fabric.automatic, report.fabric.reason)?;
    writeln!(out)?;
    if report.findings.is_empty() {
        return writeln!(out, "No problems found.");
    }
    for finding in &report.findings {
        let severity = match finding.severity {
            Severity::Problem => "PROBLEM",
            Severity::Warning => "warning",
        };
        writeln!(out, "{severity} ({}): {}", finding.check, finding.what)?;
        for fix in &finding.fix {
            writeln!(out, "    {fix}")?;
        }
    }
    Ok(())
}

fn rows(machine: &Machine) -> Vec<(&'static str, String)> {
    let cpus = machine.cpus.map_or_else(|| UNKNOWN.into(), |cpus| cpus.to_string());
    let mut rows = vec![
        ("rdmc", machine.rdmc.to_owned()),
        ("rdmc switch", switches(machine)),
        (
            "system",
            format!(
                "{}, kernel {}",
                known(machine.system.as_deref()),
                known(machine.kernel.as_deref())
            ),
        ),
        ("CPUs, memory", format!("{cpus}, {}", bytes(machine.memory_bytes))),
    ];
    rows.extend(machine.nics.iter().map(|nic| ("interface", interface(nic))));
    rows.extend(machine.rdma_ports.iter().map(|port| ("RDMA port", rdma_port(port))));
    if machine.rdma_ports.is_empty() {
        rows.push(("RDMA port", "none".into()));
    }
    rows.extend(fabrics(machine));
    rows.extend(gpus(machine));
    rows.extend(limits(machine));
    rows
}

fn switches(machine: &Machine) -> String {
    match machine.switches.is_empty() {
        true => "not in this build".into(),
        false => machine.switches.join(", "),
    }
}

fn interface(nic: &Nic) -> String {
    let addresses: Vec<String> = nic.addresses.iter().map(ToString::to_string).collect();
    let state = match nic.is_up {
        Some(true) => "up",
        Some(false) => "down",
        None => "state unknown",
    };
    let mtu = nic.mtu_bytes.map_or_else(|| UNKNOWN.into(), |mtu| mtu.to_string());
    let addresses = match addresses.is_empty() {
        true => "no address".into(),
        false => addresses.join(" "),
    };
    format!("{}: {state}, {}, MTU {mtu}, {addresses}", nic.name, rate(nic.bits_per_second))
}

fn rdma_port(port: &RdmaPort) -> String {
    format!(
        "{}: {}, {}, {}, interface {}",
        port.name(),
        known(port.state.as_deref()),
        known(port.link_layer.as_deref()),
        known(port.rate.as_deref()),
        known(port.nic.as_deref()),
    )
}

fn fabrics(machine: &Machine) -> Vec<(&'static str, String)> {
    let libfabric = &machine.libfabric;
    let mut rows = vec![(
        "libfabric",
        match (&libfabric.version, &libfabric.trouble) {
            (Some(version), _) => version.clone(),
            (None, trouble) => known(trouble.as_deref()).into(),
        },
    )];
    rows.extend(libfabric.devices.iter().map(|device| {
        let state = match device.is_up {
            Some(false) => ", link down",
            _ => "",
        };
        let offload = if device.can_offload { ", --offload" } else { "" };
        let rate = rate(device.bits_per_second);
        ("  fabric", format!("{}: {rate}{state}{offload}", device.fabric))
    }));
    rows
}

fn gpus(machine: &Machine) -> Vec<(&'static str, String)> {
    let gpu = &machine.gpu;
    let Some(version) = &gpu.cuda else {
        return vec![("CUDA", known(gpu.trouble.as_deref()).into())];
    };
    let mut rows = vec![("CUDA", version.clone())];
    rows.extend(gpu.devices.iter().map(|device| {
        let bytes = size::show(device.memory_bytes);
        ("  GPU", format!("{}: {}, {bytes}", device.ordinal, device.name))
    }));
    if gpu.has_mig {
        rows.push(("  MIG", "GPUs are partitioned: a process sees at most one part".into()));
    }
    let peer_memory = if gpu.has_peer_memory { "loaded, but not used" } else { "not loaded" };
    rows.push((
        "  GPU memory",
        format!("through pinned memory of the host; GPUDirect is not used (nvidia_peermem is {peer_memory})"),
    ));
    if gpu.expandable_segments {
        let what = "expandable_segments: memory is mapped in parts; rdmc copies from and to it";
        rows.push(("  PyTorch", what.into()));
    }
    rows
}

fn limits(machine: &Machine) -> Vec<(&'static str, String)> {
    let limits = &machine.limits;
    let locked = match limits.locked_memory_bytes {
        Limit::Unlimited => "unlimited".into(),
        Limit::At(bytes) => size::show(bytes),
    };
    let beyond = if limits.may_lock_more { " (may lock more)" } else { "" };
    let files = match limits.open_files {
        Limit::Unlimited => "unlimited".into(),
        Limit::At(files) => files.to_string(),
    };
    let tcp = &machine.tcp;
    let pages = &machine.huge_pages;
    let count = |pages: Option<u64>| pages.map_or_else(|| UNKNOWN.into(), |n| n.to_string());
    vec![
        ("locked memory", format!("{locked}{beyond}")),
        ("open files", files),
        (
            "TCP",
            format!(
                "{} (available: {}), buffers to {} in, {} out",
                known(tcp.congestion_control.as_deref()),
                tcp.congestion_controls.join(" "),
                bytes(tcp.receive_buffer_bytes_max),
                bytes(tcp.send_buffer_bytes_max),
            ),
        ),
        (
            "one machine",
            match &tcp.no_direct_copies {
                None => "blocks are copied out of their sender's memory".into(),
                Some(why) => format!("blocks go through shared memory: {why}"),
            },
        ),
        (
            "huge pages",
            format!(
                "{} of {} free, {} each; transparent: {}",
                count(pages.free),
                count(pages.total),
                bytes(pages.page_bytes),
                known(pages.transparent.as_deref()),
            ),
        ),
        ("/dev/shm", bytes(machine.shared_memory_bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machine::{Gpu, GpuDevice};

    #[test]
    fn what_gpus_are_and_lack_is_named() {
        let device = GpuDevice { ordinal: 1, name: "GPU MIG 1g.5gb".into(), memory_bytes: 5 << 30 };
        let gpu = Gpu { cuda: Some("12.4".into()), devices: vec![device], ..Gpu::default() };
        let mut machine = Machine { gpu, ..Machine::default() };
        let text = |machine: &Machine| {
            let rows = gpus(machine).into_iter().map(|(name, value)| format!("{name} {value}\n"));
            rows.collect::<String>()
        };
        let plain = text(&machine);
        assert!(plain.starts_with("CUDA 12.4\n  GPU 1: GPU MIG 1g.5gb, 5 GiB\n"), "{plain}");
        assert!(
            plain.ends_with("GPUDirect is not used (nvidia_peermem is not loaded)\n"),
            "{plain}"
        );
        assert!(!plain.contains("  MIG ") && !plain.contains("PyTorch"), "{plain}");
        machine.gpu.has_mig = true;
        machine.gpu.has_peer_memory = true;
        machine.gpu.expandable_segments = true;
        let all = text(&machine);
        for part in ["  MIG ", "loaded, but not used", "  PyTorch expandable_segments"] {
            assert!(all.contains(part), "{part}: {all}");
        }
        machine.gpu = Gpu { trouble: Some("no NVIDIA driver".into()), ..Gpu::default() };
        assert_eq!(text(&machine), "CUDA no NVIDIA driver\n");
    }
}
