//! A context: one member's place in the network, and all groups that it takes part in.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use session::{Deadline, Secret, Threads};
use transport::Transport;
#[cfg(feature = "switch")]
use transport_switch::Switches;
use transport_tcp::TcpConfig;

#[cfg(feature = "switch")]
use crate::creation::in_switch;
use crate::{
    Application, CompletionMode, Counters, Error, Fabric, Group, GroupSettings, Offload,
    Protection, Waited,
    caller::Caller,
    commands::{Command, Commands},
    creation::{
        links::{LinkListener, Wires, connect_neighbours},
        terms::Terms,
    },
    disks::DiskThreads,
    dispatcher::{Dispatcher, Registration},
    inbox::Inbox,
    network::{GroupEnd, Link, Network, Wire},
    outbox::events,
    outlet::Outlet,
    receiving::Receiving,
    shared::Shared,
    worker::Worker,
};

/// How long a call waits for what moves transfers on: far longer than it ever takes, unless the
/// network or memory does not answer the system.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long neighbours of groups that have failed may take to hear why when a context closes.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long dropping a context may take.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// Who moves transfers on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// A thread of the context's own; callbacks run on one thread for each group.
    #[default]
    Thread,
    /// Whoever calls [`Context::progress`], or waits by [`Group::close`], [`Group::receive`] or any
    /// other call of this library that waits for a group; callbacks run there. One thread at a time is at it, and others wait
    /// for it.
    Caller,
}

/// What a context is made of.
#[derive(Clone, Debug)]
pub struct ContextSettings {
    /// Where other members connect to; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What members prove to each other that they know; it also keeps what they say to find each
    /// other from everybody else.
    pub secret: Secret,
    /// Who moves transfers on.
    pub progress: Progress,
    /// How the progress thread waits.
    pub completion: CompletionMode,
    /// TCP connections to each neighbour, 1 to 8; the same at all members. More than one helps
    /// where a single flow cannot fill a fast link.
    pub streams: u8,
    /// How long creating a group may take: all members have to show up in this time.
    pub connect_timeout: Duration,
    /// The network that blocks move over; the same at all members. Members find each other, prove
    /// who they are and notice each other's end over TCP in any case.
    pub fabric: Fabric,
    /// How blocks are protected on their way; the same at all members. Over another fabric than
    /// TCP it is only what members tell each other about their lives that travels by TCP.
    pub protection: Protection,
    /// The settings of TCP.
    pub tcp: TcpConfig,
    /// What puts groups of [`crate::Algorithm::InSwitch`] into switches: needed at their roots. Blocks of
    /// such groups are neither encrypted nor authenticated on their way, as over RDMA fabrics.
    #[cfg(feature = "switch")]
    pub switches: Option<Arc<dyn Switches>>,
}

impl ContextSettings {
    /// Defaults with this address and secret.
    pub fn new(listen: SocketAddr, secret: Secret) -> Self {
        Self {
            listen,
            secret,
            progress: Progress::default(),
            completion: CompletionMode::default(),
            streams: 1,
            connect_timeout: Duration::from_secs(30),
            fabric: Fabric::default(),
            protection: Protection::default(),
            tcp: TcpConfig::default(),
            #[cfg(feature = "switch")]
            switches: None,
        }
    }
}

/// One member's place in the network. Many can live in one process; nothing is global.
///
/// Threads: one accepts connections, one moves transfers on (with [`Progress::Thread`]), each group
/// has one for its callbacks, and each group with messages in files one that reads and writes them;
/// all are gone when [`Context::close`] returns.
pub struct Context {
    settings: ContextSettings,
    can_offload: bool,
    listener: LinkListener,
    commands: Commands,
    disks: Arc<DiskThreads>,
    groups: Mutex<HashMap<u64, Arc<Shared>>>,
    /// With [`Progress::Caller`].
    caller: Option<Arc<Caller>>,
    threads: Threads,
    closed: bool,
}

