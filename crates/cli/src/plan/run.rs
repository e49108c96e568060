//! Runs `rdmc plan`.

use std::io::{BufWriter, Write};

#[cfg(feature = "switch")]
use super::in_switch;
use super::{args::Args, explain, fetch, json, message::Plan, operation, table};
use crate::{
    failure::{Exit, Failure},
    output,
};

/// Prints the requested plan.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.in_switch.are_given() {
        show_in_switch(args)?;
    } else if args.operation.are_given() {
        operation::run(&operation::Request {
            options: &args.operation,
            members: args.members()?,
            root: args.root,
            bytes: args.bytes,
            explain: args.explain,
            json: args.json,
        })?;
    } else if let Some(arrivals) = args.fetch {
        fetch::run(args, arrivals)?;
    } else if args.explain {
        explain::run(args)?;
    } else {
        show(args)?;
    }
    Ok(Exit::Done)
}

#[cfg(feature = "switch")]
fn show_in_switch(args: &Args) -> Result<(), Failure> {
    in_switch::run(&args.in_switch, args.members, args.json)
}

#[cfg(not(feature = "switch"))]
fn show_in_switch(_: &Args) -> Result<(), Failure> {
    Err(crate::without_switch::lacks("plan --in-switch"))
}

fn show(args: &Args) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    output::print(|out| {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let written =
            if args.json { json::write(&plan, &mut out) } else { table::write(&plan, &mut out) };
        written.and_then(|()| out.flush())
    })
}
