//! `rdmc-lab exec`.

use std::{os::unix::process::CommandExt, process::ExitCode};

use lab::{Error, Lab};

use crate::terminal::Which;

const EXAMPLES: &str = "\
Examples:
  rdmc-lab exec 0 -- ip address
  rdmc-lab exec 3 -- iperf3 -s
  rdmc-lab exec rdmc-lab-3 -- bash    (hosts can be given by their whole names too)

Only the network is the host's own: files, processes and the host name are those of this machine.";

/// Run a command on a host, with this terminal; ends with the command's exit code
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: Which,

    /// Number of the host, or its name
    host: String,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Replaces this process by the command. Returns only if that cannot be started.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let lab = Lab::open(&args.which.name)?;
    let hosts = lab.hosts();
    let last = hosts.len() - 1;
    let mut numbered = (0..).zip(&hosts);
    let found = numbered
        .find(|(number, _)| args.host == number.to_string() || args.host == lab.host_name(*number));
    let Some((_, host)) = found else {
        let why =
            format!("there is no host {} in {}: hosts are 0 to {last}", args.host, lab.name());
        return Err(Error::Usage(why));
    };
    let mut command = host.command(&args.command[0]);
    command.args(&args.command[1..]);
    Err(Error::Failed(format!("cannot run ip, of the package iproute2: {}", command.exec())))
}
