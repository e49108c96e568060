//! Groups of queue pairs in userspace, and messages through them, whose contents are compared.

use std::time::{Duration, Instant};

use control::{
    ControlError,
    host::{
        Acceptance, Extent, Invited, NewGroup, Terms,
        client::{Group, Listener, ListenerEvent},
    },
};
use endpoint::{Endpoint, Event, Peer};
use roce::rc::{Kind, MemoryRegion, RequesterConfig, Status, Work};

use crate::world::{SLOWER, World, address, daemon};

const PATIENCE: Duration = Duration::from_secs(60);
/// Virtual address of the members' memory, as the sender uses it.
const VIRTUAL_START: u64 = 0x5000_0000;
/// Messages that may be open; each WRITE has its own place among this many.
const OPEN: u64 = 4;
const PLACE_BYTES: u64 = 32 << 10;
const BYTES_MAX: u64 = 20_000;

/// An application that receives.
pub struct Receiver {
    pub host: usize,
    pub listener: Listener,
    pub offer: u64,
    pub qpn: u32,
    service: &'static str,
    memory: MemoryRegion,
}

/// An application that sends.
pub struct Connected {
    pub group: Group,
    host: usize,
    qpn: u32,
}

/// As an adapter is usually configured: 7 retries, and timeout code 15 (134 ms), by which the sender's
/// queue pair fails after eight timeouts.
pub fn adapter() -> RequesterConfig {
    let timeout_ns = (4096 << 15) * u64::from(SLOWER);
    RequesterConfig { timeout_ns, retries: 7, ..RequesterConfig::default() }
}

fn config() -> RequesterConfig {
    RequesterConfig { timeout_ns: 20_000_000, retries: 10_000, ..RequesterConfig::default() }
}

pub fn new_group(sender: usize, sender_qpn: u32, members: &[(usize, &str)]) -> NewGroup {
    let invited = |&(host, service): &(usize, &str)| Invited {
        daemon: daemon(host),
        service: service.to_owned(),
    };
    NewGroup {
        sender: address(sender),
        sender_mac: None,
        sender_qpn,
        mtu_bytes: config().mtu_bytes,
        members: members.iter().map(invited).collect(),
        regions: vec![Extent { start: VIRTUAL_START, bytes: OPEN * PLACE_BYTES }],
        application_data: b"data".to_vec(),
        continues: true,
        all_notifications: false,
    }
}

impl Receiver {
    pub async fn new(world: &World, host: usize, service: &'static str) -> Self {
        let listener = world.host(host).listen(service).await.unwrap();
        let memory = MemoryRegion { start: 0, bytes: 0, key: 0 };
        Self { host, listener, offer: 0, qpn: 0, service, memory }
    }

    /// The next event, which is an offer.
    pub async fn offered(&mut self) -> (u64, Terms) {
        let event = tokio::time::timeout(PATIENCE, self.listener.next()).await;
        let event = event.expect("an offer comes in time").unwrap();
        let ListenerEvent::Offer { offer, terms } = event else { panic!("{event:?}") };
        (offer, terms)
    }

    pub async fn accept(&mut self, endpoint: &mut Endpoint) {
        let (offer, terms) = self.offered().await;
        self.memory = endpoint.register((OPEN * PLACE_BYTES) as usize);
        let peer = Peer { address: terms.sender, qpn: terms.sender_qpn, next_hop: None };
        self.qpn = endpoint.queue_pair(peer, config(), 0, terms.psn_first);
        self.offer = offer;
        let accepted = Acceptance::new(address(self.host), endpoint.mac(), self.qpn);
        self.listener.accept(offer, &accepted.with(self.memory)).await.unwrap();
    }
}

/// Makes a group.
pub async fn connect(
    world: &mut World,
    host: usize,
    receivers: &mut [Receiver],
) -> Result<Connected, ControlError> {
    connect_as(world, host, receivers, config()).await
}

/// Makes a group whose sender retransmits so.
pub async fn connect_as(
    world: &mut World,
    host: usize,
    receivers: &mut [Receiver],
    config: RequesterConfig,
) -> Result<Connected, ControlError> {
    let qpn = world.endpoints[host].draw_number();
    let members: Vec<_> =
        receivers.iter().map(|receiver| (receiver.host, receiver.service)).collect();
    let (application, new) = (world.host(host), new_group(host, qpn, &members));
    let (group, ()) = tokio::join!(application.create(&new), async {
        for receiver in receivers.iter_mut() {
            receiver.accept(&mut world.endpoints[receiver.host]).await;
        }
    });
    let group = group?;
    let made = group.created().clone();
    let peer = Peer { address: made.virtual_address, qpn: made.id, next_hop: None };
    world.endpoints[host].connect(qpn, peer, config, made.psn_first, 0);
    for receiver in receivers {
        let begun = ListenerEvent::Ready { offer: receiver.offer, id: made.id };
        assert_eq!(receiver.listener.next().await.unwrap(), begun);
    }
    Ok(Connected { group, host, qpn })
}

