//! Queue pairs of RDMA devices in groups that switches copy for, and whether each byte arrives.
//!
//! At the switch `rdmc switch run` has to run, and at each host `rdmc switch join`. `./dev test-rdma hosts`
//! runs this at hosts that are virtual machines:
//!
//! ```text
//! devices receive SOCKET DEVICE INTERFACE ADDRESS SERVICE
//! devices send SOCKET DEVICE INTERFACE ADDRESS SERVICE DAEMON...
//! devices outlive SOCKET DEVICE INTERFACE ADDRESS SERVICE DAEMON...
//! devices outlive-as-adapter SOCKET DEVICE INTERFACE ADDRESS SERVICE DAEMON...
//! devices outlive-unwatched SOCKET DEVICE INTERFACE ADDRESS SERVICE DAEMON...
//! ```
//!
//! `send` makes groups of the first, of the first two, and so on; `outlive` makes one of all, and prints when
//! the first receiver has to be killed; `outlive-as-adapter` when it has to fall silent, which the sender's queue
//! pair bears no longer than an adapter's; `outlive-unwatched`, which has to fail, gives up before the daemons'
//! keepalive can notice it. A group gets rounds of one message of each kind, all of one length.
//! Receivers have memory for one round, and are ready for the next when they have compared it. One that finds
//! a difference leaves the group with it as the reason, so that the sender fails, too.

use std::{
    error::Error,
    net::IpAddr,
    path::Path,
    time::{Duration, Instant},
};

use control::{
    ErrorKind,
    host::{
        Acceptance, Extent, Invited, NewGroup, Terms,
        client::{Group, GroupEvent, Host, Listener, ListenerEvent},
    },
};
use roce::Mac;
use tokio::time::timeout;
use verbs::{Completion, Connection, Device, Event, Memory, Operation, QueuePair, Status};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The lengths of `send`'s rounds: one byte, around the ends of packets, and long.
const LENGTHS: [u32; 15] =
    [1, 2, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 65_535, 65_537, 300_001, 4 << 20];
/// Payload of a packet, by the number of receivers less one.
const MTUS_BYTES: [u32; 3] = [1024, 2048, 4096];
/// The length of `outlive`'s, and how many there are before the death and after it.
const STREAM_BYTES: u32 = 40_000;
const STREAM_ROUNDS: u32 = 10;
/// `outlive-as-adapter`'s: the queue pair fails after 7 timeouts, an adapter's after 8. These devices take 7 retries, with
/// which there are 8, for "for ever".
const RETRIES_OF_ADAPTER: u8 = 6;
/// Sixteen times the usual 134 ms (code 15): the times of switch and daemons are twelve times theirs (`slower` in
/// tools/rdma-vm/guest/network).
const TIMEOUT_OF_ADAPTER: u8 = 19;
/// `outlive-unwatched`'s: 3 timeouts of 537 ms. A keepalive notices a silent host after 5 s at the earliest.
const RETRIES_UNWATCHED: u8 = 2;
const TIMEOUT_UNWATCHED: u8 = 17;
/// In the immediate of a group's last message. The other bits are the round.
const LAST: u32 = 1 << 31;
/// Each kind of message has a place in memory.
const PLACE_BYTES: usize = (4 << 20) + 4096;
/// Bytes after a message that nobody may write.
const GUARD_BYTES: usize = 64;
/// What is there before a message.
const BLANK: u8 = 0xee;
/// Where the sender takes the receivers' memory to be.
const VIRTUAL_START: u64 = 0x5000_0000;
/// Timeout without progress.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long the sender waits for receivers, and they for the next group.
const GROUP_PATIENCE: Duration = Duration::from_secs(150);
/// Time for a daemon to read the last request.
const LEAVING: Duration = Duration::from_secs(1);
/// Interval at which daemons' events are polled.
const TICK: Duration = Duration::from_millis(10);
const CLOSED: &str = "the sending application has closed it";

/// The messages of a round, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Waits for receivers: they post it when they have compared the round before.
    Send,
    /// Without a completion at the receiver: compared when the next message has arrived.
    Write,
    SendImmediate,
    WriteImmediate,
}

const KINDS: [Kind; 4] = [Kind::Send, Kind::Write, Kind::SendImmediate, Kind::WriteImmediate];

