//! Many hosts on one machine: network namespaces joined by a switch, with links of a known rate.
//!
//! Every host is a namespace with one end of a veth pair; the other ends are ports of a bridge in
//! a namespace of its own, the switch. A token bucket at both ends of each pair makes it a
//! full-duplex link of a given rate. Names start with `rdmc-bench-` and the process's number, so
//! that what a killed run has left behind is found and removed by the next.

use std::{fs, net::Ipv4Addr, path::Path, process};

use crate::{Outcome, crew::Host};

const PREFIX: &str = "rdmc-bench-";
const MTU: u64 = 1500;
/// What TCP can make the network device cut up by itself, with its headers.
const GSO_BYTES: u64 = 64 * 1024 + 1024;
/// How long a packet may wait in a port before it is dropped.
const QUEUE_MS: u64 = 50;

/// What all links of a lab are like, in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Rate of TCP payload.
    pub mbit: u64,
    /// What passes unshaped after a pause.
    pub burst_bytes: u64,
    /// The longest packet that TCP hands to the device; `None` leaves it to the system.
    pub gso_bytes: Option<u64>,
}

impl Link {
    /// A link of this rate of TCP payload whose burst is 2 ms, and at least one packet as TCP hands
    /// them over: anything less makes the kernel cut packets up in software.
    pub fn of_rate(mbit: u64) -> Self {
        let burst_bytes = (mbit * 1_000_000 / 8 * 2 / 1_000).max(GSO_BYTES);
        Self { mbit, burst_bytes, gso_bytes: None }
    }

    /// The same with a burst of 18 kB. A burst hides store-and-forward: each link lets that much
    /// through at once. One flow still fills such a link, since its packets are limited to 16 kB.
    pub fn with_small_burst(self) -> Self {
        Self { burst_bytes: 18_000, gso_bytes: Some(16_000), ..self }
    }

    /// What the token bucket is set to: it counts Ethernet headers, but not the link's rate, which
    /// is that of TCP payload (IP, TCP and time stamps take 52 bytes of each packet).
    fn shaper_bits(self) -> u64 {
        self.mbit * 1_000_000 * (MTU + 14) / (MTU - 52)
    }
}

/// Namespaces that exist until this is dropped.
#[derive(Debug)]
pub struct Lab {
    name: String,
    hosts: u32,
}

impl Lab {
    /// Makes `hosts` hosts. Removes what earlier, killed runs have left behind.
    ///
    /// Errors: not root, no iproute2, a kernel without token buckets or bridges.
    pub fn create(hosts: u32, link: Link) -> Outcome<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root: run this as root, or with sudo".into());
        }
        remove_leftovers()?;
        let cubic = allow_cubic();
        let lab = Self { name: format!("{PREFIX}{}", process::id()), hosts };
        let switch = lab.switch();
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add br0 type bridge"))?;
        ip(&format!("-n {switch} link set br0 up"))?;
        for host in 0..hosts {
            lab.plug_in(host, link, cubic)?;
        }
        Ok(lab)
    }

    /// How to start programs on the hosts, and their addresses.
    pub fn hosts(&self) -> Vec<Host> {
        (0..self.hosts)
            .map(|host| Host {
                enter: ["ip", "netns", "exec"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain([self.host(host)])
                    .collect(),
                address: address(host).into(),
            })
            .collect()
    }

    fn plug_in(&self, host: u32, link: Link, cubic: bool) -> Outcome<()> {
        let (name, switch, port) = (self.host(host), self.switch(), format!("port{host}"));
        ip(&format!("netns add {name}"))?;
        ip(&format!(
            "-n {switch} link add {port} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {name}"
        ))?;
        for (namespace, device) in [(&switch, port.as_str()), (&name, "eth0")] {
            if let Some(bytes) = link.gso_bytes {
                ip(&format!("-n {namespace} link set {device} gso_max_size {bytes}"))?;
            }
            let limit = link.shaper_bits() / 8 * QUEUE_MS / 1_000 + link.burst_bytes;
            run(&format!(
                "tc -n {namespace} qdisc add dev {device} root tbf rate {}bit burst {} limit {limit}",
                link.shaper_bits(),
                link.burst_bytes
            ))?;
        }
        ip(&format!("-n {switch} link set {port} master br0 up"))?;
        ip(&format!("-n {name} addr add {}/16 dev eth0", address(host)))?;
        ip(&format!("-n {name} link set lo up"))?;
        ip(&format!("-n {name} link set eth0 up"))?;
        if cubic {
            let path = "/proc/sys/net/ipv4/tcp_congestion_control";
            command(&["ip", "netns", "exec", &name, "sh", "-c", &format!("echo cubic > {path}")])?;
        }
        Ok(())
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    fn host(&self, host: u32) -> String {
        format!("{}-host{host}", self.name)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Devices and queues go with their namespaces. What was never made is not missed.
        for name in (0..self.hosts).map(|host| self.host(host)).chain([self.switch()]) {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn address(host: u32) -> Ipv4Addr {
    let [.., high, low] = (host + 1).to_be_bytes();
    Ipv4Addr::new(10, 77, high, low)
}

/// Removes namespaces of runs whose process is gone.
fn remove_leftovers() -> Outcome<()> {
    for line in ip("netns list")?.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let owner = rest.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            ip(&format!("netns del {name}"))?;
        }
    }
    Ok(())
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

fn ip(arguments: &str) -> Outcome<String> {
    run(&format!("ip {arguments}"))
}

/// Runs a command of words without spaces in them.
fn run(line: &str) -> Outcome<String> {
    command(&line.split_whitespace().collect::<Vec<_>>())
}

fn command(words: &[&str]) -> Outcome<String> {
    let output = process::Command::new(words[0]).args(&words[1..]).output().map_err(|error| {
        format!("cannot run {} ({error}); install the package iproute2", words[0])
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` failed: {}", words.join(" "), reason.trim()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_carries_its_rate_of_payload_and_a_whole_packet() {
        let link = Link::of_rate(1_000);
        assert_eq!(link.shaper_bits(), 1_045_580_110);
        assert_eq!(link.burst_bytes, 250_000);
        assert_eq!(Link::of_rate(125).burst_bytes, GSO_BYTES);
    }

    #[test]
    fn hosts_have_addresses_of_their_own() {
        assert_eq!(address(0), Ipv4Addr::new(10, 77, 0, 1));
        assert_eq!(address(255), Ipv4Addr::new(10, 77, 1, 0));
    }

    /// With root: makes a lab, and sees that nothing is left of it. Without: says so.
    #[test]
    fn a_lab_leaves_nothing_behind() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: network namespaces need root");
            return;
        }
        let lab = match Lab::create(2, Link::of_rate(100).with_small_burst()) {
            Ok(lab) => lab,
            Err(error) => {
                println!("skipped: this system makes no network namespaces ({error})");
                return;
            }
        };
        let name = lab.name.clone();
        assert_eq!(lab.hosts().len(), 2);
        assert!(ip("netns list").unwrap().contains(&name));
        drop(lab);
        assert!(!ip("netns list").unwrap().contains(&name));
    }
}
