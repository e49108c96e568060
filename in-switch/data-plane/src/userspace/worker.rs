//! A thread of a userspace switch: the ports that it receives from, and the frames that wait to be sent.

use std::{
    io,
    ops::Range,
    time::{Duration, Instant},
};

use mcrdma::{GroupKey, Port, Switch, Verdict};
use packet_socket::{Batch, Interface, Offload, Outgoing, PARTS};
use roce::{ETHERNET_BYTES, Mac, Packet, ethernet};
use rustix::event::{PollFd, PollFlags, poll};

use super::bridge::{Bridge, Forwarded, Stations, is_multicast, lock};

/// A stop is noticed within this time.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where a part of a frame is.
#[derive(Clone, Debug)]
enum Part {
    /// In a received frame, by its place in the batch.
    Received(usize, Range<usize>),
    /// In memory of the worker.
    Made(Range<usize>),
}

/// A frame to send.
#[derive(Clone, Debug)]
struct Queued {
    offload: Offload,
    parts: [Part; PARTS],
    /// A copy of the received frame, for a group: counted in the tables.
    is_copy: bool,
}

/// Receives from some of a switch's ports, and sends to all.
///
/// A batch of frames is looked up under the lock of the tables, and sent when that is free again.
pub(super) struct Worker<'a> {
    bridge: &'a Bridge,
    /// Places of the ports that it receives from.
    own: Vec<usize>,
    /// Handles frames that are due, too.
    is_first: bool,
    /// By port.
    queues: Vec<Vec<Queued>>,
    /// Parts of frames that were made here.
    made: Vec<u8>,
    frame: Vec<u8>,
}

impl<'a> Worker<'a> {
    /// For each `step`th port from the `first` on.
    pub(super) fn new(bridge: &'a Bridge, first: usize, step: usize) -> Self {
        Self {
            bridge,
            own: (first..bridge.ports.len()).step_by(step).collect(),
            is_first: first == 0,
            queues: vec![Vec::new(); bridge.ports.len()],
            made: Vec::new(),
            frame: Vec::new(),
        }
    }