impl Kind {
    const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImmediate)
    }

    const fn has_immediate(self) -> bool {
        matches!(self, Self::SendImmediate | Self::WriteImmediate)
    }

    const fn place(self) -> usize {
        self as usize * PLACE_BYTES
    }
}

/// The application data of a group: the lengths of its rounds, repeated.
struct Plan {
    seed: u64,
    is_last: bool,
    lengths: Vec<u32>,
}

impl Plan {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.seed.to_be_bytes().to_vec();
        bytes.push(self.is_last.into());
        bytes.extend(self.lengths.iter().flat_map(|length| length.to_be_bytes()));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (seed, bytes) = bytes.split_first_chunk()?;
        let (is_last, bytes) = bytes.split_first()?;
        let lengths = bytes.as_chunks().0.iter().map(|length| u32::from_be_bytes(*length));
        let lengths: Vec<u32> = lengths.collect();
        let fits = |length: &u32| *length as usize <= PLACE_BYTES - GUARD_BYTES;
        let makes_sense = !lengths.is_empty() && lengths.iter().all(fits);
        let plan = Self { seed: u64::from_be_bytes(*seed), is_last: *is_last != 0, lengths };
        makes_sense.then_some(plan)
    }

    fn bytes(&self, round: u32) -> usize {
        self.lengths[round as usize % self.lengths.len()] as usize
    }

    /// Contents of a message (SplitMix64).
    fn contents(&self, round: u32, kind: Kind) -> Vec<u8> {
        let mut state = self.seed ^ u64::from(round) << 8 ^ kind as u64;
        let mut bytes = vec![0; self.bytes(round)];
        for chunk in bytes.chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(word ^ word >> 31).to_le_bytes()[..chunk.len()]);
        }
        bytes
    }
}

/// This host's device, with memory for a round.
struct End {
    host: Host,
    memory: Memory,
    device: Device,
    address: IpAddr,
    mac: Mac,
}

impl End {
    fn open(socket: &str, device: &str, interface: &str, address: &str) -> Outcome<Self> {
        let address = address.parse()?;
        let device = Device::open(device, address)?;
        let memory = device.memory(KINDS.len() * PLACE_BYTES)?;
        let mac = Mac(packet_socket::ethernet_address(interface)?);
        Ok(Self { host: Host::at(Path::new(socket)), memory, device, address, mac })
    }

    /// What ends within a tick.
    fn completions(&self) -> Outcome<Vec<Completion>> {
        let mut found = Vec::new();
        self.device.poll(&mut found, TICK)?;
        Ok(found)
    }
}

/// How a receiver ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    /// With its machine.
    Killed,
    /// Nothing gets to it.
    Silent,
    /// The same, and the sender's daemon does not look for it.
    Unwatched,
}

const fn connection(peer: IpAddr, peer_qpn: u32, psn_first: u32, mtu_bytes: u32) -> Connection {
    Connection {
        peer,
        peer_qpn,
        send_psn: psn_first,
        receive_psn: psn_first,
        mtu_bytes,
        timeout: 15,
        // For ever, at these devices: daemons need up to 15 s to notice that a host is gone, and then it
        // is taken out of the group. How long that may take is limited here.
        retries: 7,
        // For ever, too, 10 ms apart: receivers take their time to compare.
        not_ready_retries: 7,
        not_ready_timer: 20,
    }
}

/// Events that the daemon has sent.
async fn said<T>(next: impl Future<Output = T>) -> Option<T> {
    tokio::task::yield_now().await;
    timeout(Duration::ZERO, next).await.ok()
}

/// One group of the sender's.
struct Sending<'a> {
    end: &'a mut End,
    queue_pair: QueuePair,
    group: Group,
    plan: Plan,
    /// The first receiver is to end so, and has.
    outlives: Option<Death>,
    has_outlived: bool,
}

