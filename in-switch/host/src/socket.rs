//! The Unix socket of a host's daemon for applications.

use std::{
    fs::{self, DirBuilder, Permissions},
    io::{self, ErrorKind as IoErrorKind},
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
        net::{UnixListener as StdListener, UnixStream as StdStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use control::{ControlError, ErrorKind};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::mpsc,
};
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;

/// Backlog of accepted connections.
const WAITING_MAX: usize = 16;
/// Retry interval when accepting fails, as for lack of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A socket, whose file is removed when this is dropped.
pub(crate) struct Socket {
    path: PathBuf,
    listener: Option<StdListener>,
}

impl Socket {
    /// Listens at a path, with permissions `mode` from the start. A stale socket is replaced.
    ///
    /// Errors: another daemon listens there, or no socket can be made there; names the path.
    pub(crate) fn bind(path: &Path, mode: u32) -> Result<Self, ControlError> {
        let failed = |error: io::Error| {
            let remedy = match error.kind() {
                IoErrorKind::NotFound => "; make its directory first, or choose another (--socket)",
                IoErrorKind::PermissionDenied => "; choose another directory (--socket)",
                _ => "",
            };
            let why = format!("the socket {}: {error}{remedy}", path.display());
            ControlError::new(ErrorKind::Failed, why)
        };
        check_free(path)?;
        // Made in a private directory, so that it never has wider permissions.
        let mut private = path.to_owned().into_os_string();
        private.push(format!(".{}", std::process::id()));
        let private = PathBuf::from(private);
        DirBuilder::new().mode(0o700).create(&private).map_err(failed)?;
        let bound = bind_within(&private.join("s"), path, mode);
        let _ = fs::remove_dir_all(&private);
        let listener = bound.map_err(failed)?;
        Ok(Self { path: path.to_owned(), listener: Some(listener) })
    }

    /// Accepts connections.
    pub(crate) fn accept(
        &mut self,
    ) -> Result<ReceiverStream<io::Result<UnixStream>>, ControlError> {
        let failed = |error: io::Error| {
            let why = format!("the socket {}: {error}", self.path.display());
            ControlError::new(ErrorKind::Failed, why)
        };
        let taken = || io::Error::from(IoErrorKind::NotConnected);
        let listener = self.listener.take().ok_or_else(taken).map_err(failed)?;
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        let (admit, admitted) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = admit.closed() => return,
                };
                match accepted {
                    Ok((stream, _)) => drop(admit.send(Ok(stream)).await),
                    Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
                }
            }
        });
        Ok(ReceiverStream::new(admitted))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn bind_within(private: &Path, path: &Path, mode: u32) -> io::Result<StdListener> {
    let listener = StdListener::bind(private)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(private, Permissions::from_mode(mode))?;
    fs::rename(private, path)?;
    Ok(listener)
}

/// Checks that no daemon listens there, and that no other file would be replaced.
fn check_free(path: &Path) -> Result<(), ControlError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let shown = path.display();
    if !found.file_type().is_socket() {
        let why = format!("{shown} exists and is not a socket; choose another path (--socket)");
        return Err(ControlError::new(ErrorKind::Failed, why));
    }
    if StdStream::connect(path).is_ok() {
        let why = format!("another daemon listens at {shown}; end it, or choose another path");
        return Err(ControlError::new(ErrorKind::Taken, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("rdmc-socket-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn only_stale_sockets_are_replaced() {
        let directory = place("replaced");
        let path = directory.join("switch.sock");
        let first = Socket::bind(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Socket::bind(&path, 0o600).err().unwrap().kind, ErrorKind::Taken);
        drop(first);
        assert!(!path.exists());
        // A stale socket, as a killed daemon leaves it.
        drop(StdListener::bind(&path).unwrap());
        assert!(path.exists());
        let again = Socket::bind(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        drop(again);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn other_files_stay_and_directories_have_to_be_there() {
        let directory = place("other");
        let path = directory.join("file");
        fs::write(&path, "precious").unwrap();
        assert!(Socket::bind(&path, 0o600).err().unwrap().message.contains("not a socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        let missing = Socket::bind(&directory.join("no/switch.sock"), 0o600).err().unwrap();
        assert!(missing.message.contains("make its directory first"), "{missing}");
        fs::remove_dir_all(directory).unwrap();
    }
}
