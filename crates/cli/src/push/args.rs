//! Options of `rdmc push`.

use std::{net::SocketAddr, path::PathBuf};

use clap::builder::NonEmptyStringValueParser;
use files::KeptAttributes;
use plan::size;
use rdmc::Fabric;

use super::selection::Patterns;
use crate::{
    config,
    help::{EXPERTS, LISTENING, REPORTS, STARTING, TREES, USUAL},
    hosting::{Hosting, parse_fabric},
    progress::Mode,
    transfer::{OrAuto, TransferOptions},
};

const EXAMPLES: &str = "\
Examples:
  rdmc push model.safetensors --to node[01-16]
      to the same path on 16 hosts, over ssh (with rdmc installed there, or --copy-self)
  rdmc push image.img --to a,b --dest /srv/images/ --remote-rdmc /opt/rdmc/bin/rdmc
      into a directory; rdmc is not in the hosts' PATH
  rdmc push image.img --to a,b --dest /srv/new/ --copy-self --mkdir
      to hosts without rdmc, into a directory that is created if missing
  rdmc push data.tar --to n[1-4] --dest '/scratch/{host}/data.tar' --launcher 'ip netns exec {host}'
      with another launcher: any command that runs a program on a host and forwards standard input
  rdmc push data.tar --to a:7000,b:7000 --secret-file secret
      to receivers started by `rdmc receive --listen` with the same secret
  rdmc push data.tar --to a:7000,b:7000 --cert login1.pem --key login1.key --ca ca.pem
      the same with certificates; `rdmc help receive` has the commands for the hosts
  rdmc push data.tar --to a,b --admit 0.0.0.0:7001 --secret-file secret
      and to receivers that join while it runs: rdmc receive --join ROOT:7001 --secret-file secret --dir DIR
  rdmc push model.safetensors --to a:7000,b:7000 --switch tor-a:4790 --cert login1.pem --key login1.key --ca ca.pem
      let switches copy what this machine sends once (`rdmc help switch run`); receivers relay if they cannot
  rdmc push models--org--name checkpoints/ --to node[01-16] --dest /models --exclude '*.tmp'
      directories and files under their names; a trailing / means the contents of a directory
  rdmc push hf://org/model --to node[01-16] --dest /models
  rdmc push s3://bucket/runs/7 --to node[01-16] --dest /scratch
      what lies elsewhere, without a copy on this machine
  tar c run | rdmc push - --to a:7000,b:7000 --secret-file secret
      a stream, to `rdmc receive --listen IP:7000 --secret-file secret --stdout | tar x`
  docker save app:2 | rdmc push - --to node[01-16] --pipe-to 'docker load'
  tar c run | rdmc push - --to node[01-16] --pipe-to 'tar x -C /scratch'
      a stream, to a command on each host
  rdmc push data.tar --slurm --dest /tmp/
      in a Slurm job: to all its nodes, as sbcast does
  rdmc push data.tar --local 3
      to three receivers on this machine, as a test

A file appears under its name only when it is complete, verified and on disk, and atomically replaces
a file of that name; an existing file with the same contents is verified and kept. A new directory
appears as a whole; an existing one is updated entry by entry. Mode and modification time are
preserved. Only one push at a time may write a destination; hosts that would write the same file are
refused. If a host fails, the others continue. A lost host keeps its partial copy: the same command,
or --retry, sends it only the rest.

Exit codes, independent of whether the summary can be printed:
  0    every host has a verified copy
  1    no host has a copy; standard error has the reasons
  2    invalid arguments; nothing was started
  3    some hosts have a copy; standard error names the others
  4    every host has a copy, but --trace could not be written
  130  interrupted (SIGINT, SIGTERM, SIGHUP) before every host had a copy; standard error names the
       hosts that have, or may have, a copy

An interrupted push waits up to 10 s for hosts that are publishing their copies, unless it is
interrupted again. Other hosts keep their partial copies for the next push.

