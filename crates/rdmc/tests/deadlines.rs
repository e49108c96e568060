//! Every wait of the library ends at its deadline, whatever is stuck or silent; and every duration
//! is accepted as a timeout.

use std::{
    io::Read,
    net::{TcpListener, TcpStream},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use rdmc::{
    Algorithm, Application, Context, Error, Group, GroupSettings, Incoming, Progress, Region,
    Secret,
    bootstrap::{Channel, Deadline, Interruption, Listener, rendezvous},
};
use tracing::{
    Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::common::{Event, Gate, PATIENCE, Recorder, World, among, group};

/// The timeout of waits whose event never happens. How long they take depends on the machine; the
/// tests check that they end.
const SHORT: Duration = Duration::from_millis(100);

fn chain(number: u64, members: u32) -> impl Fn(u32) -> GroupSettings + Sync {
    group(number, Algorithm::Chain, members, 0)
}

/// Runs `act` on a thread of its own, and fails if it does not return.
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

/// Reports its call, and then blocks until the test releases it.
struct Stuck {
    called: Sender<()>,
    let_go: Receiver<()>,
}

impl Application for Stuck {
    fn incoming(&mut self, _: u64, bytes: u64) -> Incoming {
        let _ = self.called.send(());
        let _ = self.let_go.recv();
        Incoming::Into(Region::zeroed(bytes as usize))
    }

    fn complete(&mut self, _: u64, _: Region) {}
}

impl Stuck {
    /// Returns the receiver that reports its call, and the sender that releases it, too.
    fn new() -> (Self, Receiver<()>, Sender<()>) {
        let ((called, is_called), (go_on, let_go)) = (channel(), channel());
        (Self { called, let_go }, is_called, go_on)
    }
}

/// A group of two whose receiver is stuck in a callback until this is dropped.
struct StuckGroup {
    world: World,
    root: Group,
    receiver: Group,
    _let_go: Sender<()>,
}

impl StuckGroup {
    fn start() -> Self {
        let world = World::start(2);
        let (stuck, is_called, _let_go) = Stuck::new();
        let (recorder, _) = channel();
        let [zero, one] = [0, 1].map(|rank| (&world.contexts[rank], chain(7, 2)(rank as u32)));
        let (root, receiver) = thread::scope(|scope| {
            let addresses = &world.addresses;
            let root = scope
                .spawn(|| zero.0.create_group_with(among(zero.1, addresses), Recorder(recorder)));
            let receiver = one.0.create_group_with(among(one.1, addresses), stuck);
            (root.join().unwrap().unwrap(), receiver.unwrap())
        });
        root.try_send(Region::zeroed(5_000)).unwrap();
        is_called.recv_timeout(PATIENCE).expect("a call");
        Self { world, root, receiver, _let_go }
    }
}

#[test]
fn waits_for_a_stuck_callback_end_at_the_deadline() {
    for timeout in [Duration::ZERO, SHORT] {
        let mut stuck = StuckGroup::start();
        assert_timeout(stuck.root.wait_complete(1, timeout), "message 0 of group 7");
        assert_timeout(stuck.receiver.wait_complete(1, timeout), "message 0 of group 7");
        let delivered = stuck.root.wait_delivered(1, timeout);
        assert_timeout(delivered, "1 messages of group 7 at every member");
        let (context, receiver) = (stuck.world.contexts.remove(1), stuck.receiver);
        let outcome = returns("Group::close", move || receiver.close(timeout));
        assert_timeout(outcome, "closing group 7");
        let outcome = returns("Context::close", move || context.close(timeout));
        assert_timeout(outcome, "a callback of group 7");
        stuck.world.close();
    }
}

#[test]
fn dropping_a_context_waits_a_bounded_time_for_a_stuck_callback() {
    let mut stuck = StuckGroup::start();
    let (context, receiver) = (stuck.world.contexts.remove(1), stuck.receiver);
    returns("dropping the group", move || drop(receiver));
    returns("dropping the context", move || drop(context));
    stuck.world.close();
}

#[test]
fn waits_inside_a_callback_are_refused() {
    for progress in [Progress::Thread, Progress::Caller] {
        let world = World::start_with(1, |settings| settings.progress = progress);
        let [context] = <[Context; 1]>::try_from(world.contexts).ok().unwrap();
        let (context, handles) = (Arc::new(context), Arc::new(OnceLock::new()));
        let (asked, outcomes) = channel();
        let asks = Asks { handles: Arc::clone(&handles), asked };
        let group =
            context.create_group_with(among(chain(1, 1)(0), &world.addresses), asks).unwrap();
        let group = Arc::new(group);
        handles.set((Arc::clone(&context), Arc::clone(&group))).ok().unwrap();
        group.try_send(Region::zeroed(10)).unwrap();
        group.wait_complete(1, PATIENCE).unwrap();
        let [close, wait, progress, counters, register] =
            outcomes.recv_timeout(PATIENCE).expect("a call of `complete`");
        for outcome in [close, wait] {
            assert!(matches!(outcome, Err(Error::InsideCallback(..))), "{outcome:?}");
        }
        assert!(matches!(progress, Err(Error::InsideCallback(..) | Error::HasProgressThread)));
        counters.unwrap();
        register.unwrap();
        group.close(PATIENCE).unwrap();
        // The application, which holds clones, has been dropped.
        drop(handles);
        let context = Arc::into_inner(context).expect("the only one");
        context.close(PATIENCE).unwrap();
    }
}

/// Makes blocking calls in its callback.
struct Asks {
    handles: Arc<OnceLock<(Arc<Context>, Arc<Group>)>>,
    asked: Sender<[Result<(), Error>; 5]>,
}

impl Application for Asks {
    fn incoming(&mut self, _: u64, _: u64) -> Incoming {
        Incoming::Later
    }

    fn complete(&mut self, _: u64, _: Region) {
        let (context, group) = self.handles.wait();
        let _ = self.asked.send([
            group.close(Duration::MAX),
            group.wait_complete(2, Duration::MAX),
            context.progress(Duration::MAX).map(drop),
            context.counters().map(drop),
            context.register(&Region::zeroed(10)),
        ]);
    }
}

/// Blocks or panics on progress threads at a known place: the timeline event `message` of some
/// groups.
struct Saboteur;

const PANICS: [u64; 2] = [6_660, 6_661];
const IS_STUCK: u64 = 7_770;
/// Set to release stuck threads.
static LET_GO: OnceLock<()> = OnceLock::new();

impl Subscriber for Saboteur {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rdmc::timeline"
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut recorded = Recorded::default();
        event.record(&mut recorded);
        match recorded {
            Recorded { group, is_message: true } if PANICS.contains(&group) => panic!("on purpose"),
            Recorded { group: IS_STUCK, is_message: true } => {
                LET_GO.wait();
            }
            _ => {}
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Recorded {
    group: u64,
    is_message: bool,
}

impl Visit for Recorded {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "group" {
            self.group = value;
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.is_message |= field.name() == "what" && value == "message";
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

fn sabotage() {
    // Another test of this process may have set it.
    let _ = tracing::subscriber::set_global_default(Saboteur);
}

#[test]
fn a_panic_during_progress_fails_all_groups_with_the_cause() {
    sabotage();
    for (progress, number) in [Progress::Thread, Progress::Caller].into_iter().zip(PANICS) {
        let rank = AtomicUsize::new(0);
        let world = World::start_with(3, |settings| {
            if rank.fetch_add(1, Ordering::Relaxed) == 0 {
                settings.progress = progress;
            }
        });
        let (failing, other) = (world.join(chain(number, 3)), world.join(chain(1, 3)));
        let sent = failing[0].0.try_send(Region::zeroed(5_000)).unwrap();
        let cause = "panicked: on purpose";
        let waits = [
            sent.wait(PATIENCE),
            other[0].0.wait_complete(1, PATIENCE),
            failing[0].0.close(PATIENCE),
            other[0].0.close(PATIENCE),
        ];
        for outcome in waits {
            let Err(Error::Failed(failure)) = outcome else { panic!("{outcome:?}") };
            assert!(failure.member == Some(0) && failure.detail.contains(cause), "{failure}");
        }
        for groups in [&failing, &other] {
            let event = groups[0].1.recv_timeout(PATIENCE);
            assert!(matches!(event, Ok(Event::Failed(..))), "{event:?}");
            for (rank, (group, _)) in groups.iter().enumerate().skip(1) {
                let outcome = group.wait_complete(1, PATIENCE);
                let Err(Error::Failed(failure)) = outcome else { panic!("{outcome:?}") };
                assert_eq!(failure.member, Some(0), "at member {rank}: {failure}");
            }
        }
        let (recorder, _) = channel();
        let context = &world.contexts[0];
        let created =
            context.create_group_with(among(chain(2, 3)(0), &world.addresses), Recorder(recorder));
        let outcomes = [
            created.map(drop),
            context.counters().map(drop),
            context.waited().map(drop),
            context.register(&Region::zeroed(10)),
        ];
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::ContextFailed(_)), "{error}");
            assert!(error.to_string().contains(cause), "{error}");
        }
        world.close();
    }
}

#[test]
fn waits_for_a_stuck_progress_thread_end_at_the_deadline() {
    sabotage();
    let world = World::start_with(1, |settings| settings.connect_timeout = Duration::from_secs(4));
    let groups = world.join(chain(IS_STUCK, 1));
    let sent = groups[0].0.try_send(Region::zeroed(10)).unwrap();
    let [context] = <[Context; 1]>::try_from(world.contexts).ok().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert_timeout(context.counters(), "is busy"));
        scope.spawn(|| assert_timeout(context.waited(), "is busy"));
        scope.spawn(|| assert_timeout(context.register(&Region::zeroed(10)), "is busy"));
        scope.spawn(|| {
            let (recorder, _) = channel();
            let settings = chain(1, 1)(0);
            let created =
                context.create_group_with(among(settings, &world.addresses), Recorder(recorder));
            assert_timeout(created, "is busy");
        });
        for timeout in [Duration::ZERO, SHORT] {
            assert_timeout(sent.wait(timeout), "message 0");
        }
    });
    assert_timeout(groups[0].0.close(SHORT), "closing group 7770");
    drop(groups);
    assert_timeout(returns("Context::close", move || context.close(SHORT)), "the progress thread");
    let _ = LET_GO.set(());
}

