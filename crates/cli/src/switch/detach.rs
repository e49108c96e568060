//! `rdmc switch detach`: removes the program from a switch.

use std::path::PathBuf;

use data_plane::KernelPlane;

use crate::failure::{Failure, print_message};

/// Remove the kernel program and its groups from this switch (same privileges as `run`; end the agent first)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Ports, as given to the agent
    #[arg(long, value_name = "NAME,...", required = true, value_delimiter = ',')]
    ports: Vec<String>,

    /// Directory of the groups, as given to the agent
    #[arg(long, value_name = "DIR", default_value = super::run::DIRECTORY)]
    pin: PathBuf,
}

/// Removes the program and all groups.
pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.pin.is_dir() {
        let pin = args.pin.display();
        return Err(Failure::Failed(format!(
            "{pin} does not exist: no agent has run here, or it had another --pin"
        )));
    }
    let mut plane = KernelPlane::open(&args.pin).map_err(Failure::because)?;
    let mut failed = Vec::new();
    for port in &args.ports {
        // Continues with the other ports.
        if let Err(error) = plane.detach(port) {
            failed.push(error.to_string());
        }
    }
    plane.unpin().map_err(Failure::because)?;
    if failed.is_empty() {
        print_message(format_args!("{}: program removed", args.ports.join(", ")));
        return Ok(());
    }
    Err(Failure::Failed(failed.join("\n")))
}
