//! Runs `rdmc plan --collective`.

use std::io::{BufWriter, Write};

use collective::model::WriteCosts;

use super::{
    explain::Explanation,
    json,
    options::{Operation, Options},
    plan::Plan,
    text,
};
use crate::{failure::Failure, output};

/// The requested plan.
pub struct Request<'a> {
    pub options: &'a Options,
    pub members: u32,
    pub root: u32,
    pub bytes: Option<u64>,
    pub explain: bool,
    pub json: bool,
}

/// Prints the operation, or compares ways.
pub fn run(request: &Request<'_>) -> Result<(), Failure> {
    let Some(operation) = request.options.collective else { return Ok(()) };
    if !operation.folds() && request.options.degree.is_some() {
        let text = format!("a {} has no --degree; leave it out", operation.name());
        return Err(Failure::Usage(text));
    }
    let costs = request.options.costs.unwrap_or(WriteCosts::TCP);
    if request.explain {
        return explain(operation, request, &costs);
    }
    let plan = plan(operation, request, &costs)?;
    plan.check_size()?;
    output::print(|out| {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let written = if request.json {
            json::write(&plan, request.bytes, &mut out)
        } else {
            text::write(&plan, request.bytes, &mut out)
        };
        written.and_then(|()| out.flush())
    })
}

/// The plan by trees of the given degree, or by the library's way; without a length, the way for the shortest message.
fn plan(operation: Operation, request: &Request<'_>, costs: &WriteCosts) -> Result<Plan, Failure> {
    let degree = request.options.degree;
    if degree.is_none() && request.bytes.is_none() && operation.folds() {
        return Err(Failure::Usage(format!(
            "{} needs --degree, or --bytes, for which the library chooses a way",
            operation.name()
        )));
    }
    let bytes = request.bytes.unwrap_or(0);
    let plan = Plan::new(operation, request.members, request.root, bytes, costs)?;
    Ok(if degree.is_some() { plan.by_trees(degree) } else { plan })
}

fn explain(operation: Operation, request: &Request<'_>, costs: &WriteCosts) -> Result<(), Failure> {
    let bytes = request.bytes.unwrap_or(0);
    let explanation = Explanation::new(operation, request.members, bytes, costs)?;
    output::print(
        |out| {
            if request.json { explanation.write_json(out) } else { explanation.write(out) }
        },
    )
}