/// What has happened at all queue pairs.
pub async fn progress(world: &mut World) -> Vec<(usize, Event)> {
    progress_without(world, None).await
}

/// The same, while the queue pairs of one host stand still.
pub async fn progress_without(world: &mut World, still: Option<usize>) -> Vec<(usize, Event)> {
    let mut events = Vec::new();
    let moving = |(host, _): &(usize, &mut Endpoint)| Some(*host) != still;
    for (host, endpoint) in world.endpoints.iter_mut().enumerate().filter(moving) {
        endpoint.progress(Duration::ZERO).unwrap();
        while let Some(event) = endpoint.completed() {
            events.push((host, event));
        }
    }
    if events.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    events
}

/// Waits for `what` while an endpoint sends.
pub async fn sending<T>(endpoint: &mut Endpoint, what: impl Future<Output = T>) -> T {
    let mut what = std::pin::pin!(what);
    loop {
        endpoint.progress(Duration::ZERO).unwrap();
        assert_eq!(endpoint.completed(), None, "nothing is acknowledged, and it does not give up");
        if let Ok(done) = tokio::time::timeout(Duration::from_millis(1), &mut what).await {
            return done;
        }
    }
}

/// Messages of one group: SEND and WRITE in turn.
#[derive(Debug)]
pub struct Flow {
    salt: u64,
    messages: u64,
    posted: u64,
    done: u64,
    /// By receiver.
    arrived: Vec<u64>,
}

const fn is_write(index: u64) -> bool {
    index % 2 == 1
}

const fn place(index: u64) -> u64 {
    index % OPEN * PLACE_BYTES
}

impl Flow {
    pub const fn new(salt: u64, messages: u64) -> Self {
        Self { salt, messages, posted: 0, done: 0, arrived: Vec::new() }
    }

    fn contents(&self, index: u64) -> Vec<u8> {
        let bytes = 1 + (index * 7919 + self.salt * 104_729) % BYTES_MAX;
        (0..bytes).map(|at| (at * 7 + index * 13 + self.salt * 101) as u8).collect()
    }

    /// Posts what may be open, and where it goes.
    pub fn post(&mut self, world: &mut World, from: &Connected, to: &[Receiver]) {
        self.arrived.resize(to.len(), 0);
        while self.posted < self.messages && self.posted < self.done + OPEN {
            let bytes = self.contents(self.posted);
            for receiver in to {
                let room = if is_write(self.posted) { 0 } else { bytes.len() };
                let endpoint = &mut world.endpoints[receiver.host];
                endpoint.receive(receiver.qpn, self.posted, vec![0xee; room]).unwrap();
            }
            let kind = match is_write(self.posted) {
                true => Kind::Write { address: VIRTUAL_START + place(self.posted), key: 1 },
                false => Kind::Send,
            };
            let immediate = Some(self.salt as u32);
            let work = Work { id: self.posted, kind, bytes: bytes.len() as u32, immediate };
            world.endpoints[from.host].send(from.qpn, work, bytes).unwrap();
            self.posted += 1;
        }
    }

    /// Whether the event was one of this flow's.
    pub fn take(
        &mut self,
        world: &World,
        host: usize,
        event: &Event,
        from: &Connected,
        to: &[Receiver],
    ) -> bool {
        match event {
            Event::Sent { qpn, id, status } => {
                if (host, *qpn) != (from.host, from.qpn) {
                    return false;
                }
                assert_eq!((*id, *status), (self.done, Status::Done));
                self.done += 1;
            }
            Event::Arrived { qpn, arrival, memory } => {
                let is_it = |receiver: &Receiver| (receiver.host, receiver.qpn) == (host, *qpn);
                let Some(at) = to.iter().position(is_it) else { return false };
                let index = self.arrived[at];
                let wanted = self.contents(index);
                assert_eq!(arrival.is_write, is_write(index));
                assert_eq!(arrival.immediate, Some(self.salt as u32));
                let found = if is_write(index) {
                    let all = world.endpoints[host].memory(to[at].memory.key).unwrap();
                    &all[place(index) as usize..][..wanted.len()]
                } else {
                    &memory[..]
                };
                assert!(found == wanted, "message {index} at host {host}");
                self.arrived[at] += 1;
            }
        }
        true
    }

    pub fn is_over(&self) -> bool {
        self.done == self.messages && self.arrived.iter().all(|count| *count == self.messages)
    }

    /// Until all have all.
    pub async fn run(self, world: &mut World, from: &Connected, to: &[Receiver]) {
        self.run_without(world, None, from, to).await;
    }

    /// The same, while the queue pairs of one host stand still.
    pub async fn run_without(
        mut self,
        world: &mut World,
        still: Option<usize>,
        from: &Connected,
        to: &[Receiver],
    ) {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_over() {
            assert!(Instant::now() < deadline, "{self:?}");
            self.post(world, from, to);
            for event in progress_without(world, still).await {
                assert!(self.take(world, event.0, &event.1, from, to), "{event:?}");
            }
        }
    }
}
