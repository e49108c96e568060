//! `--trace`: a trace of all members in one file.
//!
//! Launched receivers write their parts to standard output, which is an unnamed file here. So parts arrive through
//! any launcher, and nothing is left behind if this process is killed.

use std::{
    fs::File,
    io::{self, Seek},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use trace::{Part, Process, Trace, Writer};

use crate::{
    failure::{Exit, Failure, print_message},
    logging,
    output::{self, InUse},
};

/// A trace of this process and of the receivers that it launches.
#[derive(Debug)]
pub struct Recording {
    /// The directory of the unnamed files.
    directory: PathBuf,
    trace: Trace,
    parts: Mutex<Vec<File>>,
}

impl Recording {
    fn begin(path: &Path, out: File) -> io::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // If the trace is a pipe or a device, its directory cannot have files.
        let directory = match out.metadata()?.is_file() {
            true => parent.unwrap_or(Path::new(".")).to_owned(),
            false => std::env::temp_dir(),
        };
        Ok(Self { directory, trace: Trace::begin(out)?, parts: Mutex::default() })
    }

    /// The part of a host's process, and its file. Hosts count from 0; a host that is started several times has
    /// several parts.
    ///
    /// Errors: no file can be created in the trace's directory.
    pub fn part(&self, host: usize, name: &str) -> io::Result<(Part, File)> {
        let number = u32::try_from(host + 1).unwrap_or(u32::MAX);
        Ok((self.trace.part(number, name), self.file()?))
    }

    fn file(&self) -> io::Result<File> {
        let file = tempfile::tempfile_in(&self.directory)?;
        self.parts().push(file.try_clone()?);
        Ok(file)
    }

    fn parts(&self) -> MutexGuard<'_, Vec<File>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(self) -> io::Result<()> {
        let Self { mut trace, parts, .. } = self;
        for mut part in parts.into_inner().unwrap_or_else(PoisonError::into_inner) {
            part.rewind()?;
            trace.add(part)?;
        }
        trace.finish()
    }
}

/// Runs a command with logging and, if requested, with a trace. Also returns the exit code of the trace, whose errors are
/// printed.
///
/// Must be called after all arguments are checked, since it opens the trace file. Errors: the trace cannot be opened;
/// errors of the command.
pub fn around<T>(
    trace: Option<&PathBuf>,
    in_use: &InUse,
    verbose: bool,
    run: impl FnOnce(Option<&Arc<Recording>>) -> Result<T, Failure>,
) -> Result<(T, Exit), Failure> {
    in_use.check_standard_output()?;
    let Some(path) = trace else {
        logging::start(verbose, None);
        return Ok((run(None)?, Exit::Done));
    };
    let failed = || Failure::while_doing(format!("--trace {}", path.display()));
    let out = output::create("--trace", path, in_use)?;
    let recording = Recording::begin(path, out).map_err(failed())?;
    let own = recording.trace.part(0, "root");
    let out = recording.file().map_err(failed())?;
    let writer = Writer::start(out, &own).map_err(failed())?;
    logging::start(verbose, Some(&writer));
    let recording = Arc::new(recording);
    let outcome = run(Some(&recording));
    let written = close(writer).and_then(|()| match Arc::into_inner(recording) {
        Some(recording) => recording.join(),
        None => Err(io::Error::other("receivers are still writing to it")),
    });
    Ok((outcome?, exit(written)))
}

/// The exit code of a trace; prints its error.
pub fn exit(written: io::Result<()>) -> Exit {
    match written {
        Ok(()) => Exit::Done,
        Err(error) => {
            print_message(format_args!("the trace is not complete: {error}"));
            Exit::Output
        }
    }
}

/// The part of a launched receiver, written to standard output.
///
/// Errors: no thread or descriptor.
pub fn to_standard_output(part: &Part) -> io::Result<Writer> {
    let out = io::stdout().as_fd().try_clone_to_owned()?;
    Writer::start(out.into(), part)
}

/// A trace of a receiver that was not launched.
///
/// Errors: the file is in use or cannot be created; no thread.
pub fn standalone(path: &Path, in_use: &InUse, name: String) -> Result<Writer, Failure> {
    let process = Process { number: std::process::id(), name };
    let out = output::create("--trace", path, in_use)?;
    Writer::start(out, &Part::alone(Some(process)))
        .map_err(Failure::while_doing(format_args!("--trace {}", path.display())))
}

/// Closes a part; prints a message if events were lost.
///
/// Errors: it could not be written.
pub fn close(writer: Writer) -> io::Result<()> {
    let lost = writer.close()?.lost;
    if lost > 0 {
        print_message(format_args!("the trace lacks {lost} events: the disk was too slow"));
    }
    Ok(())
}
