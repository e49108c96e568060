//! Making the namespaces, links and switches of a lab.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    Error, LabSettings, Link,
    command::{batch, script},
    namespaces::{of_host, of_switch},
    state::Lock,
};

/// The bridge that joins hosts, or racks if there are several.
pub const SPINE: &str = "spine";
/// The device of a host's link, on the host.
pub const HOST_DEVICE: &str = "eth0";

/// Makes everything. After an error or a stop, the caller removes what was made.
pub fn make(
    lock: &Lock,
    name: &str,
    settings: &LabSettings,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let check_stop = || if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
    let cubic = allow_cubic();
    let switch = of_switch(name);
    let namespaces =
        [switch.clone()].into_iter().chain((0..settings.hosts).map(|host| of_host(name, host)));
    let namespaces: Vec<String> = namespaces.map(|name| format!("netns add {name}")).collect();
    for some in namespaces.chunks(16) {
        batch(lock, "ip", None, some)?;
        check_stop()?;
    }
    batch(lock, "ip", Some(&switch), &bridges(settings))?;
    for host in 0..settings.hosts {
        batch(lock, "ip", Some(&switch), &port(name, settings, host))?;
        check_stop()?;
    }
    batch(lock, "tc", Some(&switch), &shapers_of_switch(settings))?;
    let devices: Vec<String> = devices_of_switch(settings).map(|(device, _)| device).collect();
    script(lock, &switch, &[keep_order(&devices)])?;
    for host in 0..settings.hosts {
        script(lock, &of_host(name, host), &script_of_host(settings, host, cubic))?;
        check_stop()?;
    }
    Ok(())
}

/// The device of a rack's uplink at the rack, which shapes what leaves the rack.
pub fn leaving(rack: u32) -> String {
    format!("out{rack}")
}

/// The other end, which shapes what comes into the rack.
pub fn entering(rack: u32) -> String {
    format!("in{rack}")
}

/// A host's port at its switch.
pub fn port_name(host: u32) -> String {
    format!("port{host}")
}

fn bridge_of(settings: &LabSettings, host: u32) -> String {
    if settings.racks == 1 { SPINE.into() } else { format!("rack{}", settings.rack_of(host)) }
}

fn bridges(settings: &LabSettings) -> Vec<String> {
    let bridge = |name: &str| {
        [format!("link add {name} type bridge mcast_snooping 0"), format!("link set {name} up")]
    };
    let mut lines = bridge(SPINE).to_vec();
    let Some(uplink) = settings.uplink else { return lines };
    for rack in 0..settings.racks {
        let (name, leaving, entering) = (format!("rack{rack}"), leaving(rack), entering(rack));
        lines.extend(bridge(&name));
        let mtu = uplink.mtu_bytes;
        lines
            .push(format!("link add {leaving} mtu {mtu} type veth peer name {entering} mtu {mtu}"));
        for (device, bridge) in [(leaving, name.as_str()), (entering, SPINE)] {
            lines.extend(limit_packets(&device, uplink));
            lines.push(format!("link set {device} master {bridge} up"));
        }
    }
    lines
}

fn port(name: &str, settings: &LabSettings, host: u32) -> Vec<String> {
    let (port, namespace) = (port_name(host), of_host(name, host));
    let link = settings.link_of(host);
    let mtu = link.mtu_bytes;
    let mut lines = vec![format!(
        "link add {port} mtu {mtu} type veth peer name {HOST_DEVICE} mtu {mtu} netns {namespace}"
    )];
    lines.extend(limit_packets(&port, link));
    lines.push(format!("link set {port} master {} up", bridge_of(settings, host)));
    lines
}

fn limit_packets(device: &str, link: Link) -> Option<String> {
    link.gso_bytes().map(|bytes| format!("link set {device} gso_max_size {bytes}"))
}

/// The devices of all links at switches, and what shapes them.
fn devices_of_switch(settings: &LabSettings) -> impl Iterator<Item = (String, Link)> {
    let ports = (0..settings.hosts).map(|host| (port_name(host), settings.link_of(host)));
    let uplinks = settings.uplink.into_iter().flat_map(|uplink| {
        let devices = (0..settings.racks).flat_map(|rack| [leaving(rack), entering(rack)]);
        devices.map(move |device| (device, uplink))
    });
    ports.chain(uplinks)
}

fn shapers_of_switch(settings: &LabSettings) -> Vec<String> {
    devices_of_switch(settings).map(|(device, link)| link.shape(&device)).collect()
}

/// The command that hands all packets of a flow that devices receive to one processor (RPS), as network cards do.
///
/// A veth device receives on the processor that sends, which is the sender's or that of a token bucket's timer: packets
/// of one flow would overtake each other. Receivers of RoCE take that for loss, and senders go back N packets.
fn keep_order<D: AsRef<str>>(devices: &[D]) -> String {
    let devices: Vec<&str> = devices.iter().map(AsRef::as_ref).collect();
    // Kernels for one processor have no RPS.
    format!(
        "cpus=$(sed -n 's/^Cpus_allowed:[[:space:]]*//p' /proc/self/status)
for device in {}; do
  for queue in /sys/class/net/$device/queues/rx-*/rps_cpus; do
    [ ! -e $queue ] || echo $cpus > $queue
  done
done",
        devices.join(" ")
    )
}

/// What is done on the host itself, as a script that starts few processes.
fn script_of_host(settings: &LabSettings, host: u32, cubic: bool) -> Vec<String> {
    let link = settings.link_of(host);
    let mut lines = Vec::new();
    if cubic {
        lines.push("echo cubic > /proc/sys/net/ipv4/tcp_congestion_control".into());
    }
    lines.push("tc -batch - <<'END'".into());
    lines.push(link.shape(HOST_DEVICE));
    lines.extend(Link::slow_down(HOST_DEVICE, &settings.slow_from(host)));
    lines.extend(["END".into(), "ip -batch - <<'END'".into()]);
    lines.extend(limit_packets(HOST_DEVICE, link));
    lines.push(format!("addr add {}/16 dev {HOST_DEVICE}", settings.address(host)));
    lines.extend(["link set lo up".into(), format!("link set {HOST_DEVICE} up"), "END".into()]);
    lines.push(keep_order(&[HOST_DEVICE]));
    lines
}

/// Lets namespaces choose cubic. Paced congestion control (bbr) needs a queue that paces, which a
/// token bucket does not; without one it paces by timers and loses throughput. False if the
/// kernel has no cubic; the namespaces then use the system's default.
fn allow_cubic() -> bool {
    let path = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    let allowed = fs::read_to_string(path).unwrap_or_default();
    allowed.split_whitespace().any(|name| name == "cubic")
        || fs::write(path, format!("{} cubic", allowed.trim())).is_ok()
}