impl Context {
    /// Starts listening, and the progress thread.
    ///
    /// Errors: the address cannot be listened on, this host does not have the fabric, the system
    /// refuses, a setting is out of range.
    pub fn start(settings: ContextSettings) -> Result<Self, Error> {
        if !(1..=8).contains(&settings.streams) {
            let streams = settings.streams;
            return Err(Error::Setting(format!("{streams} streams per neighbour; use 1 to 8")));
        }
        if settings.fabric != Fabric::Tcp && settings.streams != 1 {
            let fabric = settings.fabric.name();
            let what =
                format!("several streams per neighbour are for the fabric tcp, not {fabric}");
            return Err(Error::Setting(what));
        }
        if settings.fabric != Fabric::Tcp && settings.protection == Protection::Encrypt {
            let what = format!(
                "the fabric {} does not encrypt; use the fabric tcp, or a network that is trusted",
                settings.fabric.name()
            );
            return Err(Error::Setting(what));
        }
        let system = |what: &str| {
            let what = what.to_owned();
            move |error| Error::System { what, error }
        };
        let mut transport = Network::start(&settings.fabric, settings.listen.ip(), &settings.tcp)?;
        let (offers, can_offload) = (transport.offers(), transport.triggered().is_some());
        let disks = Arc::new(DiskThreads::new(transport.waker()));
        let (worker, commands) = Worker::new(transport, settings.completion, Arc::clone(&disks));
        let listener = LinkListener::start(settings.listen, settings.secret.clone(), offers)?;
        let mut context = Self {
            settings,
            can_offload,
            listener,
            commands,
            disks,
            groups: Mutex::default(),
            caller: None,
            threads: Threads::default(),
            closed: false,
        };
        match context.settings.progress {
            Progress::Caller => {
                let caller = Caller::new(worker, context.commands.clone());
                context.caller = Some(Arc::new(caller));
            }
            Progress::Thread => {
                context
                    .threads
                    .spawn("rdmc-progress", "the progress thread".into(), move || worker.run())
                    .map_err(system("starting the progress thread"))?;
            }
        }
        Ok(context)
    }

    /// Where this context listens, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Creates a group, together with all its other members, which must do the same with equal
    /// settings (but for what is each member's own). Connects this member's neighbours in the
    /// schedule; blocks until they are connected, or [`ContextSettings::connect_timeout`].
    ///
    /// Of [`crate::Algorithm::InSwitch`] it blocks until switches know the group, too.
    ///
    /// Messages are received by [`Group::receive`].
    ///
    /// Errors: a setting is out of range; the number is in use; a member is not reachable, refuses,
    /// was told something else (the error names the difference), or does not show up;
    /// [`Error::InSwitch`].
    pub fn create_group(&self, mut settings: GroupSettings) -> Result<Group, Error> {
        settings.report_blocks = true;
        let inbox = Inbox::new(settings.number, settings.receive_bytes_max);
        self.create(settings, Some(inbox), |shared| Box::new(Receiving(Arc::clone(shared))))
    }

    /// As [`Context::create_group`], with callbacks by which messages are received.
    ///
    /// Errors: as [`Context::create_group`].
    pub fn create_group_with(
        &self,
        settings: GroupSettings,
        application: impl Application,
    ) -> Result<Group, Error> {
        self.create(settings, None, |_| Box::new(application))
    }

    fn create(
        &self,
        settings: GroupSettings,
        inbox: Option<Inbox>,
        application: impl FnOnce(&Arc<Shared>) -> Box<dyn Application>,
    ) -> Result<Group, Error> {
        let made = engine::GroupSettings::try_from(&settings)?;
        self.commands.check()?;
        self.check_in_switch(&made)?;
        let offload = Offload::of(&made, self.can_offload);
        let worker = (self.commands.clone(), self.caller.clone());
        let shared = Shared::new(settings, made, offload, worker, inbox);
        self.reserve(&shared)?;
        let application = application(&shared);
        self.connect_and_create(&shared, application).inspect_err(|_| {
            lock(&self.groups).remove(&shared.settings.number);
        })?;
        Ok(Group::new(shared))
    }

    /// Moves transfers on and runs callbacks, with [`Progress::Caller`] only. Waits up to `wait`
    /// if there is nothing to do, or for another thread that is in this call or drives while it waits.
    /// Returns whether a callback ran here.
    ///
    /// Errors: the context has a progress thread, is closed, or has failed; [`Error::InsideCallback`].
    pub fn progress(&self, wait: Duration) -> Result<bool, Error> {
        let Some(caller) = &self.caller else {
            return Err(Error::Setting("this context has its own progress thread".into()));
        };
        caller.progress(wait)
    }

