//! A network of one thread's own, for tests and measurements that make its links themselves.

use rustix::thread::UnshareFlags;

use crate::{Error, command};

/// Moves this thread into a new network namespace, in which there is a loopback device that is down,
/// and nothing else. Threads that it starts afterwards come with it; others stay where they are. The
/// namespace goes with the last thread and socket in it.
///
/// Needs root.
pub fn enter_own_network() -> Result<(), Error> {
    // It takes away nothing that other threads have, as sharing fewer files or memory could.
    #[expect(deprecated, reason = "its successor is for cases that need proof")]
    let entered = rustix::thread::unshare(UnshareFlags::NEWNET);
    entered.map_err(|error| Error::Failed(format!("no network namespace: {error}")))
}

/// Runs `ip` of iproute2 in this thread's network, with these words.
pub fn ip(words: &str) -> Result<(), Error> {
    let words: Vec<&str> = words.split(' ').collect();
    command::output("ip", &words).map(|_| ())
}

/// Brings up a link, on which the kernel says nothing of its own.
pub fn quiet(link: &str, mtu_bytes: u32) -> Result<(), Error> {
    // A kernel without IPv6 has nothing to say.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6"), "1");
    ip(&format!("link set {link} mtu {mtu_bytes} up"))
}