/// Waits whose event never happens, by name: each ends at its deadline.
#[test]
fn waits_for_a_silent_or_absent_peer_end_at_the_deadline() {
    // Accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let nobody = {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        gone.local_addr().unwrap()
    };
    let secret = || Secret::from_bytes([1; 32]);
    let ends = |what: &'static str, wait: Box<dyn FnOnce(Deadline) -> Error + Send>, timeout| {
        let error = returns(what, move || wait(Deadline::after(timeout)));
        assert!(matches!(error, Error::Timeout { .. } | Error::Peer { .. }), "{what}: {error}");
    };
    for timeout in [Duration::ZERO, SHORT] {
        let connect = move |deadline| Channel::connect(at, &secret(), deadline).unwrap_err().into();
        ends("Channel::connect", Box::new(connect), timeout);
        let patiently = move |deadline| {
            let never = Interruption::default();
            Channel::connect_patiently(nobody, &secret(), deadline, &never).unwrap_err().into()
        };
        ends("Channel::connect_patiently", Box::new(patiently), timeout);
        let accept = move |deadline| {
            let _caller = TcpStream::connect(at).unwrap();
            let caller = TcpStream::connect(at).unwrap();
            Channel::accept(caller, &secret(), deadline).unwrap_err().into()
        };
        ends("Channel::accept", Box::new(accept), timeout);
        let receive = |deadline| {
            let (mut one, _other) = channels();
            one.receive::<u8>(deadline).unwrap_err().into()
        };
        ends("Channel::receive", Box::new(receive), timeout);
        let send = |deadline| {
            let (mut one, _other) = channels();
            one.send(&vec![0_u8; 30 << 20], deadline).unwrap_err().into()
        };
        ends("Channel::send", Box::new(send), timeout);
        let join =
            move |deadline| rendezvous::join(at, &secret(), None, at, deadline).unwrap_err().into();
        ends("rendezvous::join", Box::new(join), timeout);
        let host = move |deadline| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let _stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            rendezvous::host(&listener, &secret(), 3, at, deadline).unwrap_err().into()
        };
        ends("rendezvous::host", Box::new(host), timeout);
        for rank in [0, 1] {
            let world = World::start_with(1, |settings| settings.connect_timeout = timeout);
            let create = move |_| {
                let (recorder, _) = channel();
                let addresses = [world.addresses[0], at];
                let addresses = if rank == 0 { addresses } else { [at, world.addresses[0]] };
                let context = &world.contexts[0];
                let created = context
                    .create_group_with(among(chain(1, 2)(rank), &addresses), Recorder(recorder));
                created.unwrap_err()
            };
            ends("Context::create_group", Box::new(create), timeout);
        }
    }
}