With --json, standard output always has one object. exit_code is the exit code; error is the reason
why the whole push failed, or null.";

/// Attributes that copies get from their sources, besides modes and times.
#[derive(Clone, Copy, Default, Debug, clap::Args)]
#[command(next_help_heading = TREES)]
#[expect(clippy::struct_excessive_bools, reason = "an option each")]
pub struct AttributeOptions {
    /// Keep the owners of the sources; needs root on the hosts
    ///
    /// Users are matched by name, or by number if a host lacks the name. A host that cannot keep an attribute requested by this or
    /// the next three options is reported before anything is sent to it, and gets no copy.
    #[arg(long)]
    pub owner: bool,

    /// Keep the groups of the sources; a receiver that is not root can set only groups of its own user
    #[arg(long)]
    pub group: bool,

    /// Keep POSIX access lists, and remove those that only a copy has
    #[arg(long)]
    pub acls: bool,

    /// Keep user.* extended attributes, and remove those that only a copy has
    #[arg(long)]
    pub xattrs: bool,

    /// Match users and groups by number, not by name
    #[arg(long)]
    pub numeric_ids: bool,
}

impl AttributeOptions {
    pub fn kept(self) -> KeptAttributes {
        let Self { owner, group, acls, xattrs, numeric_ids } = self;
        KeptAttributes { user: owner, group, access: acls, extended: xattrs, numbers: numeric_ids }
    }

    /// The first of these options that was given.
    pub fn option(self) -> Option<&'static str> {
        let Self { owner, group, acls, xattrs, numeric_ids } = self;
        let all = [
            (owner, "--owner"),
            (group, "--group"),
            (acls, "--acls"),
            (xattrs, "--xattrs"),
            (numeric_ids, "--numeric-ids"),
        ];
        all.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }
}

/// Replicate files and directories to many hosts
#[derive(Debug, clap::Args)]
#[command(after_long_help = config::help(EXAMPLES), next_help_heading = USUAL)]
#[command(group = clap::ArgGroup::new("where").required(true).multiple(true))]
pub struct Args {
    /// Files or directories to replicate, or a URL; - for standard input
    ///
    /// A directory goes into the destination under its name; with a trailing /, the destination becomes its copy. Modes
    /// (without set-user-id and set-group-id), times, links and holes are kept; a link to a file outside becomes that file
    /// (see --links). Files that a host already has (same length and time) are not sent; entries that only the host has are
    /// not touched. Temporary files and locks of receivers are left out.
    ///
    /// What lies at a URL (https://HOST/PATH, s3://BUCKET/KEY, hf://ORG/MODEL@REVISION) is fetched once and relayed while it comes (docs/guide/remote.md).
    #[arg(help_heading = None::<&str>, required = true, value_name = "SOURCE")]
    pub sources: Vec<PathBuf>,

    /// Hosts, with ranges: node[01-16],login,n[1,3,5-8]
    ///
    /// HOST:PORT is a receiver that listens (`rdmc help receive`).
    #[arg(long, value_name = "HOSTS", group = "where")]
    pub to: Option<String>,

    /// File with a host or a list of hosts per line; - for standard input
    ///
    /// # starts a comment, a line [NAME] a rack. Slots of MPI host files (node1 slots=8) are ignored.
    #[arg(long, value_name = "FILE", group = "where")]
    pub hosts_file: Option<PathBuf>,

