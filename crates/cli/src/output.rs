//! Output files and standard output of a command.
//!
//! A command never writes to a file that it reads, under any name. Output files are opened last, after all other
//! checks, and truncated only if they are not among the files in use.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};

use crate::{failure::Failure, standard_output};

/// Files that a command reads or replaces, each with a description.
#[derive(Debug, Default)]
pub struct InUse {
    files: Vec<(String, PathBuf)>,
    /// Copies of receivers on this machine; a copy may be a directory.
    copies: Vec<(String, PathBuf)>,
}

impl InUse {
    /// Adds a file, which may not exist yet.
    pub fn add(&mut self, what: impl Into<String>, path: impl Into<PathBuf>) {
        self.files.push((what.into(), path.into()));
    }

    /// Adds a host file, if given.
    pub fn add_hosts_file(&mut self, path: Option<&PathBuf>) {
        if let Some(path) = path.filter(|path| path.as_os_str() != "-") {
            self.add("--hosts-file", path);
        }
    }

    /// Adds the copy of a receiver on this machine. Errors: it would replace a file in use.
    pub fn add_copy(&mut self, host: &str, destination: &Path) -> Result<(), Failure> {
        let found = fs::metadata(destination).ok().filter(Metadata::is_file);
        if let Some((what, _)) = found.and_then(|there| self.find(there.dev(), there.ino())) {
            let destination = destination.display();
            return Err(Failure::Usage(format!(
                "the copy of {host}, {destination}, would replace {what}; choose another --dest"
            )));
        }
        self.copies.push((format!("the copy of {host}"), destination.to_owned()));
        Ok(())
    }

    /// The entry for this file, under any name.
    fn find(&self, device: u64, inode: u64) -> Option<&(String, PathBuf)> {
        self.files.iter().chain(&self.copies).find(|(_, path)| {
            fs::metadata(path).is_ok_and(|known| (known.dev(), known.ino()) == (device, inode))
        })
    }

    /// The copy that contains this path.
    fn around(&self, path: &Path) -> Option<&(String, PathBuf)> {
        let path = fs::canonicalize(path).ok()?;
        self.copies.iter().find(|(_, copy)| {
            fs::canonicalize(copy).is_ok_and(|copy| copy.is_dir() && path.starts_with(copy))
        })
    }

    /// Errors: standard output is one of these files.
    pub fn check_standard_output(&self) -> Result<(), Failure> {
        let Ok(stat) = fstat(io::stdout()) else { return Ok(()) };
        let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
        match self.find(stat.st_dev, stat.st_ino) {
            Some((what, path)) if is_file => Err(Failure::Misdirected(format!(
                "standard output is {}, which is {what}; redirect it to another file",
                path.display()
            ))),
            _ => Ok(()),
        }
    }
}

/// Opens the file that `option` names for writing and truncates it. Permissions, owner and links are kept; pipes and
/// devices are permitted.
///
/// Must be called after all other checks. Errors: the file is in use; errors of the system.
pub fn create(option: &str, path: &Path, in_use: &InUse) -> Result<File, Failure> {
    let failed = |error| Failure::Io(format!("{option} {}", path.display()), error);
    let is_new = matches!(fs::metadata(path), Err(error) if error.kind() == ErrorKind::NotFound);
    // Opening a FIFO without a reader must not block.
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if let Err(refused) = check(option, path, &metadata, in_use) {
        if is_new {
            // The path was the destination of a copy that did not exist.
            let _ = fs::canonicalize(path).and_then(fs::remove_file);
        }
        return Err(refused);
    }
    if metadata.is_file() {
        file.set_len(0).map_err(failed)?;
    }
    let flags = fcntl_getfl(&file).map_err(|error| failed(error.into()))?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
    Ok(file)
}

fn check(option: &str, path: &Path, opened: &Metadata, in_use: &InUse) -> Result<(), Failure> {
    if !opened.is_file() {
        return Ok(());
    }
    let known = in_use.find(opened.dev(), opened.ino()).map(|known| ("", known));
    let known = known.or_else(|| in_use.around(path).map(|copy| ("a file in ", copy)));
    let Some((within, (what, same))) = known else { return Ok(()) };
    let path = path.display();
    let same = if same.as_os_str() == path.to_string().as_str() {
        String::new()
    } else {
        format!(" (by the name {})", same.display())
    };
    Err(Failure::Usage(format!(
        "{option} {path} would overwrite {within}{what}{same}; name another file"
    )))
}

/// Writes to standard output. A closed pipe is no error.
///
/// Errors: [`Failure::Output`], for any other reason.
pub fn print(write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) -> Result<(), Failure> {
    standard_output::write(write).map_err(|error| Failure::Output("standard output".into(), error))
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn files_in_use_are_refused_by_any_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("input"), "precious").unwrap();
        fs::hard_link(at("input"), at("hard")).unwrap();
        symlink("input", at("soft")).unwrap();
        symlink("coming", at("ahead")).unwrap();
        let mut in_use = InUse::default();
        in_use.add("the input", at("input"));
        in_use.add("the copy", at("coming"));
        fs::create_dir_all(at("tree/d")).unwrap();
        fs::write(at("tree/d/file"), "precious").unwrap();
        symlink("tree", at("link")).unwrap();
        in_use.add_copy("a", &at("link")).unwrap();
        for name in ["input", "hard", "soft", "coming", "ahead", "tree/d/file", "tree/d/new"] {
            let refused = create("--out", &at(name), &in_use).unwrap_err();
            assert!(matches!(refused, Failure::Usage(_)), "{name}: {refused:?}");
        }
        for name in ["input", "tree/d/file"] {
            assert_eq!(fs::read(at(name)).unwrap(), b"precious");
        }
        assert!(!at("tree/d/new").exists());
        assert!(!at("coming").exists());

        fs::write(at("old"), "longer than what comes").unwrap();
        fs::hard_link(at("old"), at("other name")).unwrap();
        create("--out", &at("old"), &in_use).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read(at("other name")).unwrap(), b"new");
        create("--out", Path::new("/dev/null"), &in_use).unwrap().write_all(b"new").unwrap();
    }

    #[test]
    fn a_pipe_without_a_reader_does_not_block() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let refused = create("--out", &path, &InUse::default()).unwrap_err();
        assert!(matches!(refused, Failure::Io(..)), "{refused:?}");
    }
}
