//! Groups whose members are contexts of this process, connected over loopback.
//!
//! The same tests run over other fabrics: set RDMC_TEST_FABRIC=ofi-tcp, for example. For a fabric that
//! requires a device with an address, set RDMC_TEST_ADDRESSES=10.0.0.1,10.0.0.2 as well; members
//! take the addresses in turn.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod processes;

use std::{
    env, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Condvar, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use rdmc::{
    Algorithm, Application, Context, ContextSettings, Error, Fabric, Failure, Group, GroupSettings,
    Incoming, Region, Scheduling, Secret, Storage, WriteEnds,
};

/// A timeout that only a failing test reaches.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The events of an application.
#[derive(Debug)]
pub enum Event {
    Incoming(u64, u64),
    Block(u64, u64, u64),
    Received(u64),
    Delivered(u64),
    Complete(u64, Vec<u8>),
    Failed(Failure, Vec<u64>),
    Closed,
}

/// Provides zeroed memory for every message, and records events.
pub struct Recorder(pub Sender<Event>);

impl Application for Recorder {
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        let _ = self.0.send(Event::Incoming(message, bytes));
        Incoming::Into(Region::zeroed(bytes as usize))
    }

    fn block(&mut self, message: u64, offset: u64, bytes: u64) {
        let _ = self.0.send(Event::Block(message, offset, bytes));
    }

    fn received(&mut self, message: u64) {
        let _ = self.0.send(Event::Received(message));
    }

    fn delivered(&mut self, count: u64) {
        let _ = self.0.send(Event::Delivered(count));
    }

    fn complete(&mut self, message: u64, region: Region) {
        let contents = region.try_into_vec().expect("the region is the application's alone");
        let _ = self.0.send(Event::Complete(message, contents));
    }

    fn failed(&mut self, failure: &Failure, regions: Vec<(u64, Region)>) {
        let messages = regions.into_iter().map(|(message, _)| message).collect();
        let _ = self.0.send(Event::Failed(failure.clone(), messages));
    }

    fn closed(&mut self) {
        let _ = self.0.send(Event::Closed);
    }
}

/// Contexts with each other's addresses.
pub struct World {
    pub contexts: Vec<Context>,
    pub addresses: Vec<SocketAddr>,
}

pub type Joined = Vec<(Group, Receiver<Event>)>;

impl World {
    pub fn start(members: usize) -> Self {
        Self::start_with(members, |_| {})
    }

    pub fn start_with(members: usize, change: impl Fn(&mut ContextSettings)) -> Self {
        let secret = Secret::random().unwrap();
        let contexts: Vec<Context> = (0..members)
            .map(|rank| {
                let mut settings = context_settings(&secret);
                settings.listen.set_ip(address(rank));
                change(&mut settings);
                Context::start(settings).unwrap()
            })
            .collect();
        let addresses = contexts.iter().map(Context::address).collect();
        Self { contexts, addresses }
    }

    /// Creates the group at all members at the same time, with recorders.
    pub fn join(&self, settings: impl Fn(u32) -> GroupSettings + Sync) -> Joined {
        self.join_results(settings, |_| Recorder)
            .into_iter()
            .map(|(group, events)| (group.unwrap(), events))
            .collect()
    }