/// Both ends of a connection.
fn channels() -> (Channel, Channel) {
    let (secret, listener) =
        (Secret::from_bytes([1; 32]), TcpListener::bind("127.0.0.1:0").unwrap());
    let (address, deadline) = (listener.local_addr().unwrap(), Deadline::after(PATIENCE));
    thread::scope(|scope| {
        let connected = scope.spawn(|| Channel::connect(address, &secret, deadline).unwrap());
        let accepted = Channel::accept(listener.accept().unwrap().0, &secret, deadline).unwrap();
        (connected.join().unwrap(), accepted)
    })
}

#[test]
fn listeners_close_while_a_connected_peer_is_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = Listener::open(listener, Secret::from_bytes([1; 32]), drop).unwrap();
    let address = listener.address();
    let mut callers = vec![TcpStream::connect(address).unwrap()];
    returns("dropping a listener", move || drop(listener));
    let world = World::start(1);
    callers.push(TcpStream::connect(world.addresses[0]).unwrap());
    returns("Context::close", move || world.close());
    drop(callers);
}

#[test]
fn a_caller_that_drives_ends_at_its_deadline() {
    for timeout in [Duration::ZERO, SHORT] {
        let world = World::start_with(2, |settings| settings.progress = Progress::Caller);
        let groups = world.join(chain(3, 2));
        let sent = groups[0].0.try_send(Region::zeroed(50_000)).unwrap();
        // The other member makes no progress.
        world.contexts[0].progress(timeout).unwrap();
        assert_timeout(sent.wait(timeout), "message 0 of group 3");
        assert_timeout(groups[0].0.close(timeout), "closing group 3");
        let close = move || world.contexts.into_iter().for_each(|it| drop(it.close(SHORT)));
        returns("Context::close", close);
    }
}

