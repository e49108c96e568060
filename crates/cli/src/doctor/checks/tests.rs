//! Each check reports a machine with the fault, but not the same machine without it.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::doctor::machine::{DeviceFile, FabricDevice};

/// A host with one RDMA port of each kind, without faults.
fn healthy() -> Machine {
    let mut machine = Machine { packages: Some(Packages::Apt), ..Machine::default() };
    let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
    let nic = |name: &str, last| Nic {
        name: name.into(),
        addresses: vec![address(last)],
        is_up: Some(true),
        is_loopback: false,
        bits_per_second: Some(100_000_000_000),
        mtu_bytes: Some(9000),
    };
    machine.nics = vec![nic("ens1", 1), nic("ib0", 2)];
    let port = |device: &str, layer: &str, nic: &str| RdmaPort {
        device: device.into(),
        port: "1".into(),
        state: Some("ACTIVE".into()),
        link_layer: Some(layer.into()),
        rate: None,
        nic: Some(nic.into()),
    };
    machine.rdma_ports =
        vec![port("mlx5_0", "Ethernet", "ens1"), port("mlx5_1", "InfiniBand", "ib0")];
    let file = |name: &str| DeviceFile { name: name.into(), is_usable: true };
    machine.rdma_files = vec![file("rdma_cm"), file("uverbs0"), file("uverbs1")];
    let device = |fabric: &str, needs_registration| FabricDevice {
        fabric: fabric.into(),
        bits_per_second: None,
        is_up: Some(true),
        needs_registration,
        can_offload: false,
    };
    machine.libfabric.version = Some("1.17".into());
    machine.libfabric.devices =
        vec![device("verbs:mlx5_0", true), device("verbs:mlx5_1", true), device("shm:shm", false)];
    machine.fabrics = vec!["verbs".into(), "tcp".into()];
    machine.limits.open_files = Limit::At(1024);
    machine.limits.open_files_hard = Limit::At(4096);
    machine.tcp.receive_buffer_bytes_max = Some(16 << 20);
    machine.tcp.send_buffer_bytes_max = Some(16 << 20);
    machine.shared_memory_bytes = Some(1 << 30);
    machine
}

/// The findings after one change to a healthy machine.
fn after(change: impl FnOnce(&mut Machine)) -> Vec<Finding> {
    let mut machine = healthy();
    change(&mut machine);
    examine(&machine)
}

/// Asserts that there is only this finding, with a fix that contains these words.
#[track_caller]
fn assert_one(findings: &[Finding], check: &str, severity: Severity, words: &str) {
    let [only] = findings else { panic!("{findings:#?}") };
    assert_eq!((only.check, only.severity), (check, severity), "{only:?}");
    assert!(only.fix.iter().any(|fix| fix.contains(words)), "{only:?}");
}

use Severity::{Problem, Warning};

#[test]
fn a_healthy_machine_needs_nothing() {
    assert_eq!(examine(&healthy()), []);
}

#[test]
fn unknown_values_are_no_findings() {
    assert_eq!(examine(&Machine::default()), []);
}

#[test]
fn without_an_address_nobody_reaches_this_host() {
    let loopback = Nic {
        is_loopback: true,
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        ..Nic::default()
    };
    let machine = Machine { nics: vec![loopback], ..Machine::default() };
    assert_one(&examine(&machine), "addresses", Problem, "ip address");
}

#[test]
fn low_limits_of_open_files_warn_and_very_low_ones_are_problems() {
    let with = |files| after(|machine| machine.limits.open_files = Limit::At(files));
    assert_eq!(with(1024), []);
    assert_one(&with(1023), "open-files", Warning, "ulimit -n 1024");
    assert_one(&with(128), "open-files", Warning, "ulimit -n 1024");
    assert_one(&with(127), "open-files", Problem, "ulimit -n 1024");
    let hard = after(|machine| {
        machine.limits.open_files = Limit::At(200);
        machine.limits.open_files_hard = Limit::At(200);
    });
    assert_one(&hard, "open-files", Warning, "/etc/security/limits.d");
}

#[test]
fn memory_has_to_be_locked_where_the_fabric_registers_it() {
    let with = |bytes| after(|machine| machine.limits.locked_memory_bytes = Limit::At(bytes));
    assert_eq!(with(4 << 30), []);
    assert_one(&with((4 << 30) - 1), "locked-memory", Warning, "memlock unlimited");
    assert_one(&with(256 << 20), "locked-memory", Warning, "memlock unlimited");
    assert_one(&with((256 << 20) - 1), "locked-memory", Problem, "memlock unlimited");
    let privileged = after(|machine| {
        machine.limits.locked_memory_bytes = Limit::At(65536);
        machine.limits.may_lock_more = true;
    });
    assert_eq!(privileged, []);
    let mut tcp = Machine::default();
    tcp.limits.locked_memory_bytes = Limit::At(65536);
    tcp.fabrics = vec!["tcp".into()];
    assert_eq!(examine(&tcp), []);
}

#[test]
fn missing_libfabric_is_reported_only_with_rdma_ports() {
    let without = |machine: &mut Machine| {
        machine.libfabric.version = None;
        machine.libfabric.trouble = Some("it is not installed".into());
        machine.libfabric.devices.clear();
        machine.fabrics = vec!["tcp".into()];
    };
    assert_one(&after(without), "libfabric", Warning, "apt-get install libfabric1");
    let red_hat = after(|machine| {
        without(machine);
        machine.packages = Some(Packages::Dnf);
    });
    assert_one(&red_hat, "libfabric", Warning, "dnf install libfabric");
    let no_rdma = after(|machine| {
        without(machine);
        machine.rdma_ports.clear();
    });
    assert_eq!(no_rdma, []);
}

