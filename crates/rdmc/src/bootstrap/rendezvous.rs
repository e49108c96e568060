//! Members meet at one address and learn of each other.
//!
//! One process (usually the root's) calls [`host`] with a listener; every other calls [`join`]
//! with that address. Each says under which address its context listens; all get the same list.

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Channel, Deadline, Gate, Guest};
use crate::{Error, Secret};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Join {
    /// `None`: any rank that is left.
    rank: Option<u32>,
    /// An unspecified address stands for the one that this connection comes from.
    address: SocketAddr,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Members { rank: u32, addresses: Vec<SocketAddr> },
    Refused(String),
}

/// Waits until `members - 1` others have joined, and returns everybody's address by rank. The
/// caller has rank 0 and listens on `own`. Connections that do not authenticate are ignored.
///
/// Errors: deadline (names how many are missing), the system refuses.
pub fn host(
    listener: &TcpListener,
    secret: &Secret,
    members: u32,
    own: SocketAddr,
    deadline: Deadline,
) -> Result<Vec<SocketAddr>, Error> {
    let system = |error| Error::System { what: "accepting at the rendezvous".into(), error };
    listener.set_nonblocking(true).map_err(system)?;
    let joined = Mutex::new((0..members).map(|_| None).collect());
    let gate = Arc::new(Gate::default());
    // Nobody who is slow to prove itself keeps others waiting.
    let met = thread::scope(|scope| {
        let met = loop {
            let missing = missing(&lock(&joined));
            if missing == 0 {
                break Ok(());
            }
            if deadline.left().is_zero() {
                let what = format!("waiting for {missing} more members at the rendezvous");
                break Err(deadline.missed(what));
            }
            let Ok((stream, peer)) = listener.accept() else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            let _ = stream.set_nonblocking(false);
            let Ok(guest) = gate.enter(&stream) else { continue };
            let joined = &joined;
            let admit = move || {
                let patience = Deadline::after(deadline.left().min(Duration::from_secs(5)));
                if let Err(error) = admit(stream, peer.ip(), secret, guest, joined, patience) {
                    tracing::debug!(%error, "not admitted to the rendezvous");
                }
            };
            // Without a thread the caller is hung up on, and tries again.
            let _ =
                thread::Builder::new().name("rdmc-rendezvous".into()).spawn_scoped(scope, admit);
        };
        gate.close(deadline.left().min(Duration::from_secs(5)));
        met
    });
    met?;
    let mut joined = joined.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let addresses: Vec<SocketAddr> =
        joined.iter().map(|member| member.as_ref().map_or(own, |&(_, address)| address)).collect();
    for (rank, member) in (0..).zip(&mut joined) {
        if let Some((channel, _)) = member {
            channel.send(&Answer::Members { rank, addresses: addresses.clone() }, deadline)?;
        }
    }
    Ok(addresses)
}

/// Who has joined, by rank, with the address that it listens on; rank 0 is the host's.
type Joined = Vec<Option<(Channel, SocketAddr)>>;

fn missing(joined: &Joined) -> usize {
    joined.iter().skip(1).filter(|member| member.is_none()).count()
}

fn lock(joined: &Mutex<Joined>) -> MutexGuard<'_, Joined> {
    joined.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn admit(
    stream: std::net::TcpStream,
    peer: IpAddr,
    secret: &Secret,
    guest: Guest,
    joined: &Mutex<Joined>,
    deadline: Deadline,
) -> Result<(), Error> {
    let mut channel = Channel::accept(stream, secret, deadline)?;
    guest.is_member();
    let Join { rank, mut address } = channel.receive(deadline)?;
    if address.ip().is_unspecified() {
        address.set_ip(peer);
    }
    // Who has a place is not hung up on when the gate closes.
    drop(guest);
    let mut joined = lock(joined);
    let free = |place: &Option<_>| place.is_none();
    let place = match rank {
        Some(rank) => joined.get_mut(rank as usize).filter(|place| rank > 0 && free(place)),
        None => joined.iter_mut().skip(1).find(|place| free(place)),
    };
    match place {
        Some(place) => *place = Some((channel, address)),
        None => {
            drop(joined);
            let reason = match rank {
                Some(rank) => format!("rank {rank} is taken, or not in this group"),
                None => "all ranks are taken".to_owned(),
            };
            channel.send(&Answer::Refused(reason), deadline)?;
        }
    }
    Ok(())
}

/// Joins at a rendezvous: says where this context listens, and returns this member's rank and
/// everybody's address. An unspecified IP in `own` (`0.0.0.0` or `::`) means the one by which
/// this process reaches the rendezvous.
///
/// Errors: unreachable, another secret, rank taken, deadline.
pub fn join(
    rendezvous: SocketAddr,
    secret: &Secret,
    rank: Option<u32>,
    own: SocketAddr,
    deadline: Deadline,
) -> Result<(u32, Vec<SocketAddr>), Error> {
    let mut channel = Channel::connect_patiently(rendezvous, secret, deadline)?;
    channel.send(&Join { rank, address: own }, deadline)?;
    match channel.receive(deadline)? {
        Answer::Members { rank, addresses } if (rank as usize) < addresses.len() => {
            Ok((rank, addresses))
        }
        Answer::Members { .. } => Err(Error::Peer {
            address: rendezvous,
            cause: "sent a member list that does not contain this member".into(),
        }),
        Answer::Refused(cause) => Err(Error::Peer { address: rendezvous, cause }),
    }
}
