//! `rdmc switch detach`: takes the program off a switch.

use std::path::PathBuf;

use data_plane::KernelPlane;

use crate::failure::{Failure, say};

/// Take the program off this switch's ports, and forget its groups (needs what `run` needs; end the agent before)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ports, as the agent had them
    #[arg(long, value_name = "NAME,...", required = true, value_delimiter = ',')]
    ports: Vec<String>,

    /// Where the kernel keeps the groups
    #[arg(long, value_name = "DIR", default_value = super::run::DIRECTORY)]
    pin: PathBuf,
}

/// Forgets all.
pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.pin.is_dir() {
        let pin = args.pin.display();
        return Err(Failure::Failed(format!(
            "{pin}: no agent has left anything there (see --pin)"
        )));
    }
    let mut plane = KernelPlane::open(&args.pin).map_err(Failure::because)?;
    let mut failed = Vec::new();
    for port in &args.ports {
        // The others all the same.
        if let Err(error) = plane.detach(port) {
            failed.push(error.to_string());
        }
    }
    plane.unpin().map_err(Failure::because)?;
    if failed.is_empty() {
        say(format_args!("{}: as before", args.ports.join(", ")));
        return Ok(());
    }
    Err(Failure::Failed(failed.join("\n")))
}