#[test]
fn device_files_have_to_exist_and_be_accessible() {
    let gone = |name: &'static str| {
        after(move |machine| machine.rdma_files.retain(|file| !file.name.starts_with(name)))
    };
    assert_one(&gone("uverbs"), "rdma-files", Warning, "modprobe ib_uverbs");
    assert_one(&gone("rdma_cm"), "rdma-files", Warning, "modprobe rdma_ucm");
    let closed = after(|machine| machine.rdma_files[1].is_usable = false);
    assert_one(&closed, "rdma-files", Warning, "chmod a+rw /dev/infiniband/uverbs0");
}

#[test]
fn an_active_port_without_the_provider_is_a_warning() {
    let without = |machine: &mut Machine| {
        machine.libfabric.devices.retain(|device| !verbs(&device.fabric));
        machine.fabrics = vec!["tcp".into()];
    };
    assert_one(&after(without), "rdma-provider", Warning, "ibverbs-providers");
    let no_files = after(|machine| {
        without(machine);
        machine.rdma_files.clear();
    });
    assert!(no_files.iter().all(|finding| finding.check == "rdma-files"), "{no_files:?}");
}

#[test]
fn ports_need_an_address() {
    let bare = after(|machine| machine.nics[1].addresses.clear());
    assert_one(&bare, "rdma-addresses", Warning, "ip address add ADDRESS/PREFIX dev ib0");
    let unknown = after(|machine| machine.rdma_ports[1].nic = None);
    assert_eq!(unknown, []);
}

#[test]
fn links_that_are_down_are_named() {
    let with = |port: usize, state: &str| {
        after(|machine| machine.rdma_ports[port].state = Some(state.to_owned()))
    };
    assert_one(&with(0, "DOWN"), "rdma-links", Warning, "ip link set dev ens1 up");
    assert_one(&with(1, "INIT"), "rdma-links", Warning, "subnet manager");
    assert_one(&with(1, "DOWN"), "rdma-links", Warning, "cable");
}

#[test]
fn a_small_mtu_is_reported_on_fast_links() {
    let with = |mtu_bytes, gigabits: u64| {
        after(|machine| {
            machine.nics[0].mtu_bytes = Some(mtu_bytes);
            machine.nics[0].bits_per_second = Some(gigabits * 1_000_000_000);
        })
    };
    assert_one(&with(1500, 25), "mtu", Warning, "ip link set dev ens1 mtu 9000");
    assert_eq!(with(1500, 10), []);
    assert_eq!(with(1501, 100), []);
}

#[test]
fn one_stream_is_reported_on_fast_links_without_rdma() {
    let with = |change: fn(&mut Machine)| {
        after(|machine| {
            machine.fabrics = vec!["tcp".into()];
            machine.cpus = Some(4);
            machine.streams = Some(1);
            change(machine);
        })
    };
    let found = with(|_| ());
    assert_one(&found, "streams", Warning, "rdmc push --streams 4");
    assert!(found[0].what.starts_with("ens1 is fast"), "{found:?}");
    let without: [fn(&mut Machine); 5] = [
        |machine| machine.fabrics.insert(0, "verbs".into()),
        |machine| machine.cpus = Some(3),
        |machine| machine.streams = Some(2),
        |machine| machine.streams = None,
        |machine| machine.nics.iter_mut().for_each(|nic| nic.is_up = Some(false)),
    ];
    for (number, change) in without.into_iter().enumerate() {
        assert_eq!(with(change), [], "{number}");
    }
}

#[test]
fn small_limits_of_tcp_buffers_are_reported() {
    let with = |bytes| after(|machine| machine.tcp.receive_buffer_bytes_max = Some(bytes));
    assert_eq!(with(4 << 20), []);
    assert_one(&with((4 << 20) - 1), "tcp-buffers", Warning, "sysctl -w net.ipv4.tcp_rmem");
    let send = after(|machine| machine.tcp.send_buffer_bytes_max = Some(1 << 20));
    assert_one(&send, "tcp-buffers", Warning, "sysctl -w net.ipv4.tcp_wmem");
}

#[test]
fn shared_memory_is_checked_only_where_shm_is_available() {
    let with = |bytes| after(|machine| machine.shared_memory_bytes = Some(bytes));
    assert_eq!(with(256 << 20), []);
    assert_one(&with(64 << 20), "shared-memory", Warning, "remount,size=1G /dev/shm");
    let no_shm = after(|machine| {
        machine.shared_memory_bytes = Some(64 << 20);
        machine.libfabric.devices.retain(|device| !device.fabric.starts_with("shm"));
    });
    assert_eq!(no_shm, []);
}

#[test]
fn a_gpu_without_a_usable_driver_is_reported() {
    let with = |has_module| {
        after(|machine| {
            machine.gpu.has_module = has_module;
            machine.gpu.trouble = Some("no NVIDIA driver".into());
        })
    };
    assert_eq!(with(false), []);
    assert_one(&with(true), "gpu", Warning, "nvidia-smi");
    assert_eq!(after(|machine| machine.gpu.has_module = true), []);
}

#[test]
fn problems_come_first() {
    let both = after(|machine| {
        machine.nics[0].mtu_bytes = Some(1500);
        machine.limits.locked_memory_bytes = Limit::At(65536);
        machine.tcp.send_buffer_bytes_max = Some(1);
    });
    let severities: Vec<_> = both.iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Problem, Warning, Warning]);
}

#[test]
fn the_choice_has_a_reason() {
    let mut machine = healthy();
    assert_eq!(choice(&machine), "libfabric has the provider verbs for mlx5_0, mlx5_1");
    machine.fabrics = vec!["tcp".into()];
    assert!(choice(&machine).contains("no verbs, cxi or efa device"));
    machine.libfabric.version = None;
    assert!(choice(&machine).contains("cannot be used"));
}
