//! `rdmc-lab list`, `hosts` and `down`.

use lab::{Error, Lab, Listed};
use serde_json::json;

use crate::terminal::{Which, print, print_json};

/// List the labs on this machine
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints them.
pub fn list(args: &ListArgs) -> Result<(), Error> {
    let labs = lab::list()?;
    if args.json {
        return print_json(&labs);
    }
    if labs.is_empty() {
        return print("no labs\n");
    }
    let mut text = format!("{:<20} {:<11} what it is\n", "name", "condition");
    for lab in &labs {
        text += &format!("{:<20} {:<11} {}\n", lab.name, lab.condition, described(lab));
    }
    print(&text)
}

fn described(lab: &Listed) -> String {
    let Some(settings) = &lab.settings else {
        return format!("{} namespaces", lab.namespaces);
    };
    let mut text = format!("{} hosts, {}", settings.hosts, settings.link.rate);
    if let Some(uplink) = settings.uplink {
        text += &format!(", {} racks, uplinks {}", settings.racks, uplink.rate);
    }
    for slow in &settings.slow_hosts {
        text += &format!(", host {} {}", slow.host, slow.rate);
    }
    for slow in &settings.slow_links {
        text += &format!(", link {}-{} {}", slow.hosts[0], slow.hosts[1], slow.rate);
    }
    text
}

const HOSTS_EXAMPLES: &str = "\
Example: a file from host 0 to all others
  rdmc-lab hosts --without 0 > hosts
  rdmc-lab exec 0 -- rdmc push FILE --hosts-file hosts --launcher 'ip netns exec {host}' --dest '/tmp/copies/{host}/'

All hosts share this machine's files, so that copies need places of their own.";

/// Print the hosts, one a line, as `rdmc push --hosts-file` takes them
#[derive(Debug, clap::Args)]
#[command(after_help = HOSTS_EXAMPLES)]
pub struct HostsArgs {
    #[command(flatten)]
    which: Which,

    /// Leave this host out; may be given again
    #[arg(long, value_name = "HOST")]
    without: Vec<u32>,

    /// Print JSON: also racks, rates, ports at the switch and what left through them, the switch's namespace and
    /// bridge, and the launcher
    #[arg(long)]
    json: bool,
}

/// Prints them.
pub fn hosts(args: &HostsArgs) -> Result<(), Error> {
    let lab = Lab::open(&args.which.name)?;
    let settings = lab.settings();
    let wanted = (0..settings.hosts).filter(|host| !args.without.contains(host));
    if args.json {
        let (ports, sent_bytes) = (lab.ports(), lab.sent_bytes()?);
        let hosts = wanted.map(|host| {
            json!({
                "host": host,
                "name": lab.host_name(host),
                "address": settings.address(host),
                "rack": lab.rack_of(host),
                "rate": settings.link_of(host).rate,
                "port": ports[host as usize],
                "sent_bytes": sent_bytes[host as usize],
            })
        });
        return print_json(&json!({
            "name": lab.name(),
            "launcher": "ip netns exec {host}",
            "switch": lab.switch_name(),
            "bridge": Lab::BRIDGE,
            "hosts": hosts.collect::<Vec<_>>(),
        }));
    }
    let mut text = String::from("# --launcher 'ip netns exec {host}'\n");
    for host in wanted {
        let (name, address, rack) =
            (lab.host_name(host), settings.address(host), lab.rack_of(host));
        text += &format!("{name:<24} # {address}, rack {rack}, {}\n", settings.link_of(host).rate);
    }
    print(&text)
}

/// Remove a lab, whole or not, and end all processes on its hosts
#[derive(Debug, clap::Args)]
pub struct DownArgs {
    #[command(flatten)]
    which: Which,

    /// All labs, and what benchmarks that were killed have left
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// Removes it.
pub fn down(args: &DownArgs) -> Result<(), Error> {
    if args.all {
        let names = lab::down_all()?;
        return print(&match names.is_empty() {
            true => "no labs\n".into(),
            false => format!("removed {}\n", names.join(", ")),
        });
    }
    let name = &args.which.name;
    let ended = lab::down(name)?;
    print(&match ended {
        0 => format!("removed {name}\n"),
        ended => format!("removed {name}, and ended {ended} processes on its hosts\n"),
    })
}
