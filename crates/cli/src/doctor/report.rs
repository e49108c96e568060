//! The report of `rdmc doctor`.

use serde::Serialize;

use super::{
    checks::{self, Finding},
    machine::Machine,
};

/// The JSON document.
#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    pub fabric: Choice,
    pub findings: Vec<Finding>,
}

/// The choice of `--fabric auto`, provided that all other hosts have the same fabric.
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
