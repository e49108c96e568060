//! `rdmc-lab up`.

use lab::{Error, Lab, LabSettings, Link, Rate, SlowHost, SlowLink};
use plan::size;

use crate::terminal::{Which, print, print_json, watch_signals};

const EXAMPLES: &str = "\
Examples:
  rdmc-lab up --hosts 16 --rate 250mbit
  rdmc-lab up --name racks --hosts 16 --rate 250mbit --racks 4 --uplink 500mbit
  rdmc-lab up --name odd --hosts 8 --rate 500mbit --slow 3:100mbit --slow-link 2-7:125mbit

Two cores carry 4 Gbit/s in sum: 1gbit for 4 hosts, 500mbit for 8, 250mbit for 16. Rates are of TCP payload.";

/// Make a lab: all of it, or nothing when something goes wrong or a signal comes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: Which,

    /// How many hosts: 1 to 1000. They are called 0, 1, 2 and so on
    #[arg(long, value_name = "N")]
    hosts: u32,

    /// Rate of each host's link in each direction, as in 250mbit or 1gbit
    #[arg(long, value_name = "RATE")]
    rate: Rate,

    /// Put the hosts into this many racks of equal size, neighbours together
    #[arg(long, value_name = "N", default_value_t = 1, requires = "uplink")]
    racks: u32,

    /// Rate of the link between each rack and the others
    #[arg(long, value_name = "RATE", requires = "racks")]
    uplink: Option<Rate>,

    /// A host whose link has another rate; may be given again
    #[arg(long, value_name = "HOST:RATE")]
    slow: Vec<SlowHost>,

    /// Two hosts that reach each other with this rate only; may be given again
    #[arg(long, value_name = "HOST-HOST:RATE")]
    slow_link: Vec<SlowLink>,

    /// What each link lets through at once after a pause. Default: 2 ms of its rate, at least 65 KiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    burst: Option<u64>,

    /// The same as --burst 18kB: large bursts hide store-and-forward
    #[arg(long, conflicts_with = "burst")]
    small_burst: bool,

    /// The longest packet of each link, without its Ethernet header
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u32,

    /// How long a packet may wait at each port of a link, in ms, before others are dropped
    #[arg(long, value_name = "MS", default_value_t = 50)]
    queue: u64,

    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    fn settings(&self) -> LabSettings {
        let link = |rate| {
            let link =
                Link { rate, burst_bytes: self.burst, mtu_bytes: self.mtu, queue_ms: self.queue };
            if self.small_burst { link.with_small_burst() } else { link }
        };
        LabSettings {
            racks: self.racks,
            uplink: self.uplink.map(link),
            slow_hosts: self.slow.clone(),
            slow_links: self.slow_link.clone(),
            ..LabSettings::new(self.hosts, link(self.rate))
        }
    }
}

/// Makes the lab, and prints the commands to use it.
pub fn run(args: &Args) -> Result<(), Error> {
    let stop = watch_signals()?;
    let settings = args.settings();
    let lab = Lab::up(&args.which.name, &settings, &stop)?;
    if args.json {
        return print_json(&serde_json::json!({ "name": lab.name(), "settings": settings }));
    }
    let racks = match settings.uplink {
        Some(uplink) => format!(" in {} racks with uplinks of {}", settings.racks, uplink.rate),
        None => String::new(),
    };
    let name = match lab.name() {
        "lab" => String::new(),
        other => format!(" --name {other}"),
    };
    print(&format!(
        "{}: {} hosts{racks}, links of {}\n  rdmc-lab exec{name} 0 -- COMMAND   runs a command on host 0\n  \
         rdmc-lab check{name}               measures the links\n  rdmc-lab down{name}                removes it\n",
        lab.name(),
        settings.hosts,
        settings.link.rate,
    ))
}