    /// As [`World::join`], with any application, and returns each result.
    pub fn join_results<A: Application>(
        &self,
        settings: impl Fn(u32) -> GroupSettings + Sync,
        application: impl Fn(u32) -> fn(Sender<Event>) -> A + Sync,
    ) -> Vec<(Result<Group, Error>, Receiver<Event>)> {
        let (settings, application) = (&settings, &application);
        thread::scope(|scope| {
            let joining: Vec<_> = (0..)
                .zip(&self.contexts)
                .map(|(rank, context)| {
                    scope.spawn(move || {
                        let (sender, events) = channel();
                        let application = application(rank)(sender);
                        let group = context
                            .create_group_with(among(settings(rank), &self.addresses), application);
                        (group, events)
                    })
                })
                .collect();
            joining.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Creates the group at all members at the same time, without callbacks.
    pub fn join_to_receive(&self, settings: impl Fn(u32) -> GroupSettings + Sync) -> Vec<Group> {
        let settings = &settings;
        thread::scope(|scope| {
            let joining: Vec<_> = (0..)
                .zip(&self.contexts)
                .map(|(rank, context)| {
                    let settings = move || among(settings(rank), &self.addresses);
                    scope.spawn(move || context.create_group(settings()).unwrap())
                })
                .collect();
            joining.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    pub fn close(self) {
        for context in self.contexts {
            context.close(PATIENCE).unwrap();
        }
    }
}

pub fn context_settings(secret: &Secret) -> ContextSettings {
    let mut settings = ContextSettings::new((address(0), 0).into(), secret.clone());
    settings.fabric = fabric();
    // Members on emulated processors stand still for seconds.
    settings.tcp.silence_timeout = Duration::from_secs(20);
    settings
}

/// Returns the fabric that all tests of this run use.
pub fn fabric() -> Fabric {
    match env::var("RDMC_TEST_FABRIC") {
        Ok(name) => name.parse().expect("RDMC_TEST_FABRIC is a fabric"),
        Err(_) => Fabric::Tcp,
    }
}

/// Returns how members of teams learn of writes in all tests of this run: by RDMC_TEST_ENDS.
pub fn ends() -> WriteEnds {
    match env::var("RDMC_TEST_ENDS").as_deref() {
        Err(_) => WriteEnds::Auto,
        Ok("reports") => WriteEnds::Reports,
        Ok("last-byte") => WriteEnds::LastByte,
        Ok("words") => WriteEnds::Words,
        Ok(other) => panic!("RDMC_TEST_ENDS is {other}, not reports, last-byte or words"),
    }
}

fn address(rank: usize) -> IpAddr {
    let Ok(list) = env::var("RDMC_TEST_ADDRESSES") else { return Ipv4Addr::LOCALHOST.into() };
    let addresses: Vec<&str> = list.split(',').collect();
    addresses[rank % addresses.len()].parse().expect("RDMC_TEST_ADDRESSES are addresses")
}

pub fn ipv6() -> SocketAddr {
    (Ipv6Addr::LOCALHOST, 0).into()
}

/// Returns settings of a small group with small blocks; [`among`] adds the members.
pub fn group(
    number: u64,
    algorithm: Algorithm,
    members: u32,
    root: u32,
) -> impl Fn(u32) -> GroupSettings + Sync {
    let racks: Vec<u32> = (0..members).map(|rank| rank / 3).collect();
    move |rank| {
        let mut settings = GroupSettings::new(number, Vec::new(), rank)
            .schedule(Scheduling::InRacks(algorithm, racks.clone()))
            .root(root)
            .block_bytes(1_000)
            .send_queue_max(u32::MAX);
        // Messages of a few blocks are relayed; tests of small messages enable them.
        settings.small = None;
        settings
    }
}

/// Returns these settings with members at these addresses.
pub fn among(mut settings: GroupSettings, addresses: &[SocketAddr]) -> GroupSettings {
    settings.members = addresses.to_vec();
    settings
}

/// Returns contents that differ by message and offset.
pub fn contents(message: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|index| (index ^ (index >> 8) ^ (message * 151 + 7)) as u8).collect()
}

/// Closes the group at all members at once, and returns each result.
pub fn close_all(groups: &Joined) -> Vec<Result<(), Error>> {
    thread::scope(|scope| {
        let closing: Vec<_> =
            groups.iter().map(|(group, _)| scope.spawn(|| group.close(PATIENCE))).collect();
        closing.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Storage that completes reads of its first bytes, and others once the test opens it.
#[derive(Default)]
pub struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

/// How many bytes can be read while a [`Gate`] is closed.
pub const OPEN_BYTES: u64 = 10_000;

impl Gate {
    /// Returns a read-only region of this many bytes.
    pub fn region(self: &Arc<Self>, bytes: u64) -> Region {
        Region::from_storage(Arc::clone(self) as Arc<dyn Storage>, bytes, false).unwrap()
    }

    pub fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl Storage for Gate {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let mut is_open = self.is_open.lock().unwrap();
        while offset >= OPEN_BYTES && !*is_open {
            is_open = self.opened.wait(is_open).unwrap();
        }
        into.fill(7);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "a gate".into()
    }
}

/// Storage in memory, which calls a function with what is written, and where, before it is kept.
pub struct Disk {
    pub contents: Mutex<Vec<u8>>,
    pub writing: fn(&mut [u8], u64),
}

impl Disk {
    /// Returns a disk of this many bytes, and a region of all of it.
    pub fn of(bytes: usize, writing: fn(&mut [u8], u64)) -> (Arc<Self>, Region) {
        let disk = Arc::new(Self { contents: Mutex::new(vec![0; bytes]), writing });
        let region =
            Region::from_storage(Arc::clone(&disk) as Arc<dyn Storage>, bytes as u64, true);
        (disk, region.unwrap())
    }
}

impl Storage for Disk {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        into.copy_from_slice(&self.contents.lock().unwrap()[offset as usize..][..into.len()]);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut written = bytes.to_vec();
        (self.writing)(&mut written, offset);
        self.contents.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(&written);
        Ok(())
    }

    fn name(&self) -> String {
        "the disk of this test".into()
    }
}
