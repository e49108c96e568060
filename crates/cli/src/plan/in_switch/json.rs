//! The tree and the loads as one JSON object; docs/internals/in-switch.md describes its fields.

use std::io::{self, Write};

use super::report::Report;
use crate::json;

/// Writes the report on one line.
pub fn write(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    json::write_line(out, report)
}
