//! `--copy-self`: a program that hosts get from their launcher.
//!
//! A shell at the host reads it from standard input into a directory of its own, verifies its digest, opens it, removes
//! the directory and runs the open file. So nothing is left once the program runs, whatever ends it;
//! until then the shell's trap removes the directory, also on SIGPIPE, which its message causes if ssh
//! was killed. The rest of standard input is sent after the shell's message that it has the program: some versions of
//! head(1) read more than requested.
//!
//! The program is sent over the same login, since a second one (scp) would double the slowest step. In a tree of logins each
//! host passes its own program on, so the root sends it only to the first.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{Context, SHA256};

use crate::failure::Failure;

/// What the shell prints on standard error when it has the program.
pub const COPIED: &str = "rdmc: copied";

/// Architectures by `e_machine` of the ELF header, as `uname -m` names them.
const MACHINES: [(u16, &str); 5] =
    [(62, "x86_64"), (183, "aarch64"), (243, "riscv64"), (21, "ppc64le"), (22, "s390x")];

/// The script's lines are joined with spaces. It has no single quotes or exclamation marks: some login shells do not pass them on.
const SCRIPT: &str = r#"
die() { echo "rdmc: $*" >&2; exit 1; };
m=$(uname -m);
[ "$m" = MACHINE ] || die "this host is $m and the program to copy is for MACHINE: give one for $m (--copy-self=PATH)";
u=$(umask); umask 077;
d=; trap "exit 1" HUP INT TERM PIPE; trap "rm -rf \"\$d\"" EXIT;
for t in "${TMPDIR:-/tmp}" /var/tmp "$HOME"; do
  d=$(mktemp -d "$t/rdmc-XXXXXXXXXX" 2>/dev/null) || continue;
  : >"$d/rdmc" && chmod 700 "$d/rdmc" && [ -x "$d/rdmc" ] && break;
  rm -rf "$d"; d=;
done;
[ "$d" ] || die "there is no directory for programs here (tried TMPDIR, /tmp, /var/tmp and HOME): set TMPDIR at this host";
head -c BYTES >"$d/rdmc" || die "cannot write the program to $d";
s=$({ sha256sum || shasum -a 256; } <"$d/rdmc" 2>/dev/null);
[ "$s" ] || die "needs sha256sum to verify the program: install it here, or rdmc";
[ "${s%% *}" = DIGEST ] || die "the program arrived incomplete or damaged";
exec 9<"$d/rdmc"; rm -rf "$d"; trap - EXIT HUP INT TERM PIPE; umask "$u";
echo "COPIED" >&2;
exec /proc/self/fd/9 "$@"
"#;

/// A program for hosts.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    bytes: u64,
    /// SHA-256, in hexadecimal digits.
    digest: String,
    machine: &'static str,
}

impl Program {
    /// This program, even if its file was replaced or removed.
    ///
    /// Errors: it cannot be read.
    pub fn own() -> Result<Self, Failure> {
        Self::at(Path::new("/proc/self/exe"))
    }

    /// The program in a file.
    ///
    /// Errors: it cannot be read, or is no program for Linux.
    pub fn at(path: &Path) -> Result<Self, Failure> {
        let failed = || Failure::while_doing(format!("--copy-self={}", path.display()));
        let mut file = File::open(path).map_err(failed())?;
        let (mut context, mut bytes, mut machine) = (Context::new(&SHA256), 0, None);
        let mut part = vec![0; 1 << 20];
        loop {
            let read = file.read(&mut part).map_err(failed())?;
            if read == 0 {
                break;
            }
            machine = machine.or_else(|| machine_of(&part[..read]).filter(|_| bytes == 0));
            bytes += read as u64;
            context.update(&part[..read]);
        }
        let Some(machine) = machine else {
            let shown = path.display();
            return Err(Failure::Usage(format!("--copy-self={shown} is not a program for Linux")));
        };
        let digest = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path: path.to_owned(), bytes, digest, machine })
    }

    /// The shell script that reads the program from standard input and executes it, with the script's arguments.
    pub fn script(&self) -> String {
        let lines: Vec<&str> = SCRIPT.trim().lines().map(str::trim).collect();
        lines
            .join(" ")
            .replace("MACHINE", self.machine)
            .replace("BYTES", &self.bytes.to_string())
            .replace("DIGEST", &self.digest)
            .replace("COPIED", COPIED)
    }

    /// Errors: it cannot be read, or the process has ended.
    pub fn write_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        // Not more than announced, even if the file grows.
        io::copy(&mut File::open(&self.path)?.take(self.bytes), out).map(drop)
    }
}

/// The architecture in the header of a program.
fn machine_of(header: &[u8]) -> Option<&'static str> {
    let number = header.get(18..20).filter(|_| header.starts_with(b"\x7fELF"))?;
    // Only s390x is big-endian.
    let number = match header[5] {
        2 => u16::from_be_bytes([number[0], number[1]]),
        _ => u16::from_le_bytes([number[0], number[1]]),
    };
    MACHINES.iter().find(|(code, _)| *code == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn programs_are_known_by_their_header() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let mut header = [&b"\x7fELF\x02\x01\x01"[..], &[0; 11], &[183, 0]].concat();
        fs::write(&path, &header).unwrap();
        let program = Program::at(&path).unwrap();
        assert_eq!((program.machine, program.bytes), ("aarch64", 20));
        assert!(program.script().contains("head -c 20 >") && program.script().contains("aarch64"));
        header[0] = b'#';
        fs::write(&path, &header).unwrap();
        let error = Program::at(&path).unwrap_err().to_string();
        assert!(error.contains("is not a program for Linux"), "{error}");
        assert!(Program::at(&directory.path().join("none")).is_err());
        assert!(Program::own().unwrap().bytes > 1000);
    }

    #[test]
    fn the_script_passes_through_login_shells() {
        assert!(!Program::own().unwrap().script().contains(['\'', '\n', '!']));
        assert_eq!(SCRIPT.matches("MACHINE").count(), 2);
    }
}