    /// Push to the nodes of the Slurm job that this command runs in, with srun
    ///
    /// Racks are the leaf switches of Slurm's topology. rdmc must be in the nodes' PATH, or at --remote-rdmc (docs/guide/slurm.md).
    #[arg(long, group = "where", conflicts_with_all = ["to", "hosts_file", "local", "launcher", "copy_self", "launch_depth"],
          help_heading = STARTING)]
    pub slurm: bool,

    /// Start N receivers on this machine, named local-1 to local-N
    #[arg(long, value_name = "N", group = "where", conflicts_with_all = ["to", "hosts_file"],
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub local: Option<u16>,

    /// Path of the copies; {host} is the host's name, a trailing / means a directory
    ///
    /// With a directory or several sources, the directory that they go into. ~/ is the home directory at the host. Default: the
    /// same absolute path; the source's name at receivers that listen; ./rdmc-local/{host}/NAME with --local.
    #[arg(long, value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub dest: Option<String>,

    /// Retry a lost host up to N times; it keeps its partial copy
    ///
    /// If N is not 0, retries continue beyond N while other hosts receive, with delays that grow from 0.25 to 30 seconds.
    /// A host that could not connect to another one gets its copy from this machine, after the others.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub retry: u32,

    /// Defer hosts that slow the transfer to less than RATE, such as 100mbit; they get their copies last
    #[arg(long, value_name = "RATE", value_parser = size::parse_rate)]
    pub min_rate: Option<u64>,

    /// Network for blocks: auto, tcp, verbs, shm, ... (`rdmc doctor` lists those of this host)
    ///
    /// auto: the best that all hosts have. Others: tcp, and the libfabric providers verbs, efa, cxi, shm, sockets and
    /// ofi-tcp, optionally with devices of this host, as in verbs:mlx5_0,mlx5_1.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_fabric)]
    pub fabric: OrAuto<Fabric>,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Print neither progress nor summary; failures are still printed to standard error
    #[arg(short, long)]
    pub quiet: bool,

    /// Send a file that is still being written, until it is complete
    ///
    /// The file counts as complete 5 s after a writer has closed it, if nothing has been written since, or when it is renamed or
    /// removed. It is then compared with what was sent.
    #[arg(long, help_heading = TREES)]
    pub follow: bool,

    /// For streams: run this shell command on each host, with the verified stream as standard input
    ///
    /// Instead of --dest, and only with receivers that this command starts. RDMC_HOST is the host's name. The exit status and the
    /// last line of output are the host's result. If the stream ends early or cannot be verified, the command's process group is
    /// killed before it sees the end of its input.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["dest", "mkdir"], value_parser = NonEmptyStringValueParser::new(),
          help_heading = TREES)]
    pub pipe_to: Option<String>,

    /// With --follow: the file is complete after this time without a write, even if it is open; 0: when a writer closes it
    #[arg(long, value_name = "SECONDS", requires = "follow", value_parser = clap::value_parser!(u64).range(..=604_800),
          help_heading = TREES)]
    pub follow_idle: Option<u64>,

    /// Send nothing; print what each host lacks, with --verbose each entry
    #[arg(short = 'n', long, help_heading = TREES)]
    pub dry_run: bool,

    #[command(flatten)]
    pub patterns: Patterns,

    /// Send all symbolic links unchanged
    ///
    /// By default a link to a file outside the source becomes that file; links to directories outside and broken links are
    /// refused.
    #[arg(long, help_heading = TREES)]
    pub links: bool,

    #[command(flatten)]
    pub attributes: AttributeOptions,

    /// Compare existing files by contents instead of length and time
    #[arg(long, help_heading = TREES)]
    pub checksum: bool,

    /// Replace an existing directory in one step, instead of updating it entry by entry
    ///
    /// Refused before anything is sent if the file system cannot do it. Entries that only the host has are then moved into the
    /// new directory.
    #[arg(long, help_heading = TREES)]
    pub atomic: bool,

    /// Remove entries of the pushed directories that only the hosts have
    ///
    /// As in rsync, excluded entries are kept, and a source without a trailing / removes only entries of its own copy.
    /// Entries that appear during the push are kept. --dry-run shows what would be removed.
    #[arg(long, help_heading = TREES)]
    pub delete: bool,

    /// Publish copies only when every host has one that is verified and on disk; if a host fails before that, none has a copy
    ///
    /// Hosts keep what they have received for the next push. A host that is lost while all publish is named; the next push
    /// publishes its copy.
    #[arg(long, help_heading = TREES)]
    pub all_or_none: bool,

    /// These hosts of the push have the same already, and each sends a share of it beside this machine, whose link then is not the limit
    ///
    /// As --to. What they have is compared first; of directories that needs --checksum. A host that lacks it gets a copy as the others.
    #[arg(long, value_name = "HOSTS", help_heading = EXPERTS)]
    pub source_hosts: Option<String>,

    /// Each host reads a share of the URL itself, and all exchange what they read: for sources that give several hosts more than one
    ///
    /// Hosts find their own credentials, as this machine does (docs/guide/remote.md). Only receivers that this push starts take part. At
    /// most eight hosts read at once; this machine reads none of the contents.
    #[arg(long, conflicts_with_all = ["source_hosts", "min_rate"], help_heading = EXPERTS)]
    pub together: bool,

    /// Lay out hf://ORG/NAME as the cache of the hub's tools, in the directory models--ORG--NAME
    ///
    /// With `--dest '~/.cache/huggingface/hub'`, programs at the hosts then find it by its name (HF_HUB_OFFLINE=1). Without this
    /// option the copy is a plain directory of the files.
    #[arg(long, conflicts_with_all = ["exclude", "include"], help_heading = TREES)]
    pub hub_cache: bool,

    /// No effect: directories are updated entry by entry by default
    #[arg(long, hide = true, conflicts_with = "atomic")]
    pub inplace: bool,

    /// End, as on SIGTERM, when this process ends; for programs that run this command
    #[arg(long, value_name = "PID", hide = true)]
    pub end_with: Option<u32>,

    #[command(flatten)]
    pub hosting: Hosting,

    /// Create missing directories for the copies, with the mode given by the host's umask
    #[arg(long, help_heading = STARTING)]
    pub mkdir: bool,

    /// Leave this machine out if it is one of the hosts
    #[arg(long, conflicts_with = "local", help_heading = STARTING)]
    pub exclude_self: bool,

    /// Listen on this address for receivers that join during the push, with `rdmc receive --join`
    ///
    /// Receivers that joined earlier relay to them what they already have.
    #[arg(long, value_name = "IP:PORT", requires = "credentials", help_heading = LISTENING)]
    pub admit: Option<SocketAddr>,

    /// Format of the progress on standard error
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Mode::Auto, help_heading = REPORTS)]
    pub progress: Mode,

    #[command(flatten, next_help_heading = EXPERTS)]
    pub transfer: TransferOptions,

    /// Size of each rack (overrides --hosts-file), in the order this machine, first host, second host, ...
    ///
    /// 4,4,2 puts this machine and the first three hosts into one rack.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', help_heading = EXPERTS)]
    pub racks: Option<Vec<u32>>,

    /// Oversubscription of racks, for the choice of algorithm: hosts of a rack can send N times what its uplink carries [default: 4]
    ///
    /// No effect unless hosts are in several racks (--racks, --hosts-file, --slurm).
    #[arg(long, value_name = "N", value_parser = crate::transfer::oversubscription, help_heading = EXPERTS)]
    pub oversubscription: Option<f64>,

    /// Offload relaying to the network, so that a stopped receiver process does not delay others
    ///
    /// Supported by the fabrics sockets (in software) and cxi; over others, processes relay and a message is printed.
    #[arg(long, help_heading = EXPERTS)]
    pub offload: bool,

    /// Agent of this machine's first switch: switches copy what this machine sends once
    ///
    /// Receivers relay if switches cannot copy (`rdmc help switch run`). Needs --cert, --key and --ca, and root or RDMA
    /// devices at all hosts. Receivers must listen (HOST:PORT) and have certificates: those started over ssh have none.
    #[arg(long, value_name = "HOST:PORT", requires = "cert", conflicts_with = "bwlimit",
          help_heading = EXPERTS)]
    pub switch: Option<String>,
}
