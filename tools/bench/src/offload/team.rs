//! Members of groups in one process, each with a thread that does what a program's progress thread
//! does, and that can be made to stand still.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rdmc::{
    Application, CompletionMode, Context, ContextSettings, Fabric, Failure, Group, GroupSettings,
    Incoming, Progress, Protection, Region, Schedule, Secret,
};

use crate::delays::Delays;
use crate::{member::check_offload, outcome::Outcome};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest sleep of a member that waits for completions; something to do ends it.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// What a group is like.
#[derive(Clone, Debug)]
pub struct Shape {
    pub schedule: Schedule,
    pub blocks: u32,
    pub block_bytes: u64,
    pub offload: bool,
}

/// Running members, ended when dropped.
pub struct Team {
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
pub struct Crowd {
    groups: Vec<Group>,
    object: Region,
    told: Receiver<Told>,
}

enum Told {
    Received(usize, Instant),
    Complete,
    Failed(Failure),
}

impl Team {
    /// Starts this many members on this host.
    pub fn start(members: u32, fabric: &Fabric, completion: CompletionMode) -> Outcome<Self> {
        let secret = Secret::random()?;
        let start = |_| Member::start(fabric, completion, &secret);
        let members = (0..members).map(start).collect::<Outcome<Vec<Member>>>()?;
        let addresses = members.iter().map(|member| member.context.address()).collect();
        Ok(Self { members, addresses, groups: 0 })
    }

    /// A group of all. Errors: the fabric cannot offload, and the shape says so.
    pub fn join(&mut self, shape: &Shape) -> Outcome<Crowd> {
        self.groups += 1;
        let number = self.groups;
        let (sender, told) = mpsc::channel();
        let addresses = &self.addresses;
        let groups = at_once(self.members.iter().enumerate(), |(rank, member)| {
            let mut settings = GroupSettings::new(number, addresses.clone(), rank as u32)
                .schedule(shape.schedule.clone());
            settings.block_bytes = shape.block_bytes;
            settings.offload = shape.offload;
            // So that the thread that drives a member knows when blocks have come.
            settings.report_blocks = true;
            settings.small = None;
            let memory = Region::from_vec(vec![1; shape.bytes()]);
            let recorder = Recorder { rank, memory, told: sender.clone() };
            let group = member.context.create_group_with(settings, recorder)?;
            check_offload(&group)?;
            Ok(group)
        })?;
        Ok(Crowd { groups, object: Region::from_vec(vec![7; shape.bytes()]), told })
    }

    /// Sends a message, while the member of rank `late` is delayed. Blocks until all have it, and
    /// answers how long it took until all but that one had.
    pub fn deliver(&self, crowd: &Crowd, late: usize, delays: Delays) -> Outcome<Duration> {
        let others = self.members.len() - 2;
        let (mut received, mut complete, mut last) = (0, 0, Duration::ZERO);
        let start = Instant::now();
        *lock(&self.members[late].delays) = Some(delays);
        crowd.groups[0].try_send(crowd.object.clone())?;
        while complete < self.members.len() {
            match crowd.told.recv_timeout(PATIENCE).map_err(|_| "nothing came for a minute")? {
                Told::Received(rank, at) if rank != late => {
                    last = last.max(at.saturating_duration_since(start));
                    received += 1;
                }
                Told::Received(..) => {}
                Told::Complete => complete += 1,
                Told::Failed(failure) => return Err(failure.into()),
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

impl Crowd {
    /// Closes the group at all members. Errors: something was not delivered.
    pub fn close(self) -> Outcome<()> {
        at_once(self.groups.iter(), |group| Ok(group.close(PATIENCE)?)).map(drop)
    }
}

impl Member {
    fn start(fabric: &Fabric, completion: CompletionMode, secret: &Secret) -> Outcome<Self> {
        let mut settings = ContextSettings::new((Ipv4Addr::LOCALHOST, 0).into(), secret.clone());
        settings.progress = Progress::Caller;
        settings.fabric = fabric.clone();
        settings.protection = Protection::None;
        settings.connect_timeout = PATIENCE;
        let context = Arc::new(Context::start(settings)?);
        let (delays, stop) = (Arc::default(), Arc::default());
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

/// What a context's progress thread does, but for the delays: the system lets other programs run
/// when this one has been woken by a block.
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
        let was_told = context.progress(wait).unwrap_or(false);
        let delay = lock(delays).as_mut().filter(|_| was_told).and_then(Delays::draw);
        if let Some(delay) = delay {
            thread::sleep(delay);
        }
    }
}

/// Does something for all of them at once, since each waits for the others.
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
    told: Sender<Told>,
}

impl Recorder {
    fn tell(&self, told: Told) {
        // Nobody listens once something has failed.
        let _ = self.told.send(told);
    }
}

impl Application for Recorder {
    fn incoming(&mut self, _message: u64, _bytes: u64) -> Incoming {
        Incoming::Into(self.memory.clone())
    }

    fn received(&mut self, _message: u64) {
        self.tell(Told::Received(self.rank, Instant::now()));
    }

    fn complete(&mut self, _message: u64, _region: Region) {
        self.tell(Told::Complete);
    }

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        self.tell(Told::Failed(failure.clone()));
    }
}