impl<'a> Sending<'a> {
    /// Makes it as soon as all receivers are there.
    async fn make(
        end: &'a mut End,
        service: &str,
        daemons: &[&str],
        plan: Plan,
        outlives: Option<Death>,
    ) -> Outcome<Self> {
        let mut queue_pair = end.device.queue_pair()?;
        let mtu_bytes = MTUS_BYTES[(daemons.len() - 1) % MTUS_BYTES.len()];
        let invited = |daemon: &&str| Invited { daemon: (*daemon).into(), service: service.into() };
        let new = NewGroup {
            sender: end.address,
            sender_mac: Some(end.mac),
            sender_qpn: queue_pair.number(),
            mtu_bytes,
            members: daemons.iter().map(invited).collect(),
            regions: vec![Extent {
                start: VIRTUAL_START,
                bytes: (KINDS.len() * PLACE_BYTES) as u64,
            }],
            application_data: plan.to_bytes(),
            continues: outlives.is_some(),
            all_notifications: false,
        };
        let deadline = Instant::now() + GROUP_PATIENCE;
        let group = loop {
            match end.host.create(&new).await {
                Ok(group) => break group,
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(error) if matches!(error.kind, ErrorKind::Unknown | ErrorKind::Unavailable) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let made = group.created();
        let mut connection = connection(made.virtual_address, made.id, made.psn_first, mtu_bytes);
        let patience = (connection.timeout, connection.retries);
        (connection.timeout, connection.retries) = match outlives {
            None | Some(Death::Killed) => patience,
            Some(Death::Silent) => (TIMEOUT_OF_ADAPTER, RETRIES_OF_ADAPTER),
            Some(Death::Unwatched) => (TIMEOUT_UNWATCHED, RETRIES_UNWATCHED),
        };
        queue_pair.connect(&connection)?;
        Ok(Self { end, queue_pair, group, plan, outlives, has_outlived: false })
    }

    /// All rounds.
    async fn run(mut self, receivers: usize) -> Outcome<()> {
        let (start, mut bytes) = (Instant::now(), 0);
        // The first round after the death.
        let mut survived = None;
        for round in 0.. {
            let is_last = match (self.outlives, survived) {
                (None, _) => round + 1 == self.plan.lengths.len() as u32,
                (Some(_), None) => false,
                (Some(_), Some(first)) => round == first + STREAM_ROUNDS,
            };
            self.round(round, is_last).await?;
            bytes += KINDS.len() * self.plan.bytes(round);
            if self.has_outlived && survived.is_none() {
                survived = Some(round + 1);
            }
            if is_last {
                let (messages, seconds) = ((round + 1) * 4, start.elapsed().as_secs_f32());
                println!(
                    "{receivers} receivers: {messages} messages, {bytes} bytes, {seconds:.1} s"
                );
                break;
            }
            match self.outlives.filter(|_| round == STREAM_ROUNDS) {
                Some(Death::Killed) => println!("the first receiver is to die now"),
                Some(Death::Silent | Death::Unwatched) => {
                    println!("the first receiver is to fall silent now");
                }
                None => {}
            }
        }
        self.group.close().await?;
        Ok(())
    }

    /// A message of each kind, until everybody has acknowledged them.
    async fn round(&mut self, round: u32, is_last: bool) -> Outcome<()> {
        for kind in KINDS {
            let contents = self.plan.contents(round, kind);
            self.end.memory.write(kind.place(), &contents)?;
            let operation = match kind.is_write() {
                true => Operation::Write { address: VIRTUAL_START + kind.place() as u64, key: 1 },
                false => Operation::Send,
            };
            let immediate = kind.has_immediate().then_some(immediate(round, kind, is_last));
            let range = kind.place()..kind.place() + contents.len();
            let Self { end, queue_pair, .. } = self;
            queue_pair.send(kind as u64, operation, &end.memory, range, immediate)?;
        }
        let (mut done, mut progressed) = (0, Instant::now());
        while done < KINDS.len() {
            for completion in self.end.completions()? {
                let is_next = completion.id == done as u64;
                if !is_next
                    || completion.status != Status::Done
                    || completion.event != Some(Event::Sent)
                {
                    return Err(format!("round {round}: {completion:?}").into());
                }
                (done, progressed) = (done + 1, Instant::now());
            }
            if let Some(event) = said(self.group.next()).await.transpose()? {
                self.on_event(event, progressed)?;
            }
            if progressed.elapsed() > PATIENCE {
                return Err(format!("round {round}: not acknowledged for too long").into());
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: GroupEvent, progressed: Instant) -> Outcome<()> {
        match event {
            GroupEvent::MemberFailed { member: 0, continues: true, reason }
                if self.outlives.is_some() && !self.has_outlived =>
            {
                let seconds = progressed.elapsed().as_secs_f32();
                println!(
                    "the group goes on without its first receiver after {seconds:.1} s: {reason}"
                );
                self.has_outlived = true;
            }
            GroupEvent::Trouble(Some(trouble)) => println!("trouble: {trouble}"),
            GroupEvent::Trouble(None) => println!("no more trouble"),
            event => return Err(format!("{event:?}").into()),
        }
        Ok(())
    }
}

const fn immediate(round: u32, kind: Kind, is_last: bool) -> u32 {
    if is_last && matches!(kind, Kind::WriteImmediate) { round | LAST } else { round }
}

/// One group at a receiver.
struct Receiving<'a> {
    end: &'a mut End,
    queue_pair: QueuePair,
    plan: Plan,
    round: u32,
    compared: usize,
    is_over: bool,
}

impl<'a> Receiving<'a> {
    fn join(end: &'a mut End, terms: &Terms) -> Outcome<Self> {
        let plan = Plan::from_bytes(&terms.application_data).ok_or("the offer has no plan")?;
        let mut queue_pair = end.device.queue_pair()?;
        let Terms { sender, sender_qpn, psn_first, mtu_bytes, .. } = *terms;
        queue_pair.connect(&connection(sender, sender_qpn, psn_first, mtu_bytes))?;
        let mut joined = Self { end, queue_pair, plan, round: 0, compared: 0, is_over: false };
        joined.prepare()?;
        Ok(joined)
    }

    fn acceptance(&self) -> Acceptance {
        let End { address, mac, memory, .. } = &*self.end;
        let (start, key) = (memory.address(), memory.key());
        let bytes = (KINDS.len() * PLACE_BYTES) as u64;
        Acceptance::new(*address, *mac, self.queue_pair.number()).with(roce::rc::MemoryRegion {
            start,
            bytes,
            key,
        })
    }

    /// From now on the round may come.
    fn prepare(&mut self) -> Outcome<()> {
        let bytes = self.plan.bytes(self.round);
        for kind in KINDS {
            self.end.memory.write(kind.place(), &vec![BLANK; bytes + GUARD_BYTES])?;
        }
        for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Write) {
            let room = if kind.is_write() { 0 } else { bytes };
            let range = kind.place()..kind.place() + room;
            self.queue_pair.receive(kind as u64, &self.end.memory, range)?;
        }
        Ok(())
    }

    /// Takes what has arrived, and whether there was something.
    fn take(&mut self) -> Outcome<bool> {
        let completions = self.end.completions()?;
        for completion in &completions {
            let kind = KINDS[completion.id as usize % KINDS.len()];
            self.check(completion, kind)?;
            if kind == Kind::SendImmediate {
                self.compare(Kind::Write)?;
            }
            self.compare(kind)?;
            if kind == Kind::WriteImmediate && !self.is_over {
                self.round += 1;
                self.prepare()?;
            }
        }
        Ok(!completions.is_empty())
    }

    /// What the device says of it is right.
    fn check(&mut self, completion: &Completion, kind: Kind) -> Outcome<()> {
        let wrong = || format!("round {}, {kind:?}: {completion:?}", self.round);
        let (bytes, immediate) = match completion.event {
            Some(Event::Received { bytes, immediate }) if !kind.is_write() => (bytes, immediate),
            Some(Event::Written { bytes, immediate }) if kind.is_write() => (bytes, immediate),
            _ => return Err(wrong().into()),
        };
        let is_last = immediate.is_some_and(|immediate| immediate & LAST != 0);
        let wanted = kind.has_immediate().then_some(self::immediate(self.round, kind, is_last));
        if bytes as usize != self.plan.bytes(self.round) || immediate != wanted {
            return Err(wrong().into());
        }
        self.is_over = is_last;
        Ok(())
    }

    fn compare(&mut self, kind: Kind) -> Outcome<()> {
        let mut wanted = self.plan.contents(self.round, kind);
        wanted.resize(wanted.len() + GUARD_BYTES, BLANK);
        let found = self.end.memory.read(kind.place()..kind.place() + wanted.len())?;
        self.compared += 1;
        match found.iter().zip(&wanted).position(|(found, wanted)| found != wanted) {
            None => Ok(()),
            Some(at) => {
                let bytes = wanted.len() - GUARD_BYTES;
                Err(format!("round {}: {kind:?} of {bytes} bytes differs at {at}", self.round)
                    .into())
            }
        }
    }

    /// Until the sender has closed the group after its last round.
    async fn run(&mut self, listener: &mut Listener) -> Outcome<()> {
        let mut progressed = Instant::now();
        loop {
            if self.take()? {
                progressed = Instant::now();
            }
            match said(listener.next()).await.transpose()? {
                Some(ListenerEvent::Ended { reason, .. }) => {
                    // What the sender knows to be acknowledged is in the completion queue.
                    while self.take()? {}
                    let is_right = self.is_over && reason == CLOSED;
                    return if is_right { Ok(()) } else { Err(reason.into()) };
                }
                Some(event) => return Err(format!("{event:?}").into()),
                None => {}
            }
            if progressed.elapsed() > PATIENCE {
                return Err(format!("round {}: nothing has come for too long", self.round).into());
            }
        }
    }
}

/// Takes part in groups until the last.
async fn receive(end: &mut End, service: &str) -> Outcome<()> {
    // Hosts have the same numbers otherwise, which could hide that they are not looked at.
    let own: u8 = end.mac.0[5];
    let _others: Vec<QueuePair> =
        (0..own).map(|_| end.device.queue_pair()).collect::<Result<_, _>>()?;
    let mut listener = end.host.listen(service).await?;
    loop {
        let (offer, terms) = timeout(GROUP_PATIENCE, offered(&mut listener)).await??;
        let mut receiving = Receiving::join(end, &terms)?;
        listener.accept(offer, &receiving.acceptance()).await?;
        if !timeout(PATIENCE, begins(&mut listener)).await?? {
            continue;
        }
        if let Err(error) = receiving.run(&mut listener).await {
            listener.leave(offer, &error.to_string()).await?;
            // Leaves its daemon time to read the reason.
            tokio::time::sleep(LEAVING).await;
            return Err(error);
        }
        println!("{} messages, all equal", receiving.compared);
        if receiving.plan.is_last {
            return Ok(());
        }
    }
}

async fn offered(listener: &mut Listener) -> Outcome<(u64, Terms)> {
    loop {
        if let ListenerEvent::Offer { offer, terms } = listener.next().await? {
            return Ok((offer, terms));
        }
    }
}

/// Whether a group that was accepted has been made. Otherwise another receiver was not there yet, and it
/// is offered again.
async fn begins(listener: &mut Listener) -> Outcome<bool> {
    match listener.next().await? {
        ListenerEvent::Ready { .. } => Ok(true),
        ListenerEvent::Ended { reason, .. } => {
            println!("{reason}");
            Ok(false)
        }
        ListenerEvent::Offer { .. } => Err("two groups at once".into()),
    }
}

async fn send(end: &mut End, service: &str, daemons: &[&str]) -> Outcome<()> {
    for receivers in 1..=daemons.len() {
        let is_last = receivers == daemons.len();
        // To one receiver, where nothing is copied, the longest would take time alone.
        let lengths = if receivers == 1 { &LENGTHS[..LENGTHS.len() - 1] } else { &LENGTHS };
        let plan = Plan { seed: receivers as u64, is_last, lengths: lengths.to_vec() };
        let sending = Sending::make(end, service, &daemons[..receivers], plan, None).await?;
        sending.run(receivers).await?;
    }
    Ok(())
}

async fn outlive(end: &mut End, service: &str, daemons: &[&str], death: Death) -> Outcome<()> {
    let plan = Plan { seed: 9, is_last: true, lengths: vec![STREAM_BYTES] };
    Sending::make(end, service, daemons, plan, Some(death)).await?.run(daemons.len()).await
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [what, socket, device, interface, address, service, daemons @ ..] = &arguments[..] else {
        return Err("use: receive, send or outlive, SOCKET DEVICE INTERFACE ADDRESS SERVICE, and \
                    DAEMON... to send to"
            .into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut end = End::open(socket, device, interface, address)?;
        match (*what, daemons) {
            ("receive", []) => receive(&mut end, service).await,
            ("send", [_, ..]) => send(&mut end, service, daemons).await,
            ("outlive", [_, _, ..]) => outlive(&mut end, service, daemons, Death::Killed).await,
            ("outlive-as-adapter", [_, _, ..]) => {
                outlive(&mut end, service, daemons, Death::Silent).await
            }
            ("outlive-unwatched", [_, _, ..]) => {
                outlive(&mut end, service, daemons, Death::Unwatched).await
            }
            _ => Err("that makes no sense".into()),
        }
    })
}