/// Calls of groups without callbacks that wait for an event that never happens, by name.
#[test]
fn receiving_and_sending_end_at_their_deadlines() {
    for (progress, timeout) in [Progress::Thread, Progress::Caller]
        .into_iter()
        .flat_map(|it| [(it, Duration::ZERO), (it, SHORT)])
    {
        let ranks = AtomicUsize::new(0);
        let mut world = World::start_with(2, |settings| {
            if ranks.fetch_add(1, Ordering::Relaxed) == 1 {
                settings.progress = progress;
            }
        });
        let settings = |rank| chain(1, 2)(rank).send_queue_max(1);
        let mut groups = world.join_to_receive(settings);
        let outcome = groups[1].receive(timeout);
        assert_timeout(outcome, "the next message of group 1");
        let gate = Arc::new(Gate::default());
        let handle = groups[0].try_send(gate.region(100_000)).unwrap();
        let more = groups[0].send(Region::zeroed(10), timeout);
        assert!(matches!(more, Err(Error::QueueFull { messages: 1, .. })), "{more:?}");
        let mut message = groups[1].receive(PATIENCE).unwrap().expect("a message");
        let what = "message 0 of group 1";
        assert_timeout(message.wait(timeout), what);
        let in_vain = std::iter::repeat_with(|| message.next_block(timeout)).find(Result::is_err);
        assert_timeout(in_vain.expect("no end"), what);
        assert_timeout(message.into_region(timeout), what);
        assert_timeout(handle.into_region(timeout), what);
        gate.open();
        let (context, group) = (world.contexts.remove(1), groups.remove(1));
        drop(group);
        drop(groups);
        let _ = returns("Context::close", move || context.close(SHORT));
        world.close();
    }
}

