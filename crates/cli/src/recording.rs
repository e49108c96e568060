//! `--trace`: what each member does when, in one file.
//!
//! Receivers that this process starts write their parts to their standard output, which leads to a
//! file without a name here: a part arrives by whatever launcher there is, and nothing is left
//! behind if this process is killed.

use std::{
    fs::File,
    io::{self, Seek},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use trace::{Part, Process, Trace, Writer};

use crate::{
    failure::{Exit, Failure, say},
    logging,
    output::{self, InUse},
};

/// A trace that is being written.
#[derive(Debug)]
pub struct Recording {
    /// Where files without a name are.
    directory: PathBuf,
    trace: Trace,
    parts: Mutex<Vec<File>>,
}

impl Recording {
    fn begin(path: &Path, out: File) -> io::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // Beside pipes and devices there is no place for files.
        let directory = match out.metadata()?.is_file() {
            true => parent.unwrap_or(Path::new(".")).to_owned(),
            false => std::env::temp_dir(),
        };
        Ok(Self { directory, trace: Trace::begin(out)?, parts: Mutex::default() })
    }

    /// What the process of a host has to know, and where it writes. Hosts count from 0; a host that
    /// is started several times has several parts.
    ///
    /// Errors: no file can be made beside the trace.
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

/// Runs a command with logs, and with a trace if there is to be one, of this process and of those
/// that it starts. Returns also what became of the trace, which is said.
///
/// All arguments have been checked before: the trace is none of the files in use, and nothing but it
/// is written to before `run`. Errors: the trace cannot be begun; what the command says.
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
    Ok((outcome?, became(written)))
}

/// How a command ends as far as its trace is concerned. Says it if the trace is not whole.
pub fn became(written: io::Result<()>) -> Exit {
    match written {
        Ok(()) => Exit::Done,
        Err(error) => {
            say(format_args!("the trace is not complete: {error}"));
            Exit::Output
        }
    }
}

/// For a receiver that was invited: writes its part to standard output.
///
/// Errors: no thread or descriptor can be had.
pub fn to_standard_output(part: &Part) -> io::Result<Writer> {
    let out = io::stdout().as_fd().try_clone_to_owned()?;
    Writer::start(out.into(), part)
}

/// For a receiver that nobody has invited: a trace of its own.
///
/// Errors: the file is in use or cannot be made; no thread can be had.
pub fn alone(path: &Path, in_use: &InUse, name: String) -> Result<Writer, Failure> {
    let process = Process { number: std::process::id(), name };
    let out = output::create("--trace", path, in_use)?;
    Writer::start(out, &Part::alone(Some(process)))
        .map_err(Failure::while_doing(format_args!("--trace {}", path.display())))
}

/// Ends a part, and says if it lacks something.
///
/// Errors: it could not be written.
pub fn close(writer: Writer) -> io::Result<()> {
    let lost = writer.close()?.lost;
    if lost > 0 {
        say(format_args!("the trace lacks {lost} events: the disk was slower than they came"));
    }
    Ok(())
}
