//! What `rdmc doctor` has found.

use serde::Serialize;

use super::{
    checks::{self, Finding},
    machine::Machine,
};

/// All of it.
#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    pub fabric: Choice,
    pub findings: Vec<Finding>,
}

/// What `--fabric auto` takes if all other hosts have it too.
#[derive(Serialize)]
pub struct Choice {
    pub automatic: String,
    pub reason: String,
}

impl Report {
    pub fn of(machine: Machine) -> Self {
        let fabric = Choice {
            automatic: machine.fabrics.first().cloned().unwrap_or_else(|| "tcp".into()),
            reason: checks::choice(&machine),
        };
        Self { fabric, findings: checks::examine(&machine), machine }
    }
}
