//! What people do without relaying: the root copies to everybody at once over plain TCP.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::Barrier,
    thread,
    time::Instant,
};

use crate::{
    clock::{ClockId, now_ns},
    outcome::Outcome,
};

/// What the copies took.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// From the first write to the end of the last reader's last read.
    pub seconds: f64,
    /// Processor time of both sides, user and system.
    pub cpu_seconds: f64,
}

/// Copies `bytes` bytes to each of `receivers` threads over loopback, all at once, one connection
/// and one pair of threads each; memory is touched before the clock starts.
pub fn parallel_copies(receivers: u32, bytes: usize) -> Outcome<Plain> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut pairs = Vec::new();
    for _ in 0..receivers {
        let writer = TcpStream::connect(listener.local_addr()?)?;
        pairs.push((writer, listener.accept()?.0));
    }
    let object = vec![7_u8; bytes];
    let begin = Barrier::new(2 * pairs.len() + 1);
    thread::scope(|scope| {
        let mut sides = Vec::new();
        for (mut writer, mut reader) in pairs {
            let (object, begin) = (&object, &begin);
            sides.push(scope.spawn(move || {
                begin.wait();
                writer.write_all(object)
            }));
            sides.push(scope.spawn(move || {
                let mut copy = vec![1_u8; object.len()];
                begin.wait();
                reader.read_exact(&mut copy)
            }));
        }
        begin.wait();
        let (start, cpu) = (Instant::now(), now_ns(ClockId::ProcessCPUTime));
        for side in sides {
            side.join().map_err(|_| "a copying thread panicked")??;
        }
        let cpu_ns = now_ns(ClockId::ProcessCPUTime) - cpu;
        let seconds = start.elapsed().as_secs_f64();
        Ok(Plain { seconds, cpu_seconds: cpu_ns as f64 / 1e9 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_end() {
        let plain = parallel_copies(3, 100_000).unwrap();
        assert!(plain.seconds > 0.0 && plain.seconds < 60.0);
    }
}
