//! Every wait of the library ends at its deadline, whoever is stuck or silent; and no duration is
//! too long to wait for.

mod common;

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use common::{PATIENCE, Recorder, World, group};
use rdmc::{Algorithm, Application, Error, Group, GroupSettings, Memory, Region};

/// A timeout of waits that are in vain. How long they really take depends on the machine; that they
/// end is what counts.
const SHORT: Duration = Duration::from_millis(100);

fn chain(number: u64, members: u32) -> impl Fn(u32) -> GroupSettings + Sync {
    group(number, Algorithm::Chain, members, 0)
}

/// Runs this on a thread of its own, and fails if it does not return.
fn returns<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, outcome) = channel();
    thread::spawn(move || sender.send(act()));
    outcome.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} does not return"))
}

fn assert_timeout<T>(outcome: Result<T, Error>, named: &str) {
    match outcome.map(drop) {
        Err(error @ Error::Timeout { .. }) => {
            assert!(error.to_string().contains(named), "{error}");
        }
        other => panic!("{other:?} instead of a timeout that names {named}"),
    }
}

/// Says that it was called, and then does not return until the test lets it go.
struct Stuck {
    called: Sender<()>,
    let_go: Receiver<()>,
}

impl Application for Stuck {
    fn incoming(&mut self, _: u64, bytes: u64) -> Memory {
        let _ = self.called.send(());
        let _ = self.let_go.recv();
        Memory::Region(Region::zeroed(bytes as usize))
    }

    fn complete(&mut self, _: u64, _: Region) {}
}

/// A group of two, whose receiver is stuck in a callback as long as this lives.
struct StuckGroup {
    world: World,
    root: Group,
    receiver: Group,
    _let_go: Sender<()>,
}

impl StuckGroup {
    fn start() -> Self {
        let world = World::start(2);
        let ((called, is_called), (_let_go, let_go)) = (channel(), channel());
        let (recorder, _) = channel();
        let [zero, one] = [0, 1].map(|rank| (&world.contexts[rank], chain(7, 2)(rank as u32)));
        let (root, receiver) = thread::scope(|scope| {
            let addresses = &world.addresses;
            let root = scope.spawn(|| zero.0.create_group(zero.1, addresses, Recorder(recorder)));
            let receiver = one.0.create_group(one.1, addresses, Stuck { called, let_go });
            (root.join().unwrap().unwrap(), receiver.unwrap())
        });
        root.send(Region::zeroed(5_000)).unwrap();
        is_called.recv_timeout(PATIENCE).expect("a call");
        Self { world, root, receiver, _let_go }
    }
}

#[test]
fn a_stuck_callback_holds_up_nobody_beyond_the_deadline() {
    for timeout in [Duration::ZERO, SHORT] {
        let mut stuck = StuckGroup::start();
        assert_timeout(stuck.root.wait_complete(1, timeout), "message 0 of group 7");
        assert_timeout(stuck.receiver.wait_complete(1, timeout), "message 0 of group 7");
        let (context, receiver) = (stuck.world.contexts.remove(1), stuck.receiver);
        let outcome = returns("Group::close", move || receiver.close(timeout));
        assert_timeout(outcome, "closing group 7");
        let outcome = returns("Context::close", move || context.close(timeout));
        assert_timeout(outcome, "a callback of group 7");
        stuck.world.close();
    }
}

#[test]
fn a_context_that_is_dropped_does_not_wait_for_a_stuck_callback_for_ever() {
    let mut stuck = StuckGroup::start();
    let (context, receiver) = (stuck.world.contexts.remove(1), stuck.receiver);
    returns("dropping the group", move || drop(receiver));
    returns("dropping the context", move || drop(context));
    stuck.world.close();
}

#[test]
fn no_duration_is_too_long_to_wait_for() {
    let world = World::start_with(2, |settings| settings.connect_timeout = Duration::MAX);
    let groups = world.join(chain(1, 2));
    let sent = groups[0].0.send(Region::zeroed(5_000)).unwrap();
    sent.wait(Duration::MAX).unwrap();
    groups[0].0.wait_complete(1, Duration::MAX).unwrap();
    let [root, receiver] = [0, 1].map(|rank| &groups[rank].0);
    thread::scope(|scope| {
        scope.spawn(|| receiver.close(Duration::MAX).unwrap());
        root.close(Duration::MAX).unwrap();
    });
    for context in world.contexts {
        context.close(Duration::MAX).unwrap();
    }
}
