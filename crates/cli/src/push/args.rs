//! Options of `rdmc push`.

use std::{net::SocketAddr, path::PathBuf};

use clap::builder::NonEmptyStringValueParser;
use plan::size;
use rdmc::Fabric;

use crate::{
    hosting::{Hosting, parse_fabric},
    way::{OrAuto, Way},
};

const EXAMPLES: &str = "\
Examples:
  rdmc push model.safetensors --to node[01-16]
      to the same path on 16 hosts, by ssh (rdmc has to be installed there)
  rdmc push image.img --to a,b --dest /srv/images/ --remote-rdmc /opt/rdmc/bin/rdmc
      into a directory, with an rdmc that is not in the PATH there
  rdmc push data.tar --to n[1-4] --dest '/scratch/{host}/data.tar' --launcher 'ip netns exec {host}'
      with another launcher: anything that runs a command on a host and passes standard input on
  rdmc push data.tar --to a:7000,b:7000 --secret-file secret
      to receivers that were started by `rdmc receive --listen` with the same secret
  rdmc push data.tar --to a:7000,b:7000 --cert login1.pem --key login1.key --ca ca.pem
      the same with certificates: `rdmc help receive` has the other end
  rdmc push data.tar --to a,b --admit 0.0.0.0:7001 --secret-file secret
      also to receivers that come while it runs: rdmc receive --join ROOT:7001 --secret-file secret --dir DIR
  rdmc push model.safetensors --to a:7000,b:7000 --switch tor-a:4790 --cert login1.pem --key login1.key --ca ca.pem
      let switches copy what this machine sends once (`rdmc help switch run`); receivers relay if they cannot
  rdmc push data.tar --local 3
      to three receivers on this machine, to try it out

A copy appears under its name only when it is whole, verified and on disk; a file of that name is
replaced in one step, and one that is the same already is verified and stays. Mode and modification
time are kept. One push at a time writes a destination, and hosts that would write the same file are
refused. Hosts that fail are named, and the others go on with what is missing. A host that was lost
keeps what it has: running the same command again, or --retry, sends it only the rest.

Exit codes, whether or not somebody reads what is printed:
  0    every host has a verified copy
  1    no host has one; the reasons are named
  2    the arguments make no sense; nothing was begun
  3    some hosts have one; the others are named
  4    every host has one, but --trace could not be written
  130  interrupted (SIGINT, SIGTERM, SIGHUP) before every host had one; the hosts that have one, or may
       have one, are named

An interrupted push first waits up to 10 s for hosts that publish their copies just then, unless it is
interrupted again. What the others have received stays for the next push, as after a loss.

With --json there is one object on standard output in any case. Its exit_code is the same number; error says why
nothing was sent, or null.";

/// Replicate a file to many hosts
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("where").required(true).multiple(true))]
pub struct Args {
    /// The file to replicate
    pub file: PathBuf,

    /// Hosts, with ranges: node[01-16],login,n[1,3,5-8]. HOST:PORT is a receiver that listens
    #[arg(long, value_name = "HOSTS", group = "where")]
    pub to: Option<String>,

    /// A file of hosts, one or a list on each line; # starts a comment
    #[arg(long, value_name = "FILE", group = "where")]
    pub hosts_file: Option<PathBuf>,

    /// N receivers on this machine, named local-1 to local-N
    #[arg(long, value_name = "N", group = "where", conflicts_with_all = ["to", "hosts_file"],
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub local: Option<u16>,

    /// Path of the copy; {host} stands for the host, and the file's name is added to a path that
    /// ends with /. Default: the same absolute path, the file's name at receivers that listen, and
    /// ./rdmc-local/{host}/NAME with --local
    #[arg(long, value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub dest: Option<String>,

    #[command(flatten)]
    pub way: Way,

    /// The size of each rack in the order this machine, first host, second host, ...: 4,4,2 puts
    /// this machine and the first three hosts in one rack
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub racks: Option<Vec<u32>>,

    /// The network that blocks move over: auto (the best that all hosts have), tcp, or a libfabric
    /// provider: verbs, efa, cxi, shm, sockets, ofi-tcp; with devices of this host as in
    /// verbs:mlx5_0,mlx5_1. `rdmc doctor` lists what this host has
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_fabric)]
    pub fabric: OrAuto<Fabric>,

    /// Let the network relay by itself, so that a receiver whose program stands still delays nobody.
    /// The fabrics sockets (in software) and cxi can; over any other, programs relay, and rdmc says so
    #[arg(long)]
    pub offload: bool,

    /// How often a host that is lost is started (or called) again, after pauses that grow from a quarter
    /// of a second to half a minute; also oftener while others still receive. It keeps what it has
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub retry: u32,

    /// Where the hosts together come forward slower than this, such as 100mbit, the one that holds the
    /// others up is set aside, and gets its copy after them
    #[arg(long, value_name = "RATE", visible_alias = "drop-slower-than", value_parser = size::parse_rate)]
    pub min_rate: Option<u64>,

    /// The agent at this machine's first switch (`rdmc help switch run`): switches copy what this machine
    /// sends once, and receivers need not relay; they do if the switches cannot. Takes --cert, --key
    /// and --ca, and root or RDMA devices at all hosts
    #[arg(long, value_name = "HOST:PORT", requires = "cert")]
    pub switch: Option<String>,

    /// Let receivers in that are not named: wait at this address and port for `rdmc receive --join`.
    /// They get what there is already from others
    #[arg(long, value_name = "IP:PORT", requires = "credentials")]
    pub admit: Option<SocketAddr>,

    /// Print a summary as one JSON object
    #[arg(long)]
    pub json: bool,

    /// No progress and no summary; failures are still named on standard error
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten)]
    pub hosting: Hosting,
}
