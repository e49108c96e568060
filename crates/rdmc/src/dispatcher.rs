//! Converts a group's events into calls of its application.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use engine::Event;
use transport::Region;

use crate::{
    Application, Error, Failure, FailureKind, Incoming,
    inbox::Given,
    outlet::{Due, Outlet},
    panics::panic_text,
    shared::Shared,
};

/// Keeps a group registered in switches until it is dropped. Dropping it may block.
pub(crate) type Registration = Box<dyn Any + Send>;

/// Converts a group's events into calls of its application.
pub(crate) struct Dispatcher {
    /// `None` once the last call has returned.
    application: Option<Box<dyn Application>>,
    shared: Arc<Shared>,
    /// The text of the application's panic.
    panicked: Option<String>,
    /// Memory of messages that completed after the panic; returned by `failed`.
    held_back: Vec<(u64, Region)>,
    /// Dropped on the thread that runs callbacks, since removing a group from switches may block.
    registration: Option<Registration>,
}

impl Dispatcher {
    pub(crate) fn new(
        application: Box<dyn Application>,
        shared: Arc<Shared>,
        registration: Option<Registration>,
    ) -> Self {
        let (application, held_back) = (Some(application), Vec::new());
        Self { application, shared, panicked: None, held_back, registration }
    }

    pub(crate) fn deliver(&mut self, event: Event) {
        let Some(event) = self.due(event) else { return };
        self.shared.note(&event);
        let Some(application) = self.application.as_mut().filter(|_| !self.shared.is_abandoned())
        else {
            return;
        };
        // After a panic only `failed` is called, and the application must be able to handle that
        // call.
        let call = AssertUnwindSafe(|| call(application.as_mut(), &self.shared, event));
        match catch_unwind(call) {
            Ok(None) => {}
            Ok(Some(whole)) => self.deliver_whole(whole),
            Err(panic) => {
                let cause = format!("callback panicked: {}", panic_text(&*panic));
                self.shared.abort(&cause);
                self.panicked.get_or_insert(cause);
            }
        }
    }

    /// Delivers what remains of a message that was copied here.
    fn deliver_whole(&mut self, Whole { message, bytes, region }: Whole) {
        let group = self.shared.settings.number;
        if self.shared.settings.report_blocks {
            self.deliver(Event::Block { group, message, offset: 0, bytes });
        }
        self.deliver(Event::Received { group, message });
        self.deliver(Event::Complete { group, message, region });
    }

    /// Drops the application after the last callback, before the group is reported as finished.
    pub(crate) fn finish(&mut self) {
        let gone = (self.application.take(), self.registration.take());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(gone))) {
            tracing::warn!(
                panic = panic_text(&*panic),
                "an application panicked as it was dropped"
            );
        }
        self.shared.set_finished();
    }

    /// Returns the event to deliver. After a panic that is only the group's failure, which returns
    /// all memory to the application.
    fn due(&mut self, event: Event) -> Option<Event> {
        let Some(cause) = &self.panicked else { return Some(event) };
        match event {
            Event::Complete { message, region, .. } => {
                self.held_back.push((message, region));
                None
            }
            Event::Failed { failure, regions } => {
                let mut all = std::mem::take(&mut self.held_back);
                all.extend(regions);
                Some(Event::Failed { failure, regions: all })
            }
            // All members have all messages, but this member's application has missed callbacks.
            Event::Closed { group } => {
                let (rank, detail) = (self.shared.settings.rank, cause.clone());
                let (member, kind) = (Some(rank), FailureKind::Application);
                let failure = Failure { group, member, reporter: rank, kind, detail, delivered: 0 };
                Some(Event::Failed { failure, regions: std::mem::take(&mut self.held_back) })
            }
            _ => None,
        }
    }
}

/// Callbacks run by the thread that makes progress, with `Progress::Caller`.
impl Outlet for Arc<Mutex<Dispatcher>> {
    fn take(&mut self, event: Event, due: &mut Due) -> Given {
        let dispatcher = Arc::clone(self);
        due.push(Box::new(move || {
            let mut dispatcher = dispatcher.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let is_last = event.is_last();
            dispatcher.deliver(event);
            if is_last {
                dispatcher.finish();
            }
        }));
        Given::new()
    }
}

/// A message that was copied out of its slot, and is not reported yet.
struct Whole {
    message: u64,
    bytes: u64,
    region: Region,
}

