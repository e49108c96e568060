//! Results as JSON, for programs.

use std::io::{self, Write};

use serde::Serialize;

/// The version of all objects that commands print. It changes when a field is removed, renamed or changes its meaning; new
/// fields do not change it (docs/reference/exit-codes.md).
const SCHEMA: u32 = 1;

/// A result, preceded by the version.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    result: &'a T,
}

impl<'a, T> Versioned<'a, T> {
    fn new(result: &'a T) -> Self {
        Self { schema: SCHEMA, result }
    }
}

/// Writes an object on one line. `result` must be a struct or a map.
pub fn write_line<T: Serialize>(out: &mut impl Write, result: &T) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Versioned::new(result))?;
    writeln!(out)
}

/// Writes an object on several lines. `result` must be a struct or a map.
pub fn write_pretty<T: Serialize>(out: &mut impl Write, result: &T) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Versioned::new(result))?;
    writeln!(out)
}

/// An object as text on one line, without the line end. `result` must be a struct or a map with serializable values.
pub fn to_line<T: Serialize>(result: &T) -> String {
    serde_json::to_string(&Versioned::new(result)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_begin_with_their_version() {
        #[derive(Serialize)]
        struct Result {
            steps: Vec<u32>,
        }
        let mut line = Vec::new();
        write_line(&mut line, &Result { steps: vec![1, 2] }).unwrap();
        assert_eq!(line, b"{\"schema\":1,\"steps\":[1,2]}\n");
        let mut lines = Vec::new();
        write_pretty(&mut lines, &serde_json::json!({"steps": 3})).unwrap();
        assert_eq!(lines, b"{\n  \"schema\": 1,\n  \"steps\": 3\n}\n");
        assert!(write_line(&mut Vec::new(), &[1, 2]).is_err(), "a list has no place for it");
    }
}
