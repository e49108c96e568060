//! What the kernel reports of processes in /proc: processor time, threads, children,
//! listening ports, and what this process holds.

use std::{
    collections::BTreeMap,
    fs, io, thread,
    time::{Duration, Instant},
};

use rustix::param::clock_ticks_per_second;

/// State LISTEN in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// How long descriptors and threads have to stay the same to be counted.
const STEADY: Duration = Duration::from_millis(300);
/// How long that is waited for.
const SETTLING_MAX: Duration = Duration::from_secs(5);

/// Processor time and threads of some processes, as last read.
#[derive(Debug, Default)]
pub struct Watch(BTreeMap<u32, Seen>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    first_cpu_ns: u64,
    cpu_ns: u64,
    threads: u64,
}

/// Processor time in ns, user and system, and threads; `None` if there is no such process.
fn stat(process: u32) -> Option<(u64, u64)> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Fields 3 and up of proc(5) follow the name, which may contain anything.
    let (_, rest) = line.rsplit_once(')')?;
    let field = |number: usize| rest.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
    let ticks = field(14)? + field(15)?;
    Some((ticks * 1_000_000_000 / clock_ticks_per_second(), field(20)?))
}

/// The processes that this one has started and that are its children.
pub fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>())
        .collect()
}

impl Watch {
    /// Reads the counters of a process; one that has ended keeps its last ones.
    pub fn look_at(&mut self, process: u32) {
        let Some((cpu_ns, threads)) = stat(process) else { return };
        let new = Seen { first_cpu_ns: cpu_ns, cpu_ns, threads };
        let seen = self.0.entry(process).or_insert(new);
        seen.cpu_ns = cpu_ns;
        seen.threads = seen.threads.max(threads);
    }

    /// User and system, since each was first looked at.
    pub fn cpu_seconds(&self) -> f64 {
        self.0.values().map(|seen| seen.cpu_ns - seen.first_cpu_ns).sum::<u64>() as f64 / 1e9
    }

    /// The most that one process had at once.
    pub fn threads_max(&self) -> u64 {
        self.0.values().map(|seen| seen.threads).max().unwrap_or(0)
    }
}

/// Segments that TCP of this process's network namespace has sent again so far.
///
/// Errors: /proc does not say.
pub fn segments_sent_again() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/net/snmp")?;
    sent_again(&text).ok_or_else(|| io::Error::other("/proc/self/net/snmp has no Tcp: RetransSegs"))
}

/// Of a line of names, such as `Tcp: ... OutSegs RetransSegs ...`, and one of numbers.
fn sent_again(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == "RetransSegs")?;
    numbers.split_whitespace().nth(at)?.parse().ok()
}

/// TCP ports with a listener in the network namespace of a process.
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

/// What this process holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    pub descriptors: u64,
    pub threads: u64,
    /// Resident memory, mapped files included.
    pub resident_kib: u64,
}

impl Held {
    /// Once the number of descriptors and threads has been the same for some time: threads that have
    /// answered a connection end a little later. Blocks for some seconds at most.
    ///
    /// Errors: /proc lacks one of them.
    pub fn settled() -> io::Result<Self> {
        let begin = Instant::now();
        let (mut last, mut since) = (Self::counts()?, begin);
        while since.elapsed() < STEADY && begin.elapsed() < SETTLING_MAX {
            thread::sleep(Duration::from_millis(10));
            let counts = Self::counts()?;
            if counts != last {
                (last, since) = (counts, Instant::now());
            }
        }
        let (descriptors, threads) = last;
        Ok(Self { descriptors, threads, resident_kib: resident_kib()? })
    }

    /// Descriptors, and threads.
    fn counts() -> io::Result<(u64, u64)> {
        let count = |directory: &str| Ok::<_, io::Error>(fs::read_dir(directory)?.count() as u64);
        // One of them reads the directory.
        Ok((count("/proc/self/fd")?.saturating_sub(1), count("/proc/self/task")?))
    }
}

/// Of this process. `/proc/self/status` is off by some pages for each processor; this is exact.
fn resident_kib() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    let value = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = value.and_then(|value| value.trim().strip_suffix("kB")?.trim_end().parse().ok());
    kib.ok_or_else(|| io::Error::other("/proc/self/smaps_rollup has no resident memory"))
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, process};

    use super::*;

    #[test]
    fn ports_are_found_while_they_are_listened_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listening_ports(process::id()).contains(&port));
        drop(listener);
        assert!(!listening_ports(process::id()).contains(&port));
    }

    #[test]
    fn this_process_holds_memory_threads_and_descriptors() {
        let held = Held::settled().unwrap();
        assert!(held.descriptors >= 3 && held.threads >= 1 && held.resident_kib > 0, "{held:?}");
    }

    #[test]
    fn segments_that_were_sent_again_are_read_by_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: InSegs RetransSegs InErrs\nTcp: 17 4 0\n";
        assert_eq!(sent_again(snmp), Some(4));
        assert_eq!(sent_again("Tcp: InSegs\nTcp: 17\n"), None);
        segments_sent_again().unwrap();
    }

    #[test]
    fn processes_have_threads_and_time() {
        let mut watch = Watch::default();
        watch.look_at(process::id());
        assert!(watch.threads_max() >= 1 && watch.cpu_seconds() == 0.0);
    }
}
