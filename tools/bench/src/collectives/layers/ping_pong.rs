//! libfabric's own program fi_pingpong: messages to and fro, without rdmc.

use std::{
    io::Read,
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::pair::{FRAME_BYTES, TIMEOUT};
use crate::{outcome::Outcome, peers::workspace::need};

const PAUSE: Duration = Duration::from_millis(10);

/// Killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The time of a message one way with this provider, in us: half of that to and fro.
///
/// Errors: it is not installed, or does not work with the provider.
pub fn one_way_us(provider: &str, operations: u32) -> Outcome<f64> {
    need("fi_pingpong", "libfabric-bin")?;
    // Free a moment ago: the program takes no other way to choose one.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let kind = if matches!(provider, "shm" | "efa" | "cxi") { "rdm" } else { "msg" };
    let (bytes, count) = (FRAME_BYTES.to_string(), operations.to_string());
    let common = ["-p", provider, "-e", kind, "-S", &bytes, "-I", &count];
    let start = |own: &[&str], out: Stdio| {
        let mut command = Command::new("fi_pingpong");
        command.args(common).args(own).stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        command.spawn().map(Killed)
    };
    let mut server = start(&["-B", &port], Stdio::null())?;
    let begun = Instant::now();
    let failed = || format!("fi_pingpong does not work with the provider {provider}");
    while begun.elapsed() < TIMEOUT {
        let mut client = start(&["-P", &port, "127.0.0.1"], Stdio::piped())?;
        while client.0.try_wait()?.is_none() {
            if begun.elapsed() > TIMEOUT {
                return Err(failed().into());
            }
            thread::sleep(PAUSE);
        }
        let mut output = String::new();
        client.0.stdout.take().ok_or("no output")?.read_to_string(&mut output)?;
        if let Some(us) = time_of(&output) {
            // It ends by itself, and removes what it shares.
            while server.0.try_wait()?.is_none() && begun.elapsed() < TIMEOUT {
                thread::sleep(PAUSE);
            }
            return Ok(us);
        }
        // The client may have come before the server listened.
        if server.0.try_wait()?.is_some() {
            break;
        }
        thread::sleep(PAUSE);
    }
    Err(failed().into())
}

/// Reads `usec/xfer`, the last column but one of the last line.
fn time_of(output: &str) -> Option<f64> {
    let mut words = output.lines().last()?.split_whitespace().rev();
    words.nth(1)?.parse().ok().filter(|&us: &f64| us > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let output = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                      64      20k     =20k     2.4m        0.60s      4.30      14.88       0.07\n";
        assert_eq!(time_of(output), Some(14.88));
        assert_eq!(time_of(""), None);
        assert_eq!(time_of("bytes   #sent    usec/xfer   Mxfers/sec"), None);
    }
}
