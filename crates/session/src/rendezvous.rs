//! Members connect to one address and exchange their own.
//!
//! One process (usually the root's) calls [`host`] with a listener; all others call [`join`] with
//! its address. Each sends the address on which its context listens; all receive the same list.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    channel::Channel, deadline::Deadline, error::Error, handshake_limit::Handshake,
    interruption::Interruption, line::peer_error, listener::Listener, secret::Secret,
};

/// The time that a joining member has to send its address, and the bound on closing the other
/// connections at the end.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Join {
    /// `None` for any rank that is free.
    rank: Option<u32>,
    /// An unspecified IP stands for the one that this connection comes from.
    address: SocketAddr,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Members { rank: u32, addresses: Vec<SocketAddr> },
    Refused(String),
}

/// Waits until `members - 1` others have joined, and returns all addresses by rank. The
/// caller has rank 0 and listens on `own`. Connections that do not authenticate are ignored.
///
/// Errors: the deadline has passed (with the number of missing members), or the system returned an
/// error.
pub fn host(
    listener: &TcpListener,
    secret: &Secret,
    members: u32,
    own: SocketAddr,
    deadline: Deadline,
) -> Result<Vec<SocketAddr>, Error> {
    let system = |error| Error::System { what: "accepting at the rendezvous".into(), error };
    let joined = Mutex::new((0..members).map(|_| None).collect());
    let meeting = Arc::new(Meeting { joined, changed: Condvar::new() });
    let admitting = Arc::clone(&meeting);
    let admit = move |channel: Channel, handshake: Handshake| {
        handshake.served();
        let timeout = Deadline::after(deadline.left().min(PATIENCE));
        admitting.admit(channel, handshake, timeout)
    };
    let socket = listener.try_clone().map_err(system)?;
    let mut accepting =
        Listener::answering(None, socket, secret.clone(), admit, |_| ()).map_err(system)?;
    let missing = meeting.wait(deadline);
    accepting.close(Deadline::after(PATIENCE));
    if missing > 0 {
        let what = format!("waiting for {missing} more members at the rendezvous");
        return Err(deadline.missed(what));
    }
    let mut joined = meeting.joined();
    let addresses: Vec<SocketAddr> =
        joined.iter().map(|member| member.as_ref().map_or(own, |&(_, address)| address)).collect();
    for (rank, member) in (0..).zip(joined.iter_mut()) {
        if let Some((channel, _)) = member {
            channel.send(&Answer::Members { rank, addresses: addresses.clone() }, deadline)?;
        }
    }
    Ok(addresses)
}

/// The members that have joined, by rank, with the address that each listens on; rank 0 is the
/// host.
type Joined = Vec<Option<(Channel, SocketAddr)>>;

/// The members that have joined so far, and a notification of changes.
struct Meeting {
    joined: Mutex<Joined>,
    changed: Condvar,
}

impl Meeting {
    fn joined(&self) -> MutexGuard<'_, Joined> {
        self.joined.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until all have joined, or until the deadline. Returns how many are missing.
    fn wait(&self, deadline: Deadline) -> usize {
        let joined = self
            .changed
            .wait_timeout_while(self.joined(), deadline.left(), |joined| missing(joined) > 0)
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .0;
        missing(&joined)
    }

    fn admit(
        &self,
        mut channel: Channel,
        handshake: Handshake,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let Join { rank, mut address } = channel.receive(deadline)?;
        if address.ip().is_unspecified() {
            address.set_ip(channel.peer().ip());
        }
        // The connection of a member that gets a rank has to survive the rendezvous's listener.
        drop(handshake);
        let mut joined = self.joined();
        let free = |place: &Option<_>| place.is_none();
        let place = match rank {
            Some(rank) => joined.get_mut(rank as usize).filter(|place| rank > 0 && free(place)),
            None => joined.iter_mut().skip(1).find(|place| free(place)),
        };
        match place {
            Some(place) => {
                *place = Some((channel, address));
                self.changed.notify_all();
            }
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
}

fn missing(joined: &Joined) -> usize {
    joined.iter().skip(1).filter(|member| member.is_none()).count()
}

/// Joins at a rendezvous: sends the address on which this context listens, and returns this
/// member's rank and the addresses of all members. An unspecified IP in `own` (`0.0.0.0` or `::`)
/// stands for the one from which this process reaches the rendezvous.
///
/// Errors: the rendezvous cannot be reached or has another secret, the rank is taken, or the
/// deadline has passed.
pub fn join(
    rendezvous: SocketAddr,
    secret: &Secret,
    rank: Option<u32>,
    own: SocketAddr,
    deadline: Deadline,
) -> Result<(u32, Vec<SocketAddr>), Error> {
    let mut channel =
        Channel::connect_patiently(rendezvous, secret, deadline, &Interruption::default())?;
    channel.send(&Join { rank, address: own }, deadline)?;
    match channel.receive(deadline)? {
        Answer::Members { rank, addresses } if (rank as usize) < addresses.len() => {
            Ok((rank, addresses))
        }
        Answer::Members { .. } => {
            let cause = "sent a member list that does not contain this member";
            Err(peer_error(rendezvous, cause.into()))
        }
        Answer::Refused(cause) => Err(peer_error(rendezvous, cause)),
    }
}
