//! Connections from one member to all others, each of which is closed at once: whether a push could make them.

use std::{
    net::SocketAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rdmc::{Error, Secret};
use serde::{Deserialize, Serialize};
use session::{Channel, Deadline};

/// How many hosts a check of connections may have: each connects to all others.
pub const REACHED_HOSTS_MAX: usize = 1000;
/// How many connections a member makes at a time.
const AT_A_TIME: usize = 32;
/// The longest that one may take.
const TIMEOUT_MAX: Duration = Duration::from_secs(15);

/// Which members a host is to connect to, one connection each, which is closed at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reach {
    pub number: u64,
    /// The host's own.
    pub rank: u32,
    /// Addresses of the members' contexts, by rank.
    pub addresses: Vec<SocketAddr>,
    /// For each connection.
    pub timeout_ms: u32,
}

impl Reach {
    /// Checks what a root has sent. Errors: the fault.
    pub(crate) fn check(&self) -> Result<(), String> {
        let members = self.addresses.len();
        if members > REACHED_HOSTS_MAX + 1 {
            return Err(format!("connections to {members} members are too many to be checked"));
        }
        Ok(())
    }

    /// For each connection.
    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.into()).min(TIMEOUT_MAX)
    }

    /// How long all of them may take.
    pub(crate) fn timeout_of_all(&self) -> Duration {
        let rounds = self.addresses.len().div_ceil(AT_A_TIME);
        self.timeout().saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
    }

    /// Connects to all others and authenticates, some at a time. Blocks at most for [`Reach::timeout_of_all`], and for one timeout
    /// once `stop` is set. Returns the members that this failed for, by rank.
    ///
    /// Errors: no thread could be started.
    pub(crate) fn connect_to_all(
        &self,
        secret: &Secret,
        stop: &AtomicBool,
    ) -> Result<Vec<(u32, Error)>, String> {
        let members = self.addresses.len();
        let (next, failed) = (AtomicUsize::new(1), Mutex::new(Vec::new()));
        let connect = || {
            while !stop.load(Ordering::Relaxed) {
                let step = next.fetch_add(1, Ordering::Relaxed);
                if step >= members {
                    return;
                }
                // Each member begins with the one behind it, so that not all come to the same one.
                let rank = (self.rank as usize + step) % members;
                if let Err(error) = try_to_connect(self.addresses[rank], secret, self.timeout()) {
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.push((u32::try_from(rank).unwrap_or(u32::MAX), error));
                }
            }
        };
        thread::scope(|scope| {
            let start =
                |_| thread::Builder::new().name("rdmc-reach".into()).spawn_scoped(scope, connect);
            let threads = AT_A_TIME.min(members.saturating_sub(1));
            let started: Vec<_> = (0..threads).map(start).collect();
            match started.into_iter().find_map(Result::err) {
                Some(error) => {
                    next.store(members, Ordering::Relaxed);
                    Err(format!("cannot start a thread: {error}"))
                }
                None => Ok(()),
            }
        })?;
        let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.sort_unstable_by_key(|(rank, _)| *rank);
        Ok(failed)
    }
}

fn try_to_connect(address: SocketAddr, secret: &Secret, timeout: Duration) -> Result<(), Error> {
    Ok(Channel::connect(address, secret, Deadline::after(timeout)).map(drop)?)
}

/// Why a connection could not be made, without the address.
pub(crate) fn cause(error: &Error) -> String {
    match error {
        Error::Peer { cause, .. } => cause.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use session::Listener;

    use super::*;

    fn reach(rank: u32, addresses: Vec<SocketAddr>) -> Reach {
        Reach { number: 1, rank, addresses, timeout_ms: 10_000 }
    }

    #[test]
    fn members_that_cannot_be_reached_are_found_and_not_the_own_one() {
        let secret = Secret::from_bytes([1; 32]);
        let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let absent = listen().local_addr().unwrap();
        let of = |secret: &Secret| {
            Listener::answering(None, listen(), secret.clone(), |_, _| Ok::<_, Error>(()), |_| ())
                .unwrap()
        };
        let (member, stranger) = (of(&secret), of(&Secret::from_bytes([2; 32])));
        let addresses = vec![absent, member.address(), absent, stranger.address()];
        let failed = reach(0, addresses.clone()).connect_to_all(&secret, &AtomicBool::new(false));
        let ranks: Vec<u32> = failed.unwrap().iter().map(|(rank, _)| *rank).collect();
        assert_eq!(ranks, [2, 3]);
        let stopped = reach(0, addresses).connect_to_all(&secret, &AtomicBool::new(true));
        assert!(stopped.unwrap().is_empty());
        assert!(
            reach(0, vec![absent])
                .connect_to_all(&secret, &AtomicBool::new(false))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn what_a_root_sends_is_limited() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        assert!(reach(0, vec![address; REACHED_HOSTS_MAX + 1]).check().is_ok());
        assert!(reach(0, vec![address; REACHED_HOSTS_MAX + 2]).check().is_err());
        assert!(
            reach(u32::MAX, Vec::new())
                .connect_to_all(&Secret::from_bytes([1; 32]), &AtomicBool::new(false))
                .is_ok()
        );
        let endless = Reach { timeout_ms: u32::MAX, ..reach(0, vec![address; 33]) };
        assert_eq!(endless.timeout_of_all(), TIMEOUT_MAX * 2);
    }
}
