//! Several pictures of one run, in files beside each other.

use std::path::{Path, PathBuf};

use charts::Chart;

use crate::outcome::Outcome;

/// Pictures with their names.
#[derive(Debug, Default)]
pub struct Pictures(Vec<(String, Chart)>);

impl Pictures {
    pub fn add(&mut self, name: impl Into<String>, chart: Chart) {
        self.0.push((name.into(), chart));
    }

    /// Draws each into a file of its own: FILE-NAME for FILE, FILE-NAME.svg for FILE.svg.
    pub fn write(&self, file: &Path) -> Outcome<()> {
        self.0.iter().try_for_each(|(name, chart)| Ok(chart.write(&named(file, name))?))
    }
}

fn named(file: &Path, name: &str) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let ending = file.extension().map_or(String::new(), |it| format!(".{}", it.to_string_lossy()));
    file.with_file_name(format!("{stem}-{name}{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_beside_each_other() {
        assert_eq!(named(Path::new("a/b.svg"), "c"), Path::new("a/b-c.svg"));
        assert_eq!(named(Path::new("a/svg"), "c"), Path::new("a/svg-c"));
    }
}