fn call(application: &mut dyn Application, shared: &Shared, event: Event) -> Option<Whole> {
    match event {
        Event::Incoming { message, bytes, slot, .. } => {
            let outcome = match application.incoming(message, bytes) {
                Incoming::Into(region) => match slot {
                    Some(slot) => shared.accept_from(&slot, message, region),
                    None => shared.accept(message, region).map(|()| None),
                },
                Incoming::Later => Ok(None),
                Incoming::Refuse(reason) => {
                    shared.abort(&format!("message {message} refused: {reason}"));
                    Ok(None)
                }
            };
            match outcome {
                Ok(region) => return region.map(|region| Whole { message, bytes, region }),
                // A group that has failed or closed in the meantime does not fail again.
                Err(Error::Failed(_) | Error::Closed(_) | Error::ContextClosed) => {}
                Err(error) => shared.abort(&error.to_string()),
            }
        }
        Event::Block { message, offset, bytes, .. } => application.block(message, offset, bytes),
        Event::Received { message, .. } => application.received(message),
        Event::Complete { message, region, .. } => application.complete(message, region),
        Event::Delivered { count, .. } => application.delivered(count),
        Event::Failed { failure, regions } => application.failed(&failure, regions),
        Event::Closed { .. } => application.closed(),
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };

    use crossbeam_channel::Receiver;
    use engine::Engine;
    use transport_sim::{SimConfig, SimNet, SimTransport};

    use super::*;
    use crate::{
        Algorithm, GroupSettings, Offload, SmallMessages,
        commands::{Command, Commands},
    };

    const SLOTS: u32 = 16;

    /// A receiver's application, which records its calls.
    struct Recorder {
        calls: crossbeam_channel::Sender<String>,
        answer: fn(u64) -> Incoming,
    }

    impl Application for Recorder {
        fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
            let _ = self.calls.send(format!("incoming {message} of {bytes} bytes"));
            (self.answer)(bytes)
        }

        fn block(&mut self, message: u64, offset: u64, bytes: u64) {
            let _ = self.calls.send(format!("block {message} {offset}+{bytes}"));
        }

        fn received(&mut self, message: u64) {
            let _ = self.calls.send(format!("received {message}"));
        }

        fn complete(&mut self, message: u64, region: Region) {
            let contents = region.try_into_vec().expect("no other reference");
            let _ = self.calls.send(format!("complete {message} {contents:?}"));
        }
    }

    /// A root and a receiver on a simulated network; the receiver's events go to its dispatcher.
    struct Pair {
        network: SimNet,
        engines: Vec<Engine<SimTransport>>,
        dispatcher: Dispatcher,
        commands: Receiver<Command>,
        wakes: Arc<AtomicU32>,
        calls: Receiver<String>,
    }

    impl Pair {
        fn new(answer: fn(u64) -> Incoming) -> Self {
            let network = SimNet::new(SimConfig::IDEAL, 1);
            let transports = network.members(2);
            let (own, theirs) = network.connect(0, 1);
            let settings = |rank| {
                let addresses = vec![([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()];
                let mut settings =
                    GroupSettings::new(1, addresses, rank).schedule(Algorithm::Chain);
                settings.small = Some(SmallMessages { slots: SLOTS, ..SmallMessages::default() });
                settings.report_blocks = true;
                let made = engine::GroupSettings::try_from(&settings).unwrap();
                (settings, made)
            };
            let mut engines: Vec<_> = transports.into_iter().map(Engine::new).collect();
            engines[0].create(settings(0).1, vec![(1, own)]).unwrap();
            engines[1].create(settings(1).1, vec![(0, theirs)]).unwrap();
            let wakes = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&wakes);
            let waker = Arc::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            let (sender, commands) = Commands::new(waker);
            let (settings, made) = settings(1);
            let shared = Shared::new(settings, made, Offload::NotAsked, sender, None, None);
            let (sender, calls) = crossbeam_channel::unbounded();
            let application = Box::new(Recorder { calls: sender, answer });
            let dispatcher = Dispatcher::new(application, shared, None);
            let commands = commands.receiver;
            Self { network, engines, dispatcher, commands, wakes, calls }
        }

        /// Sends messages of these contents and delivers the receiver's events. Returns the calls of its
        /// application since the last time.
        fn send(&mut self, messages: &[&[u8]]) -> Vec<String> {
            for contents in messages {
                self.engines[0].send(1, Region::from_vec(contents.to_vec())).unwrap();
            }
            self.run();
            self.calls.try_iter().collect()
        }

        fn run(&mut self) {
            let mut events = Vec::new();
            loop {
                self.engines[0].progress(Duration::ZERO, &mut Vec::new());
                self.engines[1].progress(Duration::ZERO, &mut events);
                if events.is_empty() && self.network.step().is_none() {
                    return;
                }
                events.drain(..).for_each(|event| self.dispatcher.deliver(event));
            }
        }

        /// Executes the pending commands, and returns how many there were.
        fn take_commands(&mut self) -> usize {
            let commands: Vec<Command> = self.commands.try_iter().collect();
            let count = commands.len();
            for command in commands {
                match command {
                    Command::Taken { group, message } => self.engines[1].taken(group, message),
                    Command::Accept { group, message, region } => {
                        self.engines[1].accept(group, message, region)
                    }
                    _ => panic!("another command"),
                }
                .unwrap();
            }
            self.run();
            count
        }

        fn wakes(&self) -> u32 {
            self.wakes.load(Ordering::Relaxed)
        }
    }

    fn into_own(bytes: u64) -> Incoming {
        Incoming::Into(Region::zeroed(bytes as usize))
    }

    #[test]
    fn a_small_message_takes_one_hand_over() {
        let mut pair = Pair::new(into_own);
        for message in 0..3 {
            let calls = pair.send(&[&[7, 8, message]]);
            let expected = [
                format!("incoming {message} of 3 bytes"),
                format!("block {message} 0+3"),
                format!("received {message}"),
                format!("complete {message} [7, 8, {message}]"),
            ];
            assert_eq!(calls, expected);
        }
        assert_eq!(pair.wakes(), 0, "the thread that makes progress is not woken");
        assert_eq!(pair.engines[1].counters().small_received, 0);
        assert_eq!(pair.take_commands(), 3);
        assert_eq!(pair.engines[1].counters().small_received, 3);
        assert_eq!(pair.calls.len(), 0, "nothing is reported twice");
    }

    #[test]
    fn slots_are_freed_in_batches() {
        let mut pair = Pair::new(into_own);
        let contents: Vec<&[u8]> = vec![&[1, 2]; SLOTS as usize + 1];
        let calls = pair.send(&contents);
        assert_eq!(calls.len(), 4 * SLOTS as usize, "the ring bounds what is under way");
        assert_eq!(pair.wakes(), 4, "a quarter of the ring is freed at once");
        assert_eq!(pair.take_commands(), SLOTS as usize);
        assert_eq!(pair.calls.len(), 4, "the last one has got a slot");
    }

    #[test]
    fn a_message_behind_one_without_memory_waits_for_its_turn() {
        let later = |bytes| if bytes == 1 { Incoming::Later } else { into_own(bytes) };
        let mut pair = Pair::new(later);
        assert_eq!(pair.send(&[&[1], &[2, 2]]), ["incoming 0 of 1 bytes", "incoming 1 of 2 bytes"]);
        assert_eq!((pair.wakes(), pair.take_commands()), (1, 1));
        let calls = |pair: &Pair| pair.calls.try_iter().collect::<Vec<_>>();
        assert_eq!(calls(&pair), ["block 1 0+2"]);
        pair.dispatcher.shared.accept(0, Region::zeroed(1)).unwrap();
        assert_eq!((pair.wakes(), pair.take_commands()), (2, 1));
        let both =
            ["block 0 0+1", "received 0", "received 1", "complete 0 [1]", "complete 1 [2, 2]"];
        assert_eq!(calls(&pair), both);
    }

    /// Sends these messages, and closes if asked; the receiver's thread of callbacks is slow, and takes the
    /// events once the other thread waits. Returns how often it is woken for the first one.
    fn wakes_after_one(messages: &[usize], close: bool) -> (u32, Pair) {
        let mut pair = Pair::new(into_own);
        for &bytes in messages {
            pair.engines[0].send(1, Region::zeroed(bytes)).unwrap();
        }
        if close {
            pair.engines[0].close(1).unwrap();
        }
        let mut events = Vec::new();
        loop {
            pair.engines[0].progress(Duration::ZERO, &mut Vec::new());
            pair.engines[1].progress(Duration::ZERO, &mut events);
            if pair.network.step().is_none() {
                break;
            }
        }
        pair.dispatcher.deliver(events.remove(0));
        let wakes = pair.wakes();
        events.drain(..).for_each(|event| pair.dispatcher.deliver(event));
        while pair.take_commands() > 0 {}
        (wakes, pair)
    }

    #[test]
    fn what_waits_for_a_reply_wakes_the_worker() {
        let large = SmallMessages::default().bytes_max as usize + 1;
        let (wakes, pair) = wakes_after_one(&[1], true);
        assert_eq!(wakes, 1, "closing waits for the message");
        assert!(pair.dispatcher.shared.status().closed);
        let (wakes, pair) = wakes_after_one(&[1, large], false);
        assert_eq!(wakes, 1, "events of a relayed message wait for it");
        assert_eq!(pair.dispatcher.shared.status().completed, 2);
        let (wakes, pair) = wakes_after_one(&[1, 1], false);
        assert_eq!((wakes, pair.wakes()), (0, 0), "nothing waits for it");
        assert_eq!(pair.dispatcher.shared.status().completed, 2);
    }
}
