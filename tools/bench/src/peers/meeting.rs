//! Members find each other's addresses in files of a shared directory.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::outcome::Outcome;

/// For anything but a transfer.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Makes an address known under a name.
pub fn publish(meeting: &Path, name: &str, address: SocketAddr) -> Outcome<()> {
    // Renamed, so that no member reads a part of it.
    let (part, whole) = (meeting.join(format!("{name}.part")), meeting.join(name));
    fs::write(&part, address.to_string())?;
    Ok(fs::rename(part, whole)?)
}

/// Connects to the address that is or will be known under this name.
pub fn connect_to(meeting: &Path, name: &str) -> Outcome<TcpStream> {
    let address = find(meeting, name, Instant::now() + TIMEOUT)?;
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The address that is or will be known under this name. Blocks until the deadline at most.
pub fn find(meeting: &Path, name: &str, deadline: Instant) -> Outcome<SocketAddr> {
    loop {
        match fs::read_to_string(meeting.join(name)) {
            Ok(address) => return Ok(address.parse()?),
            Err(error) if Instant::now() > deadline => {
                return Err(format!("{name} was not published: {error}").into());
            }
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}
