//! Where a receiver puts a stream.

use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
    process::ChildStdin,
    time::SystemTime,
};

use rustix::fs::{AtFlags, FileType, statat};

use super::{
    command::StreamCommand, error::ReceiveError, output::Output, placement::Placement,
    settings::ReceiverSettings,
};
use crate::{
    Manifest, Target, Verified, claim::Owner, messages::StreamOffer, place::Place, system::umask,
};

/// What open(2) is asked for when a program makes a file, before the umask.
const NEW_FILE_MODE: u32 = 0o666;

/// Where a receiver puts a stream.
pub(super) enum Sink {
    Output(Output),
    /// A temporary file, which gets its name at the end.
    File {
        target: Box<Target>,
        file: File,
    },
    /// A command that the root has named.
    Command(StreamCommand),
}

/// The part of a sink that the reading thread writes to.
pub(super) enum SinkWriter {
    Output(Output),
    File(File),
    /// The standard input of a command; none after the end of the stream, or once the command reads no more.
    Command(Option<ChildStdin>),
}

impl Sink {
    /// Claims the destination. Errors: refused; cannot be written.
    pub(super) fn open(
        settings: &ReceiverSettings,
        offer: &StreamOffer,
    ) -> Result<Self, ReceiveError> {
        if let Some(command) = &offer.command {
            // A launched receiver has the rights of its user anyway.
            if settings.placement != Placement::Anywhere || settings.output.is_some() {
                return Err(ReceiveError::Refused(
                    "this receiver runs no commands for a root; --pipe-to is for receivers that the push starts"
                        .into(),
                ));
            }
            return Ok(Self::Command(StreamCommand::start(command, &settings.host)?));
        }
        if let Some(output) = &settings.output {
            return Ok(Self::Output(output.clone()));
        }
        let place = settings.placement.place(&offer.destination)?;
        let owner = Owner::here(&offer.terms.secret, &settings.host);
        // A name of its own each time, as a stream cannot be resumed.
        let begun_ns = since_1970_ns();
        let name = "stream".to_owned();
        let mode = offer.mode.unwrap_or_else(|| NEW_FILE_MODE & !umask()) & replaced_mode(&place);
        let manifest = Manifest { name, bytes: 0, mode, modified_ns: begun_ns };
        let target = Box::new(Target::create_at(place, manifest, &owner)?);
        let file = target.file()?;
        Ok(Self::File { target, file })
    }

    /// Where the stream is written; once.
    pub(super) fn writer(&mut self) -> io::Result<SinkWriter> {
        Ok(match self {
            Self::Output(output) => SinkWriter::Output(output.clone()),
            Self::File { file, .. } => SinkWriter::File(file.try_clone()?),
            Self::Command(command) => SinkWriter::Command(command.take_input()),
        })
    }

    /// Whether nothing is left to wait for but the end of the stream. Errors: a command has failed.
    pub(super) fn has_ended(&self) -> Result<bool, ReceiveError> {
        match self {
            Self::Command(command) => command.has_ended(),
            Self::Output(_) | Self::File { .. } => Ok(true),
        }
    }

    /// Gives a file its name; the path, if there is one.
    pub(super) fn publish(self, proof: &Verified) -> Result<Option<PathBuf>, ReceiveError> {
        let Self::File { mut target, .. } = self else { return Ok(None) };
        let path = target.path().to_owned();
        target.set_modified_ns(since_1970_ns())?;
        target.publish(proof)?;
        Ok(Some(path))
    }

    /// The last line of output of a command, which has ended.
    pub(super) fn finish(self) -> Option<String> {
        match self {
            Self::Command(command) => Some(command.finish()),
            Self::Output(_) | Self::File { .. } => None,
        }
    }
}

impl SinkWriter {
    /// Lets a command see the end of the stream.
    pub(super) fn close(&mut self) {
        if let Self::Command(input) = self {
            *input = None;
        }
    }
}

impl Write for SinkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Output(output) => output.write(bytes),
            Self::File(file) => file.write(bytes),
            Self::Command(input) => match input.as_mut().map(|input| input.write(bytes)) {
                // Its exit status says whether it has read what it needs.
                Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    *input = None;
                    Ok(bytes.len())
                }
                Some(written) => written,
                None => Ok(bytes.len()),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The permission bits of the file that a copy replaces; all if there is none. Follows links, as what has the name now is
/// read through them.
fn replaced_mode(place: &Place) -> u32 {
    let stat = statat(place.parent().as_fd(), place.name(), AtFlags::empty());
    let file = stat.ok().filter(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
    file.map_or(0o777, |stat| stat.st_mode & 0o777)
}

fn since_1970_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}
