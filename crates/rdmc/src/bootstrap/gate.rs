//! Callers in their handshake: few that have not proved anything yet, and none for long.

use std::{
    collections::BTreeMap,
    io,
    net::{Shutdown, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

/// Callers that have said hello, and not proved to know the secret, at once.
const STRANGERS_MAX: usize = 128;
/// The pause between two callers while there are so many: a flood of them gets no more of the
/// processor than this leaves, and each still has an eighth of a second to prove itself.
const CROWDED_PAUSE: Duration = Duration::from_millis(1);

/// Of the threads that serve callers: enough for a handshake, and so little that the C library keeps
/// the stacks of those that end for those that come.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// Where connections wait until they have proved that they know the secret. When there are too many,
/// the one that has tried longest is hung up on: a flood of strangers cannot keep members out, and
/// they hold no more than so many threads, descriptors and buffers. Members who meet that try again.
///
/// Each caller is served by a thread of its own, which the owner of the gate starts.
#[derive(Debug, Default)]
pub struct Gate {
    inside: Mutex<Inside>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    callers: BTreeMap<u64, Caller>,
    entered: u64,
    closed: bool,
}

#[derive(Debug)]
struct Caller {
    handle: TcpStream,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Stranger,
    Member,
    TurnedAway,
}

/// One caller inside a [`Gate`], which it leaves when this is dropped.
#[derive(Debug)]
pub struct Guest {
    gate: Arc<Gate>,
    number: u64,
}

impl Gate {
    /// Lets a caller in. Blocks for a millisecond when there are many.
    ///
    /// Errors: the gate is closed, or no descriptor can be had; hang up then.
    pub fn enter(self: &Arc<Self>, stream: &TcpStream) -> io::Result<Guest> {
        let handle = stream.try_clone()?;
        let mut inside = self.inside();
        if inside.closed {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let strangers = inside.strangers().count();
        if strangers >= STRANGERS_MAX
            && let Some(longest) = inside.strangers().next()
        {
            longest.state = State::TurnedAway;
            let _ = longest.handle.shutdown(Shutdown::Both);
        }
        let number = inside.entered;
        inside.entered += 1;
        inside.callers.insert(number, Caller { handle, state: State::Stranger });
        drop(inside);
        if strangers >= STRANGERS_MAX {
            std::thread::sleep(CROWDED_PAUSE);
        }
        Ok(Guest { gate: Arc::clone(self), number })
    }

    /// Lets nobody in any more, hangs up on all that are inside, and waits until they have left, at
    /// most `patience`. Whether they have.
    pub fn close(&self, patience: Duration) -> bool {
        let mut inside = self.inside();
        inside.closed = true;
        for caller in inside.callers.values() {
            let _ = caller.handle.shutdown(Shutdown::Both);
        }
        let inside = self
            .left
            .wait_timeout_while(inside, patience, |inside| !inside.callers.is_empty())
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .0;
        inside.callers.is_empty()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Inside {
    /// Those who have proved nothing, who has tried longest first.
    fn strangers(&mut self) -> impl Iterator<Item = &mut Caller> {
        self.callers.values_mut().filter(|caller| caller.state == State::Stranger)
    }
}

impl Guest {
    /// It has proved that it knows the secret: it is not in anybody's way from now on.
    pub fn is_member(&self) {
        if let Some(caller) = self.gate.inside().callers.get_mut(&self.number) {
            caller.state = State::Member;
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.gate.inside().callers.remove(&self.number);
        self.gate.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener};

    use super::*;

    #[test]
    fn who_has_tried_longest_makes_room_and_members_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Arc::new(Gate::default());
        let mut callers: Vec<(TcpStream, Guest)> = (0..STRANGERS_MAX)
            .map(|_| {
                let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                caller.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                let guest = gate.enter(&listener.accept().unwrap().0).unwrap();
                (caller, guest)
            })
            .collect();
        callers[0].1.is_member();
        let more = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inside = [0, 1].map(|_| gate.enter(&more).unwrap());
        let mut is_over = |index: usize| matches!(callers[index].0.read(&mut [0]), Ok(0));
        assert_eq!([0, 1, 2].map(&mut is_over), [false, true, false]);
        assert_eq!(gate.inside().callers.len(), STRANGERS_MAX + 2);
        drop((callers, inside));
        assert!(gate.close(Duration::from_secs(5)));
        assert!(gate.inside().callers.is_empty() && gate.enter(&more).is_err());
    }
}
