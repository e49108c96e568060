//! What the kernel says of processes: their time, their threads, the ports on which they listen.

use std::{collections::BTreeMap, fs};

use rustix::param::clock_ticks_per_second;

/// State LISTEN in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// Processor time and threads of some processes, as they were seen last.
#[derive(Debug, Default)]
pub struct Watch(BTreeMap<u32, Seen>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    first_ticks: Option<u64>,
    ticks: u64,
    threads: u64,
}

impl Watch {
    /// Looks at a process; one that has ended stays as it was.
    pub fn look_at(&mut self, process: u32) {
        let Ok(line) = fs::read_to_string(format!("/proc/{process}/stat")) else { return };
        // What follows the name, which may contain anything: fields 3 and up of proc(5).
        let Some((_, rest)) = line.rsplit_once(')') else { return };
        let fields: Vec<u64> =
            rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        let [user, system, threads] =
            [14, 15, 20].map(|field| fields.get(field - 3).copied().unwrap_or(0));
        let seen = self.0.entry(process).or_default();
        seen.ticks = user + system;
        seen.first_ticks.get_or_insert(seen.ticks);
        seen.threads = seen.threads.max(threads);
    }

    /// User and system, since each was first looked at.
    pub fn cpu_seconds(&self) -> f64 {
        let ticks = |seen: &Seen| seen.ticks - seen.first_ticks.unwrap_or(0);
        self.0.values().map(ticks).sum::<u64>() as f64 / clock_ticks_per_second() as f64
    }

    /// The most that one process had at once.
    pub fn threads_max(&self) -> u64 {
        self.0.values().map(|seen| seen.threads).max().unwrap_or(0)
    }
}

/// Ports on which somebody listens in the network namespace of a process.
pub fn listening_ports(process: u32) -> Vec<u16> {
    let tables = ["tcp", "tcp6"]
        .map(|name| fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).filter_map(listening_port).collect()
}

/// Of a line such as `0: 0100007F:1F90 00000000:0000 0A ...`.
fn listening_port(line: &str) -> Option<u16> {
    let mut words = line.split_whitespace();
    let local = words.nth(1)?;
    if words.nth(1)? != LISTENS {
        return None;
    }
    u16::from_str_radix(local.rsplit(':').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, process};

    use super::*;

    #[test]
    fn ports_are_found_while_somebody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listening_ports(process::id()).contains(&port));
        drop(listener);
        assert!(!listening_ports(process::id()).contains(&port));
    }

    #[test]
    fn processes_have_threads_and_time() {
        let mut watch = Watch::default();
        watch.look_at(process::id());
        assert!(watch.threads_max() >= 1 && watch.cpu_seconds() == 0.0);
    }
}
