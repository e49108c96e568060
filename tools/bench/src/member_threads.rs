//! Members of groups in one process, each with a thread in place of the library's progress thread,
//! which can be made to pause.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rdmc::{
    Application, CompletionMode, Context, ContextSettings, Failure, Group, GroupSettings, Incoming,
    Progress, Region, Schedule, Secret, Window,
};

use crate::{
    delays::Delays,
    member::{Equipment, check_offload},
    outcome::Outcome,
};

/// For connecting, each message, and closing.
pub const TIMEOUT: Duration = Duration::from_secs(120);
/// The longest sleep of a member that waits for completions; an event ends it.
const SLEEP_MAX: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct Shape {
    pub schedule: Schedule,
    pub blocks: u32,
    pub block_bytes: u64,
    pub offload: bool,
}

/// Running members, ended when dropped.
pub struct MemberThreads {
    members: Vec<Member>,
    addresses: Vec<SocketAddr>,
    groups: u64,
}

struct Member {
    context: Arc<Context>,
    delays: Arc<Mutex<Option<Delays>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// One group at all members, by rank.
pub struct JoinedGroup {
    groups: Vec<Group>,
    object: Region,
    events: Receiver<Event>,
}

enum Event {
    Received(usize, Instant),
    Complete,
    Failed(Failure),
}

impl MemberThreads {
    /// Starts this many members, which use these addresses of this host in rotation.
    pub fn start(members: u32, addresses: &[IpAddr], equipment: &Equipment) -> Outcome<Self> {
        let secret = Secret::random()?;
        let addresses = addresses.iter().cycle().take(members as usize);
        let start = |&address| Member::start(address, equipment, &secret);
        let members = addresses.map(start).collect::<Outcome<Vec<Member>>>()?;
        let addresses = members.iter().map(|member| member.context.address()).collect();
        Ok(Self { members, addresses, groups: 0 })
    }

    /// Of the members, by rank.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Calls `run` with the rank and the context of each member, all at once.
    pub fn run<R: Send>(
        &self,
        run: impl Fn(u32, &Context) -> Outcome<R> + Sync,
    ) -> Outcome<Vec<R>> {
        at_once((0..).zip(&self.members), |(rank, member)| run(rank, &member.context))
    }

    /// A group of all members. Errors: the shape has offload, and the fabric cannot.
    pub fn join(&mut self, shape: &Shape) -> Outcome<JoinedGroup> {
        self.groups += 1;
        let number = self.groups;
        let (sender, events) = mpsc::channel();
        let addresses = &self.addresses;
        let groups = self.run(|rank, context| {
            let mut settings = GroupSettings::new(number, addresses.clone(), rank)
                .schedule(shape.schedule.clone());
            settings.block_bytes = Some(shape.block_bytes);
            settings.window = Some(Window::default());
            settings.offload = shape.offload;
            // So that the thread that drives a member is notified of blocks.
            settings.report_blocks = true;
            settings.small = None;
            let memory = Region::from_vec(vec![1; shape.bytes()]);
            let recorder = Recorder { rank: rank as usize, memory, events: sender.clone() };
            let group = context.create_group_with(settings, recorder)?;
            check_offload(&group)?;
            Ok(group)
        })?;
        Ok(JoinedGroup { groups, object: Region::from_vec(vec![7; shape.bytes()]), events })
    }

    /// Sends a message, while the member of rank `late` is delayed. Blocks until all have it, and
    /// answers how long it took until all but that one had.
    pub fn deliver(&self, group: &JoinedGroup, late: usize, delays: Delays) -> Outcome<Duration> {
        let others = self.members.len() - 2;
        let (mut received, mut complete, mut last) = (0, 0, Duration::ZERO);
        let start = Instant::now();
        *lock(&self.members[late].delays) = Some(delays);
        group.groups[0].try_send(group.object.clone())?;
        while complete < self.members.len() {
            match group
                .events
                .recv_timeout(TIMEOUT)
                .map_err(|_| "nothing arrived for two minutes")?
            {
                Event::Received(rank, at) if rank != late => {
                    last = last.max(at.saturating_duration_since(start));
                    received += 1;
                }
                Event::Received(..) => {}
                Event::Complete => complete += 1,
                Event::Failed(failure) => return Err(failure.into()),
            }
            if received == others {
                *lock(&self.members[late].delays) = None;
            }
        }
        Ok(last)
    }
}

impl Shape {
    fn bytes(&self) -> usize {
        self.blocks as usize * self.block_bytes as usize
    }
}

impl JoinedGroup {
    /// Closes the group at all members. Errors: something was not delivered.
    pub fn close(self) -> Outcome<()> {
        at_once(self.groups.iter(), |group| Ok(group.close(TIMEOUT)?)).map(drop)
    }
}

impl Member {
    fn start(address: IpAddr, equipment: &Equipment, secret: &Secret) -> Outcome<Self> {
        let mut settings = ContextSettings::new((address, 0).into(), secret.clone());
        settings.progress = Progress::Caller;
        settings.fabric = equipment.fabric.clone();
        settings.protection = Some(equipment.protection());
        settings.tcp.direct_copies = !equipment.through_sockets;
        settings.connect_timeout = TIMEOUT;
        let context = Arc::new(Context::start(settings)?);
        let (delays, stop) = (Arc::default(), Arc::default());
        let completion = equipment.completion;
        let thread = {
            let (context, delays, stop) =
                (Arc::clone(&context), Arc::clone(&delays), Arc::clone(&stop));
            thread::spawn(move || drive(&context, completion, &delays, &stop))
        };
        Ok(Self { context, delays, stop, thread: Some(thread) })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Like a context's progress thread, with delays in which other programs run.
fn drive(
    context: &Context,
    completion: CompletionMode,
    delays: &Mutex<Option<Delays>>,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        let wait = match completion {
            CompletionMode::Polling => {
                thread::yield_now();
                Duration::ZERO
            }
            _ => SLEEP_MAX,
        };
        // Refused only once the context is closed.
        let has_events = context.progress(wait).unwrap_or(false);
        let delay = lock(delays).as_mut().filter(|_| has_events).and_then(Delays::draw);
        if let Some(delay) = delay {
            thread::sleep(delay);
        }
    }
}

/// Calls `what` for all of them at once, since each waits for the others.
fn at_once<T: Send, R: Send>(
    all: impl Iterator<Item = T>,
    what: impl Fn(T) -> Outcome<R> + Sync,
) -> Outcome<Vec<R>> {
    let what = &what;
    thread::scope(|scope| {
        let threads: Vec<_> = all.map(|one| scope.spawn(move || what(one))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a member panicked")?).collect()
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A member's callbacks; messages come one at a time, each into the same memory.
struct Recorder {
    rank: usize,
    memory: Region,
    events: Sender<Event>,
}

impl Recorder {
    fn send(&self, event: Event) {
        // The receiver is gone after a failure.
        let _ = self.events.send(event);
    }
}

impl Application for Recorder {
    fn incoming(&mut self, _message: u64, _bytes: u64) -> Incoming {
        Incoming::Into(self.memory.clone())
    }

    fn received(&mut self, _message: u64) {
        self.send(Event::Received(self.rank, Instant::now()));
    }

    fn complete(&mut self, _message: u64, _region: Region) {
        self.send(Event::Complete);
    }

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        self.send(Event::Failed(failure.clone()));
    }
}
