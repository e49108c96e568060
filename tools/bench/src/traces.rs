//! `--trace FILE`: the events of all member processes of a command, in one file.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tempfile::NamedTempFile;
use trace::{Part, Trace, Writer};

use crate::outcome::Outcome;

/// Global, since members are started in many places.
static TRACE: Mutex<Option<Recording>> = Mutex::new(None);

struct Recording {
    trace: Trace,
    directory: PathBuf,
    parts: u64,
}

/// The file that one member writes, until it has ended.
pub struct MemberPart {
    file: NamedTempFile,
    part: Part,
}

impl MemberPart {
    /// What the member is started with.
    pub fn arguments(&self) -> Outcome<[String; 4]> {
        let path = self.file.path().to_str().ok_or("the path of the trace is not UTF-8")?;
        let part = serde_json::to_string(&self.part)?;
        Ok(["--trace-to".into(), path.into(), "--trace-part".into(), part])
    }

    /// Adds what the member has written to the trace.
    pub fn join(self) -> Outcome<()> {
        if let Some(recording) = &mut *recording() {
            recording.trace.add(self.file.reopen()?)?;
        }
        Ok(())
    }
}

/// Traces members that are started from now on.
pub fn begin(path: &Path) -> Outcome<()> {
    let trace = File::create(path)
        .and_then(Trace::begin)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new(".")).to_owned();
    *recording() = Some(Recording { trace, directory, parts: 0 });
    Ok(())
}

/// Where a member that is about to be started writes; `None` without a trace.
pub fn part(rank: usize) -> Outcome<Option<MemberPart>> {
    let mut recording = recording();
    let Some(recording) = &mut *recording else { return Ok(None) };
    let part = recording.trace.part(u32::try_from(rank)?, format!("member {rank}"));
    let file = NamedTempFile::new_in(&recording.directory)?;
    recording.parts += 1;
    Ok(Some(MemberPart { file, part }))
}

/// Ends the file.
pub fn finish() -> Outcome<()> {
    match recording().take() {
        Some(recording) if recording.parts == 0 => {
            Err("nothing to trace: this command runs no members as processes".into())
        }
        Some(recording) => Ok(recording.trace.finish()?),
        None => Ok(()),
    }
}

/// At a member: starts to write its part.
pub fn write(path: &Path, part: &str) -> Outcome<Writer> {
    let file = File::options().append(true).open(path)?;
    Ok(Writer::start(file, &serde_json::from_str(part)?)?)
}

fn recording() -> MutexGuard<'static, Option<Recording>> {
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}
