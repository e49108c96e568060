//! Small input files.

use std::{
    fs::File,
    io::{self, Read},
    mem,
    path::Path,
};

use plan::size;
use zeroize::Zeroizing;

use crate::failure::Failure;

/// The maximum length of lists of hosts and of topologies.
pub const LIST_BYTES_MAX: u64 = 16 << 20;
/// The maximum length of secrets.
pub const SECRET_BYTES_MAX: u64 = 4 << 10;

/// Reads a file (or pipe) of at most `bytes_max` bytes. The text is zeroed when dropped.
///
/// Errors: the file is longer, not UTF-8, or unreadable; each error names the path.
pub fn read(path: &Path, bytes_max: u64) -> Result<Zeroizing<String>, Failure> {
    read_opened(path, open(path)?, bytes_max)
}

/// Opens a file. Errors: it cannot be opened; names the path.
pub fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| Failure::Io(path.display().to_string(), error))
}

/// Like [`read`], from an open file.
pub fn read_opened(path: &Path, file: File, bytes_max: u64) -> Result<Zeroizing<String>, Failure> {
    let failed = |error: io::Error| Failure::Io(path.display().to_string(), error);
    let mut bytes = Zeroizing::new(Vec::new());
    // One more byte, to detect a longer file.
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        let (path, most) = (path.display(), size::show(bytes_max));
        return Err(Failure::Failed(format!(
            "{path} is longer than {most}; is it the right file?"
        )));
    }
    String::from_utf8(mem::take(&mut bytes))
        .map(Zeroizing::new)
        .map_err(|_| Failure::Failed(format!("{} is not UTF-8 text", path.display())))
}

/// Like [`read`]; the path `-` is standard input.
pub fn read_or_standard_input(path: &Path, bytes_max: u64) -> Result<Zeroizing<String>, Failure> {
    if path == Path::new("-") {
        read(Path::new("/dev/stdin"), bytes_max)
    } else {
        read(path, bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_that_are_too_long_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "12345678").unwrap();
        assert_eq!(*read(&path, 8).unwrap(), "12345678");
        let error = read(&path, 7).unwrap_err().to_string();
        assert!(error.contains("file is longer than 7 B"), "{error}");
        // The limit splits a character.
        fs::write(&path, "123456\u{e9}").unwrap();
        assert!(read(&path, 7).unwrap_err().to_string().contains("longer than 7 B"));
        fs::write(&path, [b'a', 0xff]).unwrap();
        assert!(read(&path, 7).unwrap_err().to_string().contains("not UTF-8 text"));
        let endless = read(Path::new("/dev/zero"), LIST_BYTES_MAX).unwrap_err().to_string();
        assert!(endless.contains("longer than 16 MiB"), "{endless}");
    }
}