    /// Forwards until it is stopped.
    pub(super) fn run(&mut self, is_stopped: &impl Fn() -> bool) -> io::Result<()> {
        let mut batch = Batch::new();
        while !is_stopped() {
            let mut has_moved = false;
            for at in 0..self.own.len() {
                let port = self.own[at];
                // A port that is down reports an error once, and then has nothing.
                if let Ok(1..) = self.bridge.ports[port].receive(&mut batch, Duration::ZERO) {
                    has_moved = true;
                    let received: Vec<(Offload, &[u8])> = batch.frames().collect();
                    self.forward(port, &received);
                }
            }
            if !has_moved {
                self.wait()?;
            }
            if self.is_first {
                self.handle_due();
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let port = |&place: &usize| PollFd::new(&self.bridge.ports[place], PollFlags::IN);
        let mut ports: Vec<PollFd<'_>> = self.own.iter().map(port).collect();
        if self.is_first {
            ports.push(PollFd::new(&self.bridge.due.wake, PollFlags::IN));
        }
        let timeout = PATIENCE.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut ports, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn handle_due(&mut self) {
        for (number, frame) in self.bridge.due.take() {
            let port = self.bridge.ports.iter().position(|port| port.index() == number);
            if let Some(port) = port {
                self.forward(port, &[(Offload::NONE, &frame)]);
            }
        }
    }

    /// Forwards frames that a port has received.
    fn forward(&mut self, port: usize, received: &[(Offload, &[u8])]) {
        self.look_up(port, received);
        self.send(received);
    }

    fn look_up(&mut self, port: usize, frames: &[(Offload, &[u8])]) {
        let now_ns = self.bridge.started.elapsed().as_nanos() as u64;
        let (mut switch, mut stations) = (lock(&self.bridge.switch), lock(&self.bridge.stations));
        let now = Instant::now();
        for (place, &(offload, received)) in frames.iter().enumerate() {
            if received.len() < ETHERNET_BYTES {
                continue;
            }
            match self.handle(&mut switch, now_ns, port, place, received) {
                Verdict::Drop => {}
                Verdict::Reflect => {
                    let parts = self.keep_frame();
                    self.queues[port].push(Queued {
                        offload: Offload::NONE,
                        parts,
                        is_copy: false,
                    });
                }
                Verdict::Pass => {
                    let is_same = self.frame == received;
                    let parts = if is_same { whole(place, received) } else { self.keep_frame() };
                    self.bridge(
                        &mut stations,
                        now,
                        port,
                        &Queued { offload, parts, is_copy: false },
                    );
                }
            }
        }
    }

    /// Queues a frame's copies. Leaves in `frame` what its verdict is on.
    fn handle(
        &mut self,
        switch: &mut Switch,
        now_ns: u64,
        port: usize,
        place: usize,
        received: &[u8],
    ) -> Verdict {
        self.frame.clear();
        self.frame.extend_from_slice(received);
        let (ports, queues, made) = (&self.bridge.ports, &mut self.queues, &mut self.made);
        switch.handle(
            now_ns,
            ports[port].index(),
            &mut self.frame,
            |to: Port, [head, same, tail]| {
                let Some(to) = ports.iter().position(|port| port.index() == to) else {
                    return false;
                };
                let same = head.len()..head.len() + same.len();
                let mut keep = |bytes: &[u8]| {
                    made.extend_from_slice(bytes);
                    Part::Made(made.len() - bytes.len()..made.len())
                };
                let parts = [keep(head), Part::Received(place, same), keep(tail)];
                queues[to].push(Queued { offload: Offload::NONE, parts, is_copy: true });
                true
            },
        )
    }

    /// Keeps what is in `frame` until it is sent.
    fn keep_frame(&mut self) -> [Part; PARTS] {
        let begin = self.made.len();
        self.made.extend_from_slice(&self.frame);
        [Part::Made(begin..self.made.len()), Part::Made(0..0), Part::Made(0..0)]
    }

    /// Queues the frame in `frame` for the port where its destination was learnt, or for all.
    fn bridge(&mut self, stations: &mut Stations, now: Instant, from: usize, queued: &Queued) {
        let frame = &self.frame;
        let address = |at: usize| {
            let mut mac = Mac::default();
            mac.0.copy_from_slice(&frame[at..at + 6]);
            mac
        };
        let (target, source) = (address(0), address(6));
        // Reserved addresses, such as those of spanning tree, are not forwarded (IEEE 802.1Q, table 8-1).
        if target.0[..5] == [0x01, 0x80, 0xc2, 0, 0] && target.0[5] < 16 {
            return;
        }
        let ports = &self.bridge.ports;
        stations.learn(source, ports[from].index(), now);
        let known = stations.find(target, now).filter(|_| !is_multicast(target));
        match known.and_then(|port| ports.iter().position(|known| known.index() == port)) {
            Some(to) if to == from => {}
            Some(to) => self.queues[to].push(queued.clone()),
            None => (0..ports.len())
                .filter(|&to| to != from)
                .for_each(|to| self.queues[to].push(queued.clone())),
        }
    }

    /// Sends what is queued.
    fn send(&mut self, received: &[(Offload, &[u8])]) {
        let mut refused = Vec::new();
        for (queue, port) in self.queues.iter_mut().zip(&self.bridge.ports) {
            refused.extend(send_queue(self.bridge, port, queue, received, &self.made));
            queue.clear();
        }
        self.made.clear();
        if !refused.is_empty() {
            let mut switch = lock(&self.bridge.switch);
            refused.into_iter().for_each(|group| switch.tables.refuse_copy(group));
        }
    }
}

/// Sends a port's frames. Returns the groups whose copies it refused, one for each copy.
fn send_queue(
    bridge: &Bridge,
    port: &Interface,
    queue: &[Queued],
    received: &[(Offload, &[u8])],
    made: &[u8],
) -> Vec<GroupKey> {
    let part = |part: &Part| match part {
        Part::Received(place, range) => &received[*place].1[range.clone()],
        Part::Made(range) => &made[range.clone()],
    };
    let frame = |queued: &Queued| Outgoing {
        offload: queued.offload,
        parts: queued.parts.each_ref().map(part),
    };
    let frames: Vec<Outgoing<'_>> = queue.iter().map(frame).collect();
    let (mut bridged_refused, mut copies_refused) = (0, Vec::new());
    port.send_many(&frames, |place| match queue[place].is_copy {
        true => copies_refused.extend(group_of(&queue[place], received)),
        false => bridged_refused += 1,
    });
    let bridged = queue.iter().filter(|queued| !queued.is_copy).count() as u64;
    bridge.count(Forwarded { frames: bridged - bridged_refused, refused: bridged_refused });
    copies_refused
}

/// The group of a copy, by the frame of which it is one.
fn group_of(copy: &Queued, received: &[(Offload, &[u8])]) -> Option<GroupKey> {
    let of_frame = |part: &Part| match part {
        Part::Received(place, _) => {
            let frame = received[*place].1;
            let (_, at) = ethernet::contents(frame)?;
            Some(GroupKey::of(&Packet::parse(&frame[at..]).ok()?.headers))
        }
        Part::Made(_) => None,
    };
    copy.parts.iter().find_map(of_frame)
}

fn whole(place: usize, received: &[u8]) -> [Part; PARTS] {
    [Part::Received(place, 0..received.len()), Part::Made(0..0), Part::Made(0..0)]
}
