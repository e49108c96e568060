//! Threads that serve streams for the owner of a transport.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use transport::Waker;

use crate::{
    arrivals::Arrivals, command::Command, connections::Connections, counters::TcpCounters,
    driver::Driver, reports::Report, settings::TcpSettings, socket::Socket,
};

/// All threads but that of the owner, which is number 0.
pub(crate) struct Threads {
    all: Vec<Thread>,
    news: Receiver<(usize, News)>,
}

struct Thread {
    /// `None` when it has to end.
    commands: Option<Sender<Command<Socket>>>,
    waker: Waker,
    handle: Option<JoinHandle<()>>,
    /// Locked once in each turn of the thread, and by [`Threads::counters`].
    counters: Arc<Mutex<TcpCounters>>,
    /// It was given commands, and not woken since.
    has_commands: bool,
    is_lost: bool,
}

/// What a thread tells its owner.
enum News {
    Report(Report),
    /// It has panicked.
    Lost,
}

/// A thread's way to its owner.
struct Owner {
    number: usize,
    news: Sender<(usize, News)>,
    waker: Waker,
}

impl Threads {
    /// Starts threads, so that they are `count` with the owner's, whose driver is `local`. Errors: the system refuses a thread or a
    /// file descriptor.
    pub(crate) fn start(
        count: usize,
        settings: &TcpSettings,
        origin: Instant,
        local: &mut Driver,
    ) -> io::Result<Self> {
        let new = |_| Driver::new(Connections::elsewhere(settings.clone()), origin);
        let mut drivers = (1..count).map(new).collect::<io::Result<Vec<_>>>()?;
        let wakers = std::iter::once(&*local).chain(&drivers).map(Driver::waker);
        let arrivals = Arrivals::new(wakers);
        local.set_arrivals(arrivals.of(0));
        let (sender, news) = channel();
        let mut threads = Self { all: Vec::new(), news };
        for (driver, number) in drivers.iter_mut().zip(1..) {
            driver.set_arrivals(arrivals.of(number));
        }
        for (driver, number) in drivers.into_iter().zip(1..) {
            let owner = Owner { number, news: sender.clone(), waker: local.waker() };
            threads.all.push(Thread::start(driver, owner)?);
        }
        Ok(threads)
    }

    /// Gives each command to the thread of its number, which takes it before it parses anything that is read from now on.
    pub(crate) fn command(&mut self, commands: Vec<(usize, Command<Socket>)>) {
        for (number, command) in commands {
            if let Some(thread) = self.all.get_mut(number - 1)
                && let Some(commands) = &thread.commands
            {
                // If it is lost, that is or will be reported.
                thread.has_commands |= commands.send(command).is_ok();
            }
        }
    }

    /// Returns whether threads have to be woken.
    pub(crate) fn have_commands(&self) -> bool {
        self.all.iter().any(|thread| thread.has_commands)
    }

    /// Wakes the threads that were given commands.
    pub(crate) fn wake(&mut self) {
        for thread in self.all.iter_mut().filter(|thread| thread.has_commands) {
            thread.has_commands = false;
            (thread.waker)();
        }
    }

    /// Returns what a thread has reported, with its number; without a report if it was lost. `None` if there is nothing new.
    pub(crate) fn next_report(&mut self) -> Option<(usize, Option<Report>)> {
        let (number, news) = self.news.try_recv().ok()?;
        let thread = self.all.get_mut(number - 1)?;
        let report = match news {
            News::Report(report) => Some(report),
            News::Lost => {
                thread.is_lost = true;
                None
            }
        };
        Some((number, report))
    }

    pub(crate) fn has_lost_one(&self) -> bool {
        self.all.iter().any(|thread| thread.is_lost)
    }

    /// Returns the totals of each thread at its last turn.
    pub(crate) fn counters(&self) -> impl Iterator<Item = TcpCounters> {
        self.all.iter().map(|thread| *lock(&thread.counters))
    }
}

/// Ends all threads, and waits for that: each gives back its memory.
impl Drop for Threads {
    fn drop(&mut self) {
        for thread in &mut self.all {
            thread.commands = None;
            (thread.waker)();
        }
        for thread in &mut self.all {
            // A panic was reported.
            thread.handle.take().map(JoinHandle::join);
        }
    }
}

impl Thread {
    fn start(driver: Driver, owner: Owner) -> io::Result<Self> {
        let (sender, commands) = channel();
        let waker = driver.waker();
        let name = format!("rdmc-tcp-{}", owner.number);
        let counters = Arc::<Mutex<TcpCounters>>::default();
        let written = Arc::clone(&counters);
        let run = move || serve(driver, &commands, &owner, &written);
        let handle = Some(thread::Builder::new().name(name).spawn(run)?);
        let commands = Some(sender);
        Ok(Self { commands, waker, handle, counters, has_commands: false, is_lost: false })
    }
}

/// Serves streams until the owner has gone.
fn serve(
    mut driver: Driver,
    commands: &Receiver<Command<Socket>>,
    owner: &Owner,
    counters: &Mutex<TcpCounters>,
) {
    let mut has_owner = true;
    while has_owner {
        let take = || {
            let mut given = Vec::new();
            loop {
                match commands.try_recv() {
                    Ok(command) => given.push(command),
                    Err(TryRecvError::Empty) => return given,
                    Err(TryRecvError::Disconnected) => {
                        has_owner = false;
                        return given;
                    }
                }
            }
        };
        let report = driver.take_turn(take);
        *lock(counters) = driver.connections.counters();
        if let Some(report) = report {
            owner.tell(News::Report(report));
        }
    }
}

/// A thread that has panicked has left no counters half written.
fn lock(counters: &Mutex<TcpCounters>) -> MutexGuard<'_, TcpCounters> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owner {
    fn tell(&self, news: News) {
        // Sending fails only if the transport was dropped.
        if self.news.send((self.number, news)).is_ok() {
            (self.waker)();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if thread::panicking() {
            self.tell(News::Lost);
        }
    }
}
