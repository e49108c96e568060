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
    let start = Instant::now();
    loop {
        match fs::read_to_string(meeting.join(name)) {
            Ok(address) => {
                let stream = TcpStream::connect_timeout(&address.parse()?, TIMEOUT)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if start.elapsed() > TIMEOUT => {
                return Err(format!("{name} was not published: {error}").into());
            }
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}
