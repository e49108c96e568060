//! Members that relay late, with and without offload (DSN 2018 section 5.2.3 and Fig. 12).

mod args;
mod real;
mod simulated;

use crate::outcome::Outcome;

pub use args::Args;

pub fn run(args: &Args) -> Outcome<()> {
    if args.late >= args.members() {
        return Err(format!("there is no member {} of {}", args.late, args.members()).into());
    }
    match &args.fabric {
        None => simulated::run(args),
        Some(fabric) => real::run(args, fabric),
    }
}