#[test]
fn reading_ends_at_the_stall_timeout() {
    let world = World::start(2);
    let groups = world.join_to_receive(|rank| match rank {
        // Its reads time out, but the group does not fail.
        1 => chain(1, 2)(rank).stall_timeout(SHORT),
        _ => chain(1, 2)(rank).stall_timeout(Duration::MAX),
    });
    let gate = Arc::new(Gate::default());
    groups[0].try_send(gate.region(100_000)).unwrap();
    let mut message = groups[1].receive(PATIENCE).unwrap().expect("a message");
    let error = returns("reading", move || message.read_to_end(&mut Vec::new()).unwrap_err());
    let is_named = error.to_string().contains("group 1");
    assert!(error.get_ref().is_some_and(|cause| cause.is::<Error>()) && is_named, "{error}");
    gate.open();
    drop(groups);
    world.close();
}

/// Calls, in a callback, the waits of another group, which has no callbacks.
struct Waits {
    other: Arc<OnceLock<Arc<Group>>>,
    outcome: Sender<Result<(), Error>>,
}

impl Application for Waits {
    fn incoming(&mut self, _: u64, _: u64) -> Incoming {
        Incoming::Later
    }

    fn complete(&mut self, _: u64, _: Region) {
        let other = self.other.wait();
        let sent = other.send(Region::zeroed(10), Duration::MAX);
        let _ = self.outcome.send(sent.map(drop));
        let _ = self.outcome.send(other.receive(SHORT).map(drop));
    }
}

#[test]
fn callbacks_that_the_caller_runs_are_refused_waits_of_every_group() {
    for progress in [Progress::Thread, Progress::Caller] {
        let world = World::start_with(1, |settings| settings.progress = progress);
        let other = Arc::new(OnceLock::new());
        let (outcome, outcomes) = channel();
        let waits = Waits { other: Arc::clone(&other), outcome };
        let settings = among(chain(1, 1)(0), &world.addresses);
        let group = world.contexts[0].create_group_with(settings, waits).unwrap();
        let settings = among(chain(2, 1)(0), &world.addresses).send_queue_max(1);
        let receiving = Arc::new(world.contexts[0].create_group(settings).unwrap());
        if progress == Progress::Caller {
            // Only this thread could make progress.
            receiving.try_send(Region::zeroed(10)).unwrap();
        }
        other.set(Arc::clone(&receiving)).unwrap();
        group.try_send(Region::zeroed(10)).unwrap();
        group.wait_complete(1, PATIENCE).unwrap();
        let [sent, received] = [0, 1].map(|_| outcomes.recv_timeout(PATIENCE).expect("an outcome"));
        match progress {
            // They may wait, since another thread delivers the other group's events.
            Progress::Thread => {
                sent.unwrap();
                assert_timeout(received, "the next message of group 2");
            }
            _ => {
                assert!(matches!(sent, Ok(()) | Err(Error::QueueFull { .. })), "{sent:?}");
                assert!(matches!(received, Err(Error::InsideCallback(..))), "{received:?}");
            }
        }
        drop((group, receiving, other));
        world.close();
    }
}

