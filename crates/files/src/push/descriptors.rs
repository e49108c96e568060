//! Whether the limit on file descriptors suffices for a push.

use std::fs;

use rdmc::Algorithm;
use rustix::process::{Resource, getrlimit};

use super::settings::{PushError, PushSettings};

/// For each host: its control connection, and a pipe of the launcher that started its receiver.
const PER_HOST: u64 = 2;
/// One more for each connection during its handshake, of which there are at most this many.
const HANDSHAKES_MAX: u64 = 128;
/// Listeners, wakers, the source, and a reserve for the application.
const OTHERS: u64 = 32;

/// Errors: too few descriptors for all hosts; names how many fit.
pub(super) fn check(settings: &PushSettings) -> Result<(), PushError> {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let (hosts, left) = (settings.hosts.len() as u64, limit.saturating_sub(open));
    if needed(settings, hosts) <= left {
        return Ok(());
    }
    let fit = (0..hosts).rev().find(|&hosts| needed(settings, hosts) <= left).unwrap_or(0);
    Err(PushError::Setting(format!(
        "{hosts} hosts need about {} open files here, but this process may have only {limit}, enough for {fit} hosts; raise the \
         limit (ulimit -n, LimitNOFILE= of a service), or push to fewer \
         hosts at a time",
        needed(settings, hosts) + open
    )))
}

/// The most descriptors that a push to this many hosts uses.
fn needed(settings: &PushSettings, hosts: u64) -> u64 {
    // The root's neighbours in a group.
    let neighbours = match settings.algorithm {
        Some(Algorithm::Sequential) => hosts,
        _ => 2 * u64::from((hosts + 1).ilog2() + 1),
    };
    let data = neighbours.min(hosts) * u64::from(settings.streams);
    hosts * PER_HOST + hosts.min(HANDSHAKES_MAX) + data + OTHERS
}
