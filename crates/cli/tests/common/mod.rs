//! Running `rdmc` and looking at what it does.

pub mod sshd;

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Long enough for a busy machine; a test that needs it has failed.
pub const TIMEOUT: Duration = Duration::from_secs(50);

pub const RDMC: &str = env!("CARGO_BIN_EXE_rdmc");

/// An argument of `env`.
const DEFAULT_SIGNALS: &str = "--default-signal=INT,HUP,TERM";

/// The words of a command of [`Place::rdmc`], which then inherits the signal dispositions of its caller.
pub fn without_signals(command: &Command) -> impl Iterator<Item = &OsStr> {
    command.get_args().filter(|&word| word != DEFAULT_SIGNALS)
}

/// A directory with a file of pseudo-random bytes, in which commands run.
pub struct Place {
    pub directory: tempfile::TempDir,
    pub contents: Vec<u8>,
}

impl Place {
    /// With a file `object` of this many bytes.
    pub fn with(bytes: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut contents = vec![0; bytes];
        blake3::Hasher::new().update(b"object").finalize_xof().fill(&mut contents);
        fs::write(directory.path().join("object"), &contents).unwrap();
        Self { directory, contents }
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    /// Writes a file that only its owner may read, such as a secret.
    pub fn write_private(&self, relative: &str, text: &str) {
        fs::write(self.path(relative), text).unwrap();
        fs::set_permissions(self.path(relative), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// With default signals, whatever this process ignores: shells start what runs in the background with SIGINT
    /// ignored, and `nohup` with SIGHUP.
    pub fn rdmc(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.arg(DEFAULT_SIGNALS).arg(RDMC);
        command.args(arguments).current_dir(self.directory.path()).env_remove("RUST_LOG");
        // Neither the developer's configuration, nor lines of progress on a slow machine.
        command.env("RDMC_CONFIG", "/dev/null").env("RDMC_PROGRESS", "none");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.rdmc(arguments).output().unwrap())
    }

    /// Runs with words that are separated by spaces.
    pub fn run_words(&self, words: &str) -> Outcome {
        self.run(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// Whether a file is a copy of the object.
    pub fn is_copy(&self, relative: &str) -> bool {
        fs::read(self.path(relative)).is_ok_and(|copy| copy == self.contents)
    }

    /// Temporary files below the directory.
    pub fn temporaries(&self) -> Vec<PathBuf> {
        files_below(self.directory.path())
            .into_iter()
            .filter(|path| path.to_string_lossy().contains(".rdmc-"))
            .collect()
    }

    /// Waits until the bytes at this offset have come to the receiver whose path has this part.
    pub fn await_bytes(&self, at: &str, offset: usize) {
        let expected = &self.contents[offset..offset + 64];
        await_that("blocks arrive", || {
            self.temporaries().iter().any(|path| {
                let mut read = [0; 64];
                path.to_string_lossy().contains(at)
                    && fs::File::open(path)
                        .is_ok_and(|file| file.read_exact_at(&mut read, offset as u64).is_ok())
                    && read == expected
            })
        });
    }

    /// Starts `rdmc` and waits until blocks have arrived at the receiver whose path has this part.
    pub fn start_and_await_blocks(&self, arguments: &[&str], at: &str) -> Child {
        let child = self.rdmc(arguments).spawn().unwrap();
        self.await_bytes(at, 0);
        child
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries
        .flatten()
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => files_below(&path),
            path => vec![path],
        })
        .collect()
}

pub fn await_that(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A listening receiver with a directory of its own; ended when dropped.
pub struct Listener {
    pub child: Child,
    pub port: u16,
    pub directory: String,
    /// Its standard error after the line with its address.
    said: BufReader<ChildStderr>,
}

impl Listener {
    pub fn start(place: &Place, directory: &str, more: &[&str]) -> Self {
        fs::create_dir(place.path(directory)).unwrap();
        Self::again(place, directory, more)
    }

    /// Without a directory: it writes a stream to its standard output.
    pub fn with_output(place: &Place, more: &[&str]) -> Self {
        let arguments = ["receive", "--listen", "127.0.0.1:0", "--stdout"];
        Self::spawn(place, &[&arguments[..], more].concat(), "")
    }

    /// In a directory that is there.
    pub fn again(place: &Place, directory: &str, more: &[&str]) -> Self {
        Self::at(place, "127.0.0.1:0", directory, more)
    }

    /// The same at this address.
    pub fn at(place: &Place, address: &str, directory: &str, more: &[&str]) -> Self {
        let arguments = ["receive", "--listen", address, "--dir", directory];
        Self::spawn(place, &[&arguments[..], more].concat(), directory)
    }

    fn spawn(place: &Place, arguments: &[&str], directory: &str) -> Self {
        let mut child = place.rdmc(arguments).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().parse().expect(&line);
        Self { child, port, directory: directory.to_owned(), said }
    }

    /// Its next line on standard error.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Outcome {
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The JSON object on standard output, which holds nothing else and begins with its version.
    pub fn json(&self) -> serde_json::Value {
        let first = self.out.trim_start_matches(['{', '\n', ' ']);
        assert!(first.starts_with("\"schema\":"), "{self:?}");
        let json: serde_json::Value =
            serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert_eq!(json["schema"], 1, "{self:?}");
        json
    }

    pub fn has_failed_with(&self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains(words), "no \"{words}\" in {self:?}");
    }
}

/// Processes that a process has started and that still run.
pub fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task");
    let tasks = fs::read_dir(path).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Whether a process has a thread of this name.
pub fn has_thread(process: u32, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.into_iter().any(|thread| thread.trim() == name)
}

/// The processor time of the thread of this name, in ticks of the system, of which there are 100 in a second; 0 if there is none.
pub fn ticks_of_thread(process: u32, name: &str) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let named = format!("({name})");
    let stat = stats.into_iter().find(|stat| stat.contains(&named)).unwrap_or_default();
    // After the name: state, 10 numbers, time in this program and in the system.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// The child that has a file open whose path has this part.
pub fn child_with_open(process: u32, part: &str) -> u32 {
    let opened = |child: &u32| {
        let files = fs::read_dir(format!("/proc/{child}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|path| path.to_string_lossy().contains(part))
    };
    let all = children(process);
    all.iter().copied().find(|child| opened(child)).unwrap_or_else(|| panic!("{part}: {all:?}"))
}

pub fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(status.unwrap().success());
}

pub fn is_running(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}
