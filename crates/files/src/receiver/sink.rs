//! Where a receiver puts a stream.

use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
    time::SystemTime,
};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use super::{
    command::{Input, StreamCommand},
    error::ReceiveError,
    output::Output,
    placement::Placement,
    settings::ReceiverSettings,
};
use crate::{
    Manifest, Target, Verified, claim::Owner, copy::refusal, disk::Disk, messages::StreamOffer,
    place::Place, system::umask,
};

/// What open(2) is asked for when a program makes a file, before the umask.
const NEW_FILE_MODE: u32 = 0o666;
/// The attribute with an access list, and that of a directory with the list that what is made in it gets.
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Tags of their entries: the owner, the owning group, the most that all but the owner and others have, and others.
const OWNER: u8 = 0x01;
const GROUP: u8 = 0x04;
const MASK: u8 = 0x10;
const OTHER: u8 = 0x20;

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
    File(File, PathBuf),
    /// The standard input of a command; none after the end of the stream, or once the command reads no more.
    Command(Option<Input>),
}

impl Sink {
    /// Claims the destination. Errors: refused; cannot be written.
    pub(super) fn open(
        settings: &ReceiverSettings,
        offer: &StreamOffer,
    ) -> Result<Self, ReceiveError> {
        if let Some(command) = &offer.command {
            // A launched receiver has the rights of its user anyway.
            if matches!(settings.placement, Placement::Below(_)) || settings.output.is_some() {
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
        let place = settings.placement.place(&offer.destination, false)?;
        let owner = Owner::here(&offer.terms.secret, &settings.host);
        // A name of its own each time, as a stream cannot be resumed.
        let begun_ns = since_1970_ns();
        let name = "stream".to_owned();
        let mode = offer.mode.unwrap_or_else(|| new_mode(&place)) & replaced_mode(&place);
        let manifest = Manifest { name, bytes: 0, mode, modified_ns: begun_ns };
        let target = Box::new(Target::create_at(place, manifest, &owner)?);
        let file = target.file()?;
        Ok(Self::File { target, file })
    }

    /// Where the stream is written; once.
    pub(super) fn writer(&mut self) -> io::Result<SinkWriter> {
        Ok(match self {
            Self::Output(output) => SinkWriter::Output(output.clone()),
            Self::File { target, file } => {
                SinkWriter::File(file.try_clone()?, target.path().to_owned())
            }
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
        target.publish_or_remove(proof)?;
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
            input.take().into_iter().for_each(Input::end);
        }
    }

    /// The error of a write.
    pub(super) fn failed(&self, error: io::Error) -> ReceiveError {
        match self {
            Self::File(_, path) => refusal(path, "write", 0, error).into(),
            Self::Output(_) | Self::Command(_) => ReceiveError::Sink(error),
        }
    }
}

impl Write for SinkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Output(output) => output.write(bytes),
            Self::File(file, _) => file.write(bytes),
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

/// What the owner, the owning group and others may do with the file that a copy replaces; all if there is none. Follows links,
/// as what has the name now is read through them.
fn replaced_mode(place: &Place) -> u32 {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Ok(file) = openat(place.parent().as_fd(), place.name(), flags, Mode::empty()) else {
        return 0o777;
    };
    match fstat(&file) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => {
            // With an access list the mode has its mask instead.
            let list = Disk::extended(&file, ACCESS);
            let group = |list: Vec<u8>| {
                permissions(&list, GROUP).unwrap_or(0) & permissions(&list, MASK).unwrap_or(7)
            };
            stat.st_mode & list.map_or(0o777, |list| 0o707 | group(list) << 3)
        }
        _ => 0o777,
    }
}

/// The mode of a file that a program makes there (acl(5)): where the directory has a default access list, that counts instead of
/// the umask.
fn new_mode(place: &Place) -> u32 {
    let Ok(list) = Disk::extended(place.parent().as_fd(), DEFAULT) else {
        return NEW_FILE_MODE & !umask();
    };
    let of = |tag| permissions(&list, tag);
    let (owner, group, other) = (of(OWNER), of(MASK).or(of(GROUP)), of(OTHER));
    NEW_FILE_MODE
        & [owner, group, other].into_iter().fold(0, |mode, of| mode << 3 | of.unwrap_or(0))
}

/// The permissions in an access list's first entry of a tag. A list is a version and entries of a tag, permissions and a number,
/// little-endian.
fn permissions(list: &[u8], tag: u8) -> Option<u32> {
    let mut entries = list.get(4..)?.chunks_exact(8);
    entries.find(|entry| entry[..2] == [tag, 0]).map(|entry| u32::from(entry[2] & 7))
}

fn since_1970_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use rustix::fs::{XattrFlags, setxattr};

    use super::*;

    /// A POSIX access control list in the format of its extended attribute, from the tag and the permissions of each entry. Those of tag
    /// `ACL_USER` (2) are for user ID 65534, `nobody`.
    fn list(entries: [(u16, u16); 5]) -> Vec<u8> {
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions) in entries {
            list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(permissions)].concat());
            list.extend(u32::to_le_bytes(if tag == 2 { 65534 } else { u32::MAX }));
        }
        list
    }

    #[test]
    fn an_access_list_allows_the_owning_group_what_its_entry_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "old").unwrap();
        let place = Place::anywhere(&path).unwrap();
        assert_eq!(replaced_mode(&place), fs::metadata(&path).unwrap().mode() & 0o777);
        for (group, mask, mode) in [(0, 6, 0o600), (4, 6, 0o640), (6, 4, 0o640)] {
            let list = list([(1, 6), (2, 6), (4, group), (0x10, mask), (0x20, 0)]);
            if setxattr(&path, ACCESS, &list, XattrFlags::empty()).is_err() {
                println!("SKIPPED: one part needs a file system with access lists");
                continue;
            }
            assert_eq!(replaced_mode(&place), mode, "{group} {mask}");
        }
    }

    #[test]
    fn a_new_file_has_what_a_default_access_list_of_its_directory_allows() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::anywhere(&directory.path().join("f")).unwrap();
        assert_eq!(new_mode(&place), NEW_FILE_MODE & !umask());
        for (mask, other, mode) in [(7, 0, 0o660), (4, 4, 0o644), (0, 7, 0o606)] {
            let list = list([(1, 7), (2, 7), (4, 7), (0x10, mask), (0x20, other)]);
            if setxattr(directory.path(), DEFAULT, &list, XattrFlags::empty()).is_err() {
                println!("SKIPPED: needs a file system with access lists");
                return;
            }
            assert_eq!(new_mode(&place), mode, "{mask} {other}");
            fs::File::create(place.path()).unwrap();
            assert_eq!(
                fs::metadata(place.path()).unwrap().mode() & 0o777,
                mode,
                "as others make it"
            );
            fs::remove_file(place.path()).unwrap();
        }
        for short in [&b""[..], b"\x02\0\0\0", b"\x02\0\0\0\x01\0\x07"] {
            assert_eq!(permissions(short, OWNER), None);
        }
    }
}
