//! A context: one member's endpoint in the network, with all groups in which the member takes part.

use std::{
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use session::{Deadline, Threads};
use transport::{Region, Transport};

#[cfg(feature = "switch")]
use crate::creation::in_switch;
use crate::{
    Algorithm, Application, ContextSettings, Counters, Error, Fabric, Group, GroupSettings,
    Offload, Progress, Protection, Team, TeamSettings, Waited,
    asking::Asking,
    caller::Caller,
    commands::{Command, Commands},
    creation::{
        choice::parent,
        creating::Creating,
        dialing::{Connecting, Dialer},
        joining::Joining,
        links::{Links, Wire},
        listening::LinkListener,
        messages::Sharing,
        steps::{Reply, Step},
    },
    disks::DiskThreads,
    dispatcher::{Dispatcher, Registration},
    inbox::Inbox,
    network::{GroupEnd, Link, Network},
    numbers::Numbers,
    outbox::events,
    outlet::{Job, Outlet},
    own_link::Offers,
    receiving::Receiving,
    shared::Shared,
    team_driver::{self, Driver},
    worker::Worker,
};

/// How long a caller waits beyond the timeout of a creation for a busy worker, which ends the creation at the timeout.
const CREATION_GRACE: Duration = Duration::from_secs(2);

/// How long a thread that creates a group makes progress before it checks the result again; and how long it waits while another
/// thread has the worker.
const PROGRESS_TIME: Duration = Duration::from_millis(100);
const WORKER_PAUSE: Duration = Duration::from_millis(20);

/// How much memory is registered at a time, in bytes. The context makes no progress meanwhile.
const REGISTER_BYTES: usize = 256 << 20;

/// How long closing a context waits until the neighbours of failed groups have received the reason.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of the close that dropping a context performs.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// One member's endpoint in the network. A process can have several contexts; there is no global state.
///
/// Threads: one accepts connections; one per group with messages in files reads and writes these files. With
/// [`Progress::Thread`], one makes progress, one per group with callbacks runs the callbacks, and one, for all
/// other groups, frees memory that the application does not take back. All threads have ended when
/// [`Context::close`] returns successfully.
pub struct Context {
    settings: ContextSettings,
    can_offload: bool,
    offers: Offers,
    dialer: Arc<Dialer>,
    listener: LinkListener,
    commands: Commands,
    disks: Arc<DiskThreads>,
    numbers: Numbers,
    /// With [`Progress::Caller`].
    caller: Option<Arc<Caller>>,
    /// With [`Progress::Thread`], until a thread runs the jobs: those of groups without callbacks.
    jobs: Mutex<Option<Receiver<Job>>>,
    threads: Threads,
    closed: bool,
}

impl Context {
    /// Starts a context: its listener and, with [`Progress::Thread`], its progress thread.
    ///
    /// # Errors
    /// The context cannot listen on the address, this host does not have the fabric, a system call
    /// fails, or a setting is out of range.
    pub fn start(settings: ContextSettings) -> Result<Self, Error> {
        settings.check()?;
        let system = |what: &str| {
            let what = what.to_owned();
            move |error| Error::System { what, error }
        };
        let tcp = settings.threaded_tcp();
        let mut transport = Network::start(&settings.fabric, settings.listen.ip(), &tcp)?;
        let (offers, can_offload) = (transport.offers(), transport.triggered().is_some());
        let disks = Arc::new(DiskThreads::new(transport.waker()));
        let (commands, receiver) = Commands::new(transport.waker());
        let connecting = Connecting {
            secret: settings.secret.clone(),
            sharing: Sharing::of(&settings),
            tcp,
            refusals: Arc::default(),
            commands: commands.clone(),
        };
        let identity = session::random_id().map_err(system("naming a context"))?;
        let dialer = Arc::new(Dialer::new(connecting.clone()));
        let creating = Creating::new(identity, Arc::clone(&dialer), commands.clone());
        let (completion, waiting) = (settings.completion, Arc::clone(&disks));
        let worker = Worker::new(transport, completion, waiting, creating, receiver);
        let listener = LinkListener::start(settings.listen, settings.peers.clone(), connecting)?;
        let mut context = Self {
            settings,
            can_offload,
            offers,
            dialer,
            listener,
            commands,
            disks,
            numbers: Numbers::default(),
            caller: None,
            jobs: Mutex::default(),
            threads: Threads::default(),
            closed: false,
        };
        match context.settings.progress {
            Progress::Caller => {
                let caller = Caller::new(worker, context.commands.clone());
                context.caller = Some(Arc::new(caller));
            }
            Progress::Thread => {
                let (sender, jobs) = unbounded();
                context.jobs = Mutex::new(Some(jobs));
                context
                    .threads
                    .spawn("rdmc-progress", "the progress thread".into(), move || {
                        worker.run(&sender);
                    })
                    .map_err(system("starting the progress thread"))?;
            }
        }
        Ok(context)
    }

    /// Returns the address on which this context listens, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Creates a group, together with all its other members, which must make the same call with equal
    /// settings (except for those that are each member's own). Connects this member to its neighbours in
    /// the schedule, and blocks until all are connected, for at most
    /// [`GroupSettings::connect_timeout`].
    ///
    /// With [`crate::Algorithm::InSwitch`] the call also blocks until the switches are configured.
    ///
    /// Messages are received by [`Group::receive`]. The number of a group that has ended or was dropped may be reused.
    ///
    /// # Errors
    /// A setting is out of range; the number is in use; a member is unreachable, refuses,
    /// has different settings (the error names the difference), or does not connect in time;
    /// [`Error::InSwitch`].
    pub fn create_group(&self, mut settings: GroupSettings) -> Result<Group, Error> {
        settings.report_blocks = true;
        self.create(settings, None)
    }

    /// Creates a group as [`Context::create_group`] does, but messages are received through the callbacks of
    /// `application`.
    ///
    /// # Errors
    /// As for [`Context::create_group`].
    pub fn create_group_with(
        &self,
        settings: GroupSettings,
        application: impl Application,
    ) -> Result<Group, Error> {
        self.create(settings, Some(Box::new(application)))
    }

    /// Without `application`, the group has an inbox.
    fn create(
        &self,
        settings: GroupSettings,
        application: Option<Box<dyn Application>>,
    ) -> Result<Group, Error> {
        let timeout = settings.connect_timeout.unwrap_or(self.settings.connect_timeout);
        let deadline = Deadline::after(timeout);
        let number = settings.number;
        let settings = self.agree(settings, deadline)?;
        let made = engine::GroupSettings::try_from(&settings)?;
        settings.check_known(&made.neighbours())?;
        self.check_in_switch(&made)?;
        let offload = Offload::of(&made, self.can_offload);
        let inbox = Inbox::new(settings.number, settings.receive_bytes_max);
        let inbox = application.is_none().then_some(inbox);
        let (commands, caller) = (self.commands.clone(), self.caller.clone());
        let shared = Shared::new(settings, made, offload, commands, caller, inbox);
        self.numbers.reserve(&shared, deadline)?;
        let created = self.connect_and_create(&shared, application, deadline);
        let sharing = created.inspect_err(|_| {
            self.numbers.give_back(number);
            // A worker that has ended answers no questions.
            let _ = self.commands.give(Command::Create(Box::new(Step::Forget { number })));
        })?;
        Ok(Group::new(shared, sharing))
    }

    /// Completes the settings: the root chooses what they leave open; any other member asks its parent for the
    /// root's choice. Blocks until the deadline at most.
    ///
    /// Errors: a setting is out of range; a member is unreachable, has other settings, or does not answer in time.
    fn agree(&self, settings: GroupSettings, deadline: Deadline) -> Result<GroupSettings, Error> {
        self.commands.check()?;
        let members = u32::try_from(settings.members.len()).unwrap_or(u32::MAX);
        let asked = parent(settings.rank, settings.root, members);
        let Some(member) = asked.filter(|_| settings.is_open()) else {
            return Ok(settings.chosen_by_root(&self.settings));
        };
        // With placeholders for the open settings: the other settings are checked before any member is asked.
        let any = settings.clone().with_choice(Algorithm::Chain, 1);
        self.check_in_switch(&engine::GroupSettings::try_from(&any)?)?;
        self.numbers.await_unused(settings.number, deadline)?;
        let address = settings.members[member as usize];
        let joining = Joining::for_choice(&settings, member, &self.settings);
        let choice = self.join(joining, deadline, self.offers.clone(), Reply::Choice)?;
        choice.apply(settings).map_err(|cause| Error::Member { member, address, cause })
    }

    /// Creates a team, together with all its other members, which must make the same call with equal
    /// settings. Blocks until this member's links are connected, for at most
    /// [`TeamSettings::connect_timeout`].
    ///
    /// A team has its own network, over this context's fabric, and, with [`Progress::Thread`], its own
    /// thread. In place of TCP, links between processes of one user on one machine go through shared memory
    /// ([`Team::shares_memory_with`]), unless there is a rate limit or [`crate::TcpSettings::direct_copies`] is off. Links close
    /// within [`crate::TcpSettings::drain_timeout`], but at most 5 seconds, or within 10 seconds over libfabric. An operation that
    /// fails may wait for the links to close.
    ///
    /// # Errors
    /// As for [`Context::create_group`]; [`Error::TeamCall`] if the fabric has no one-sided writes.
    pub fn create_team(&self, settings: TeamSettings) -> Result<Team, Error> {
        let ContextSettings { fabric, listen, .. } = &self.settings;
        let mut made = settings.made(fabric, true);
        made.check()?;
        self.commands.check()?;
        // All that a team does is on the first stream of a link.
        let tcp = self.settings.limited_tcp().threads(None);
        let drain_timeout = tcp.drain_timeout.min(team_driver::DRAIN_MAX);
        let tcp = tcp.drain_timeout(drain_timeout);
        let mut network = Network::start(fabric, listen.ip(), &tcp)?;
        let is_crowded = settings.is_crowded();
        let shm = network.shared_memory(&tcp, is_crowded);
        let offers = match &shm {
            Some(_) => Offers::SharedMemory(tcp.clone()),
            None => network.offers(),
        };
        let joining = Joining::for_team(&settings, &made, &self.settings);
        let deadline = Deadline::after(joining.timeout);
        let links = self.join(joining, deadline, offers, Reply::Links)?;
        let links = self.links(links, &settings.members, None)?;
        let shared = sharing_memory(&links);
        if shared.len() < links.len() {
            made = settings.made(fabric, false);
        }
        if let Some(shm) = shm.filter(|_| !shared.is_empty()) {
            network = network.beside(shm)?;
        }
        let driver = Arc::new(Driver::new(team::Team::new(network, made, links)?, is_crowded));
        let threads = Threads::default();
        if let Err(error) = driver.join(deadline) {
            // Other members receive the reason.
            driver.shut_down(&threads);
            return Err(error);
        }
        if self.settings.progress == Progress::Thread {
            driver.start(&threads)?;
        }
        Ok(Team::new(settings, shared, driver, threads))
    }

    /// Creates a team of those members of a team of this context that give the same color, ordered by key, and by rank where keys
    /// are equal. Returns `None` without a color. All members of the team make this call, in the same order as operations; it
    /// blocks for `timeout` at most.
    ///
    /// The new team has links of its own, and the settings of the team but for its number, which follows from the team's, from how
    /// often that was split before, and from the color. Either team may end first.
    ///
    /// # Errors
    /// As for [`Team::all_gather`], after which the team has failed; then, with the team as it was, as for
    /// [`Context::create_team`].
    ///
    /// # Examples
    /// ```
    /// # fn split(context: &rdmc::Context, team: &rdmc::Team) -> Result<(), rdmc::Error> {
    /// // A team for each machine of eight members, and one of the first members of all machines.
    /// let timeout = std::time::Duration::from_secs(10);
    /// let machine = context.split_team(team, Some(team.rank() / 8), 0, timeout)?;
    /// let is_first = team.rank() % 8 == 0;
    /// let first_members = context.split_team(team, is_first.then_some(0), 0, timeout)?;
    /// # drop((machine, first_members));
    /// # Ok(())
    /// # }
    /// ```
    pub fn split_team(
        &self,
        team: &Team,
        color: Option<u32>,
        key: i64,
        timeout: Duration,
    ) -> Result<Option<Team>, Error> {
        let deadline = Deadline::after(timeout);
        let agreed = team.agree(color, key, timeout)?;
        let create =
            |settings: TeamSettings| self.create_team(settings.connect_timeout(deadline.left()));
        agreed.map(create).transpose()
    }

    /// Makes progress and runs callbacks; with [`Progress::Caller`] only. Waits up to `wait` if
    /// there is nothing to do or another thread is making progress. Returns whether a callback ran
    /// on this thread.
    ///
    /// # Errors
    /// The context has a progress thread, is closed, or has failed; [`Error::InsideCallback`].
    pub fn progress(&self, wait: Duration) -> Result<bool, Error> {
        let Some(caller) = &self.caller else {
            return Err(Error::HasProgressThread);
        };
        caller.progress(wait)
    }

    /// Returns a file descriptor that is readable when [`Context::progress`] has something to do, timers included; for
    /// programs with an event loop, with [`Progress::Caller`] over TCP. The descriptor is level-triggered and belongs to this
    /// context; the program may only wait for it. Other calls of this context leave it readable if something has happened in
    /// a group. While a group exists whose blocks switches copy, the descriptor is always readable. It does not cover teams,
    /// which have their own networks.
    ///
    /// Only the first call blocks, as [`Context::counters`] does.
    ///
    /// # Errors
    /// As for [`Context::progress`] and [`Context::counters`]; [`Error::Fabric`] if the fabric is not TCP.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        let caller = self.caller.as_ref().ok_or(Error::HasProgressThread)?;
        if self.settings.fabric != Fabric::Tcp {
            let fabric = self.settings.fabric.name();
            let cause =
                "no descriptor reports all its events; use the fabric tcp, or the progress thread";
            return Err(Error::Fabric { fabric, cause: cause.into() });
        }
        caller.descriptor(|| self.asking().ask(|reply| Command::Watch { reply })?)
    }

    /// Returns the network that blocks move over.
    pub fn fabric(&self) -> &Fabric {
        &self.settings.fabric
    }

    /// Returns the counters of this context. Blocks while the context is busy, for 10 seconds
    /// at most.
    ///
    /// # Errors
    /// [`Error::Timeout`], for example if the network or memory that the context uses does not
    /// respond; the context is closed or has failed.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.asking().ask(|reply| Command::Counters { reply })
    }

    /// Registers memory with the network, until the memory is freed, so that no transfer waits for the
    /// registration, which pins the memory and takes longer than sending a block. Without this call
    /// pieces of 32 MiB are registered when they are first used, and up to 1 GiB of a region remains
    /// registered while unused. Has no effect where the network registers no memory, as over TCP, and
    /// for regions of files.
    ///
    /// Blocks while the system pins the memory, about 100 ms per GB. Groups of this context make no
    /// progress while a piece of up to 256 MiB is pinned, but do so between pieces.
    ///
    /// # Errors
    /// [`Error::Transport`], with the remedy (usually a higher limit on locked memory);
    /// the region remains usable if the limit suffices for pieces of it. Otherwise as for
    /// [`Context::counters`].
    pub fn register(&self, region: &Region) -> Result<(), Error> {
        let mut start = 0;
        while start < region.len() {
            let end = (start + REGISTER_BYTES).min(region.len());
            let region = region.slice(start..end).expect("the range ends with the region");
            self.asking().ask(|reply| Command::Register { region, reply })??;
            start = end;
        }
        Ok(())
    }

    /// Returns, for each group that has not ended, its number and how long this member has waited for
    /// which other members. From the results of all members the crate `rdmc-plan` finds the members that
    /// delay the others. Blocks as [`Context::counters`] does.
    ///
    /// # Errors
    /// As for [`Context::counters`].
    pub fn waited(&self) -> Result<Vec<(u64, Vec<Waited>)>, Error> {
        self.asking().ask(|reply| Command::Waited { reply })
    }

    fn asking(&self) -> Asking<'_> {
        Asking { commands: &self.commands, caller: self.caller.as_deref() }
    }

    /// Closes the context: fails groups that are still open, at all their members, ends all threads and
    /// closes all connections. To end without a failure, close the groups first.
    ///
    /// Blocks until the timeout at most. With [`Progress::Caller`] the call runs callbacks, and a slow
    /// callback may delay its return beyond the timeout.
    ///
    /// # Errors
    /// [`Error::Timeout`] names what has not ended in time, such as a callback that does
    /// not return or storage that does not respond. The thread concerned is detached, with the resources
    /// that it uses; it accesses only its own group.
    pub fn close(mut self, timeout: Duration) -> Result<(), Error> {
        self.shut_down(Deadline::after(timeout))
    }

    fn shut_down(&mut self, deadline: Deadline) -> Result<(), Error> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let timeout = (deadline.left() / 2).min(LEAVE_TIMEOUT);
        let _ = self.commands.give(Command::Stop { timeout });
        let mut late = self.listener.close(deadline);
        late.extend(self.dialer.close(deadline));
        if let Some(caller) = &self.caller {
            caller.stop(deadline);
        }
        late.extend(self.threads.join(deadline));
        if self.settings.progress == Progress::Caller {
            let open = self.numbers.unfinished().into_iter();
            late.extend(open.map(|number| format!("the end of group {number}")));
        }
        late.extend(self.disks.close(deadline));
        if late.is_empty() { Ok(()) } else { Err(deadline.missed(late.join(", ")).into()) }
    }

    /// Returns the neighbours with which this member shares memory.
    fn connect_and_create(
        &self,
        shared: &Arc<Shared>,
        application: Option<Box<dyn Application>>,
        deadline: Deadline,
    ) -> Result<Vec<u32>, Error> {
        let (settings, addresses) = (&shared.made, &shared.settings.members);
        let joining =
            Joining::for_links(&shared.settings, settings, shared.offload, &self.settings);
        let mut links = self.join(joining, deadline, self.offers.clone(), Reply::Links)?;
        let (end, registration) = self.join_switches(settings, &mut links, deadline)?;
        let links = self.links(links, addresses, end)?;
        let sharing = sharing_memory(&links);
        let outlet = self.outlet(shared, application, registration)?;
        let (reply, answer) = bounded(1);
        let settings = Box::new(settings.clone());
        self.commands.give(Command::Add { settings, links, outlet, reply })?;
        let created = self.asking().await_answer(&answer, deadline);
        if created.is_err() {
            // The worker may still create it.
            shared.abandon("creating the group took too long");
        }
        created?.map(|()| sharing)
    }

    /// Carries out one step of a creation and returns its result. Blocks until the deadline at most.
    ///
    /// Errors: the group or team is being created here already; a member is unreachable, refuses, or does not appear in time.
    fn join<T>(
        &self,
        joining: Joining,
        until: Deadline,
        offers: Offers,
        reply: impl FnOnce(Sender<Result<T, Error>>) -> Reply,
    ) -> Result<T, Error> {
        let (sender, answer) = bounded(1);
        let left = until.left();
        let deadline = Deadline::after(left.saturating_add(CREATION_GRACE));
        let begin = Step::Begin { joining, offers, left, reply: reply(sender) };
        self.commands.give(Command::Create(Box::new(begin)))?;
        let Some(caller) = &self.caller else {
            return self.asking().await_answer(&answer, deadline)?;
        };
        loop {
            match answer.try_recv() {
                Ok(made) => return made,
                Err(TryRecvError::Disconnected) => return Err(self.commands.ended()),
                Err(TryRecvError::Empty) => {}
            }
            let left = deadline.left();
            if left.is_zero() || !caller.poll(left.min(PROGRESS_TIME)) {
                // Another thread has the worker, and may stop making progress without notice.
                match answer.recv_timeout(left.min(WORKER_PAUSE)) {
                    Ok(made) => return made,
                    Err(_) if left.is_zero() => {
                        return self.asking().await_answer(&answer, deadline)?;
                    }
                    Err(_) => {}
                }
            }
        }
    }

    /// Converts the links to neighbours to the form that the transport takes, with this member's end of the group if
    /// switches copy its blocks.
    ///
    /// Errors: a member's offer is invalid; the error names the member.
    fn links(
        &self,
        links: Links,
        addresses: &[SocketAddr],
        end: Option<GroupEnd>,
    ) -> Result<Vec<(u32, Link)>, Error> {
        let link = |(rank, wire): (u32, Wire)| {
            let link = match wire {
                Wire::Shared(reserved) => Ok(Link::Shared(reserved)),
                Wire::Own(own) => Link::of_own(*own, self.settings.tcp_protection(), end.clone()),
            };
            let address = addresses[rank as usize];
            link.map(|link| (rank, link)).map_err(|cause| Error::Member {
                member: rank,
                address,
                cause,
            })
        };
        links.into_iter().map(link).collect()
    }

    /// Checks that this context can take part in the group, if switches are to copy its blocks.
    fn check_in_switch(&self, settings: &engine::GroupSettings) -> Result<(), Error> {
        if !settings.is_in_switch() {
            return Ok(());
        }
        if self.settings.fabric != Fabric::Tcp {
            let allowed = "tcp for groups that switches copy";
            return Err(Error::setting("fabric", self.settings.fabric.name(), allowed));
        }
        if self.settings.protection == Some(Protection::Encrypt) {
            let allowed = "none, or let the members relay: switches copy blocks unchanged";
            return Err(Error::setting("protection", Protection::Encrypt, allowed));
        }
        if self.settings.rate_max.is_some() {
            let allowed = "no limit, or let the members relay: queue pairs send without a limit";
            return Err(Error::setting("rate_max", "set", allowed));
        }
        #[cfg(not(feature = "switch"))]
        return Err(Error::InSwitch {
            group: settings.number,
            cause:
                "this rdmc was built without switches; build with the feature `switch`, or let the \
                    members relay"
                    .into(),
        });
        #[cfg(feature = "switch")]
        {
            if settings.is_root() && self.settings.switches.is_none() {
                let allowed = "ContextSettings::switches at the root of a group that switches copy";
                return Err(Error::setting("switches", "not set", allowed));
            }
            in_switch::check_size(settings)
        }
    }

    /// Returns this member's end of a group whose blocks switches copy; `None` for other groups.
    #[cfg(feature = "switch")]
    fn join_switches(
        &self,
        settings: &engine::GroupSettings,
        links: &mut Links,
        deadline: Deadline,
    ) -> Result<(Option<GroupEnd>, Option<Registration>), Error> {
        match settings.is_in_switch() {
            true => in_switch::join(settings, &self.settings, links, deadline),
            false => Ok((None, None)),
        }
    }

    /// Returns `None`: groups whose blocks switches copy were refused before.
    #[cfg(not(feature = "switch"))]
    fn join_switches(
        &self,
        _: &engine::GroupSettings,
        _: &mut Links,
        _: Deadline,
    ) -> Result<(Option<GroupEnd>, Option<Registration>), Error> {
        Ok((None, None))
    }

    /// Returns where the group's events go: without callbacks to its inbox, otherwise to a thread of the group
    /// or to the caller of `progress`.
    fn outlet(
        &self,
        shared: &Arc<Shared>,
        application: Option<Box<dyn Application>>,
        registration: Option<Registration>,
    ) -> Result<Box<dyn Outlet>, Error> {
        let shared = Arc::clone(shared);
        let Some(application) = application else {
            self.start_releasing()?;
            return Ok(Box::new(Receiving::new(shared, registration)));
        };
        let mut dispatcher = Dispatcher::new(application, Arc::clone(&shared), registration);
        if self.settings.progress == Progress::Caller {
            return Ok(Box::new(Arc::new(Mutex::new(dispatcher))));
        }
        let (sender, events) = events();
        let number = shared.settings.number;
        let callbacks = move || {
            shared.set_callback_thread();
            events.for_each(|event| dispatcher.deliver(event));
            dispatcher.finish();
        };
        let what = format!("a callback of group {number}");
        self.threads
            .spawn("rdmc-callbacks", what, callbacks)
            .map_err(|error| Error::System { what: "starting a callback thread".into(), error })?;
        Ok(Box::new(sender))
    }

    /// Starts the thread that frees memory of groups without callbacks, unless it runs: freeing may run the
    /// application's code.
    fn start_releasing(&self) -> Result<(), Error> {
        let mut jobs = lock(&self.jobs);
        if let Some(jobs) = jobs.clone() {
            let run = move || jobs.into_iter().for_each(|job| job());
            self.threads
                .spawn("rdmc-release", "the release of memory".into(), run)
                .map_err(|error| Error::System { what: "starting a thread".into(), error })?;
        }
        *jobs = None;
        Ok(())
    }
}

impl Drop for Context {
    /// Closes the context as [`Context::close`] does, within 5 seconds, and ignores errors.
    fn drop(&mut self) {
        let _ = self.shut_down(Deadline::after(DROP_TIMEOUT));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns the members to whom links go through shared memory.
fn sharing_memory(links: &[(u32, Link)]) -> Vec<u32> {
    links.iter().filter(|(_, link)| link.shares_memory()).map(|&(rank, _)| rank).collect()
}