    /// The network that blocks move over.
    pub fn fabric(&self) -> &Fabric {
        &self.settings.fabric
    }

    /// What this context has done so far. Blocks while it is busy, 10 seconds at most.
    ///
    /// Errors: [`Error::Timeout`], as when the network or memory that it uses does not answer; the
    /// context is closed or has failed.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.ask(|reply| Command::Counters { reply })
    }

    /// Whom this member has waited for, in each group that has not ended, by the groups' numbers.
    /// With what all members say the crate `rdmc-plan` finds who holds the others up.
    ///
    /// Blocks, and errors: as [`Context::counters`].
    pub fn waited(&self) -> Result<Vec<(u64, Vec<Waited>)>, Error> {
        self.ask(|reply| Command::Waited { reply })
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = bounded(1);
        self.commands.give(command(reply))?;
        self.await_answer(&answer, Deadline::after(ANSWER_TIMEOUT))
    }

    /// Waits until the worker has carried out a command.
    fn await_answer<T>(&self, answer: &Receiver<T>, deadline: Deadline) -> Result<T, Error> {
        if let Some(caller) = &self.caller {
            caller.take_commands();
        }
        answer.recv_timeout(deadline.left()).map_err(|error| match error {
            RecvTimeoutError::Timeout => deadline
                .missed("what moves this context's transfers on is busy, and its answer")
                .into(),
            RecvTimeoutError::Disconnected => self.commands.ended(),
        })
    }

    /// Makes groups that are still open fail at all their members, ends all threads and closes all
    /// connections. To end well, close the groups first.
    ///
    /// Blocks until the timeout at most; with [`Progress::Caller`] it runs callbacks, and so takes as
    /// long as the last of them.
    ///
    /// Errors: [`Error::Timeout`] names what has not ended in time, such as a callback that does not
    /// return, or storage that does not answer. Its thread is left to itself, with what it uses; it
    /// touches nothing but its own group.
    pub fn close(mut self, timeout: Duration) -> Result<(), Error> {
        self.shut_down(Deadline::after(timeout))
    }

    fn shut_down(&mut self, deadline: Deadline) -> Result<(), Error> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let patience = (deadline.left() / 2).min(LEAVE_TIMEOUT);
        let _ = self.commands.give(Command::Stop { patience });
        let mut late = self.listener.close(deadline);
        if let Some(caller) = &self.caller {
            caller.stop(deadline);
        }
        late.extend(self.threads.join(deadline));
        if self.settings.progress == Progress::Caller {
            let groups = lock(&self.groups);
            let open = groups.iter().filter(|(_, shared)| !shared.is_finished());
            late.extend(open.map(|(number, _)| format!("the end of group {number}")));
        }
        late.extend(self.disks.close(deadline));
        if late.is_empty() { Ok(()) } else { Err(deadline.missed(late.join(", ")).into()) }
    }

    /// Takes the group's number, if no living group has it.
    fn reserve(&self, shared: &Arc<Shared>) -> Result<(), Error> {
        let number = shared.settings.number;
        let mut groups = lock(&self.groups);
        groups.retain(|_, other| !other.is_finished());
        if groups.get(&number).is_some_and(|other| !other.has_ended()) {
            return Err(Error::NumberInUse(number));
        }
        groups.insert(number, Arc::clone(shared));
        Ok(())
    }

    fn connect_and_create(
        &self,
        shared: &Arc<Shared>,
        application: Box<dyn Application>,
    ) -> Result<(), Error> {
        let (settings, addresses) = (&shared.made, &shared.settings.members);
        let deadline = Deadline::after(self.settings.connect_timeout);
        let terms = Terms::new(
            settings,
            addresses,
            self.settings.streams,
            &self.settings.fabric.name(),
            shared.offload,
            self.settings.protection,
        );
        let mut wires = connect_neighbours(&self.listener, settings, addresses, terms, deadline)?;
        let (end, registration) = self.join_switches(settings, &mut wires, deadline)?;
        let link = |(rank, wires): (u32, Vec<Wire>)| {
            let link = Link::new(wires, self.settings.protection, end.clone());
            let address = addresses[rank as usize];
            link.map(|link| (rank, link)).map_err(|cause| Error::Member {
                member: rank,
                address,
                cause,
            })
        };
        let links = wires.into_iter().map(link).collect::<Result<Vec<_>, Error>>()?;
        let dispatcher = Dispatcher::new(application, Arc::clone(shared), registration);
        let outlet = self.outlet(dispatcher, shared)?;
        let (reply, answer) = bounded(1);
        let settings = Box::new(settings.clone());
        self.commands.give(Command::Create { settings, links, outlet, reply })?;
        let created = self.await_answer(&answer, deadline);
        if created.is_err() {
            // It may be created yet.
            shared.abandon("creating it took too long");
        }
        created?
    }

    /// Whether this context can take part in the group, if switches are to copy its blocks.
    fn check_in_switch(&self, settings: &engine::GroupSettings) -> Result<(), Error> {
        if !settings.is_in_switch() {
            return Ok(());
        }
        let refuse = |what: &str| Err(Error::Setting(what.to_owned()));
        if self.settings.fabric != Fabric::Tcp {
            return refuse("switches copy blocks for groups of the fabric tcp alone");
        }
        if self.settings.protection == Protection::Encrypt {
            return refuse("blocks that switches copy cannot be encrypted; let the members relay");
        }
        #[cfg(not(feature = "switch"))]
        return Err(Error::InSwitch {
            group: settings.number,
            cause:
                "this rdmc was built without it; build it with the feature `switch`, or let the \
                    members relay"
                    .into(),
        });
        #[cfg(feature = "switch")]
        {
            if settings.is_root() && self.settings.switches.is_none() {
                return refuse("the root of an in-switch group needs ContextSettings::switches");
            }
            in_switch::check_size(settings)
        }
    }

    /// This member's end of a group that switches copy; nothing of any other.
    #[cfg(feature = "switch")]
    fn join_switches(
        &self,
        settings: &engine::GroupSettings,
        wires: &mut Wires,
        deadline: Deadline,
    ) -> Result<(Option<GroupEnd>, Option<Registration>), Error> {
        let number = settings.number;
        match &self.settings.switches {
            _ if !settings.is_in_switch() => Ok((None, None)),
            Some(switches) if settings.is_root() => {
                // A member that is silent is found by its link first, and named.
                let silence_ms = self.settings.tcp.silence_timeout_ms;
                let patience = Duration::from_millis(silence_ms.saturating_mul(2));
                in_switch::arrange(number, wires, switches.as_ref(), patience, deadline)
            }
            _ => Ok((in_switch::join(number, wires, deadline)?, None)),
        }
    }

    /// Nothing: groups that switches copy have been refused.
    #[cfg(not(feature = "switch"))]
    fn join_switches(
        &self,
        _: &engine::GroupSettings,
        _: &mut Wires,
        _: Deadline,
    ) -> Result<(Option<GroupEnd>, Option<Registration>), Error> {
        Ok((None, None))
    }

    /// Where the group's events go: to a thread of its own, or to the caller of `progress`.
    fn outlet(&self, mut dispatcher: Dispatcher, shared: &Arc<Shared>) -> Result<Outlet, Error> {
        if self.settings.progress == Progress::Caller {
            return Ok(Outlet::Caller(Arc::new(Mutex::new(dispatcher))));
        }
        let (sender, events) = events();
        let (shared, number) = (Arc::clone(shared), shared.settings.number);
        let callbacks = move || {
            shared.set_callback_thread();
            events.for_each(|event| dispatcher.deliver(event));
            dispatcher.finish();
        };
        let what = format!("a callback of group {number}");
        self.threads
            .spawn("rdmc-callbacks", what, callbacks)
            .map_err(|error| Error::System { what: "starting a callback thread".into(), error })?;
        Ok(Outlet::Thread(sender))
    }
}

impl Drop for Context {
    /// As [`Context::close`] with 5 seconds; after it, nothing.
    fn drop(&mut self) {
        let _ = self.shut_down(Deadline::after(DROP_TIMEOUT));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