#[test]
fn closing_a_context_waits_for_callbacks_that_other_threads_run() {
    let ranks = AtomicUsize::new(0);
    let mut world = World::start_with(2, |settings| {
        if ranks.fetch_add(1, Ordering::Relaxed) == 1 {
            settings.progress = Progress::Caller;
        }
    });
    let (stuck, is_called, let_go) = Stuck::new();
    let (recorder, _) = channel();
    let (root, receiver) = thread::scope(|scope| {
        let (contexts, addresses) = (&world.contexts, &world.addresses);
        let root =
            || contexts[0].create_group_with(among(chain(1, 2)(0), addresses), Recorder(recorder));
        let root = scope.spawn(root);
        let receiver = contexts[1].create_group_with(among(chain(1, 2)(1), addresses), stuck);
        (root.join().unwrap().unwrap(), receiver.unwrap())
    });
    root.try_send(Region::zeroed(5_000)).unwrap();
    let context = world.contexts.remove(1);
    thread::scope(|scope| {
        let driving = scope.spawn(|| receiver.wait_complete(1, PATIENCE));
        is_called.recv_timeout(PATIENCE).expect("a call");
        let closing = scope.spawn(|| context.close(PATIENCE));
        thread::sleep(SHORT);
        assert!(!closing.is_finished(), "a callback still runs");
        let_go.send(()).unwrap();
        closing.join().unwrap().unwrap();
        driving.join().unwrap().unwrap_err();
    });
    world.close();
}

#[test]
fn no_duration_is_too_long_to_wait_for() {
    let world = World::start_with(2, |settings| settings.connect_timeout = Duration::MAX);
    let groups = world.join(chain(1, 2));
    let sent = groups[0].0.try_send(Region::zeroed(5_000)).unwrap();
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
    receive_without_deadlines(Progress::Thread);
    let (secret, listener) =
        (Secret::from_bytes([1; 32]), TcpListener::bind("127.0.0.1:0").unwrap());
    let (address, never) = (listener.local_addr().unwrap(), Deadline::after(Duration::MAX));
    thread::scope(|scope| {
        scope.spawn(|| rendezvous::join(address, &secret, None, address, never).unwrap());
        rendezvous::host(&listener, &secret, 2, address, never).unwrap();
    });
}

fn receive_without_deadlines(progress: Progress) {
    let world = World::start_with(2, |settings| settings.progress = progress);
    let groups = world.join_to_receive(|rank| chain(1, 2)(rank).stall_timeout(Duration::MAX));
    thread::scope(|scope| {
        scope.spawn(|| {
            let sent = groups[0].send(Region::zeroed(5_000), Duration::MAX).unwrap();
            sent.into_region(Duration::MAX).unwrap();
            groups[0].close(Duration::MAX).unwrap();
        });
        for message in groups[1].messages(Duration::MAX) {
            let mut message = message.unwrap();
            message.read_to_end(&mut Vec::new()).unwrap();
            assert!(message.next_block(Duration::MAX).unwrap().is_some());
            message.wait(Duration::MAX).unwrap();
            message.into_region(Duration::MAX).unwrap();
        }
    });
    world.close();
}

#[test]
fn a_caller_that_drives_may_wait_for_ever() {
    receive_without_deadlines(Progress::Caller);
    let world = World::start_with(1, |settings| settings.progress = Progress::Caller);
    let groups = world.join(chain(1, 1));
    groups[0].0.try_send(Region::zeroed(10)).unwrap();
    assert!(world.contexts[0].progress(Duration::MAX).unwrap(), "the message is complete");
    groups[0].0.wait_complete(1, Duration::MAX).unwrap();
    groups[0].0.close(Duration::MAX).unwrap();
    for context in world.contexts {
        context.close(Duration::MAX).unwrap();
    }
}
