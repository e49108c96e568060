//! The program in the kernel on two processors at a time, with updates in between, and the pure logic on the same random
//! traffic. Needs root, and a build with clang.

use std::{
    collections::BTreeMap,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use data_plane::{DataPlane, KernelPlane};
use mcrdma::{GroupKey, Merging, Replication, Switch, Verdict};
use packet_socket::{Batch, Interface, Offload};
use roce::{Aeth, Headers, NakCode, Opcode, Reth, Serial, Syndrome};

use crate::kernel_switch::{
    PATIENCE, PORTS, SENDER_QPN, Twins, address, answer, frame, group, key, request, skipped,
};

const ROUNDS: u32 = 150;
const BURST: u32 = 12;

/// What comes out of each port, in order.
type Out = BTreeMap<usize, Vec<Vec<u8>>>;

/// The group of one address family, whose packets are sent by one processor.
struct Side<'a> {
    is_v6: bool,
    kernel: &'a Mutex<KernelPlane>,
    ports: &'a [u32],
    hosts: Vec<Interface>,
    pure: Switch,
    random: u64,
    psn: u32,
    found: Out,
}

impl Side<'_> {
    fn below(&mut self, most: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % most
    }

    fn key(&self) -> GroupKey {
        key(self.is_v6)
    }

    fn insert(&mut self) {
        let (replication, merging) = group(self.ports, self.is_v6);
        self.psn = merging.psn_first.get();
        let mut kernel = self.kernel.lock().unwrap();
        kernel.insert(self.key(), &replication, Some(&merging)).unwrap();
        drop(kernel);
        self.pure.tables.insert(self.key(), replication, Some(merging)).unwrap();
    }

    fn entry(&self) -> (Replication, Merging) {
        let tables = &self.pure.tables;
        let merging = tables.merging(self.key()).unwrap().clone();
        (tables.replication(self.key()).unwrap().clone(), merging)
    }

    /// Headers of the next packet, the port at which it is sent, and its payload.
    fn packet(&mut self) -> (usize, Headers, Vec<u8>) {
        let payload: Vec<u8> = (0..self.below(200)).map(|at| at as u8).collect();
        self.psn = self.psn.wrapping_add(self.below(2) as u32);
        let psn = self.psn.wrapping_add(self.below(4) as u32);
        let msn = Serial::new(psn);
        let member = 2 + self.below(4) as u8;
        let at_member = usize::from(member) - 1;
        let answered = |syndrome| {
            let aeth = Aeth { syndrome, msn };
            (at_member, answer(self.is_v6, member, psn, Some(aeth)), Vec::new())
        };
        match self.random >> 40 & 7 {
            0..=2 => answered(Syndrome::Ack((psn & 31) as u8)),
            3 => answered(Syndrome::Nak(NakCode::Sequence)),
            4 => (0, request(self.is_v6, Opcode::ReadRequest, psn, None), payload),
            5 => {
                // Some are beyond the regions.
                let reth = Reth { address: 0x1000 + self.below(5000), key: 1, bytes: 64 };
                (0, request(self.is_v6, Opcode::WriteOnly, psn, Some(reth)), payload)
            }
            _ => (0, request(self.is_v6, Opcode::SendMiddle, psn, None), payload),
        }
    }

    fn expect(&mut self, port: usize, frame: &[u8], expected: &mut Out) {
        let (ports, mut own) = (self.ports, frame.to_vec());
        let verdict = self.pure.handle(0, ports[port], &mut own, |to, copy| {
            let to = ports.iter().position(|&known| known == to).unwrap();
            expected.entry(to).or_default().push(copy.concat());
            true
        });
        let targets: Vec<usize> = match verdict {
            Verdict::Drop => Vec::new(),
            Verdict::Reflect => vec![port],
            Verdict::Pass => (0..PORTS).filter(|&other| other != port).collect(),
        };
        for to in targets {
            expected.entry(to).or_default().push(own.clone());
        }
    }

    /// Waits for as many frames of this family.
    fn compare(&mut self, expected: &Out) {
        let count = |out: &Out| out.values().map(Vec::len).sum::<usize>();
        let kind: [u8; 2] = if self.is_v6 { [0x86, 0xdd] } else { [8, 0] };
        let (mut batch, deadline) = (Batch::new(), Instant::now() + PATIENCE);
        while count(&self.found) < count(expected) && Instant::now() < deadline {
            for (port, host) in self.hosts.iter().enumerate() {
                host.receive(&mut batch, Duration::ZERO).unwrap();
                let own = batch.frames().filter(|(_, frame)| frame[12..14] == kind);
                let frames = self.found.entry(port).or_default();
                frames.extend(own.map(|(_, frame)| frame.to_vec()));
            }
        }
        self.found.retain(|_, frames| !frames.is_empty());
        assert_eq!(&self.found, expected);
        self.found.clear();
    }

    fn burst(&mut self) {
        let mut expected = Out::new();
        let mut sent = Vec::new();
        for _ in 0..BURST {
            let (port, headers, payload) = self.packet();
            let frame = frame(&headers, &payload);
            self.expect(port, &frame, &mut expected);
            sent.push((port, frame));
        }
        for (port, frame) in &sent {
            self.hosts[*port].send(Offload::NONE, frame).unwrap();
        }
        self.compare(&expected);
    }

    /// Changes this group while the other processor copies packets of the other.
    fn update(&mut self, round: u32) {
        let (mut replication, merging) = self.entry();
        match round % 8 {
            7 => {
                self.kernel
                    .lock()
                    .unwrap()
                    .remove(self.key(), &replication, Some(&merging))
                    .unwrap();
                assert!(self.pure.tables.remove(self.key()));
                self.insert();
            }
            4 => {
                let member = address(self.is_v6, 2 + self.below(4) as u8);
                let (was_member, told) = self.pure.remove_member(self.key(), member);
                let mut expected = Out::new();
                if let Some((port, frame)) = told {
                    let port = self.ports.iter().position(|&known| known == port).unwrap();
                    self.expect(port, &frame, &mut expected);
                }
                let mut kernel = self.kernel.lock().unwrap();
                let removed =
                    kernel.remove_member(self.key(), SENDER_QPN, member, &merging.members);
                let removed = removed.unwrap();
                drop(kernel);
                assert_eq!(removed, was_member);
                self.compare(&expected);
            }
            _ => {
                replication.branches.rotate_left(1);
                self.kernel.lock().unwrap().replace(self.key(), &replication).unwrap();
                assert!(self.pure.tables.replace(self.key(), replication).unwrap());
            }
        }
    }

    fn run(&mut self, processor: usize) {
        // Where there is one only, both share it.
        let mut one = rustix::thread::CpuSet::new();
        one.set(processor);
        let _ = rustix::thread::sched_setaffinity(None, &one);
        self.insert();
        for round in 0..ROUNDS {
            self.burst();
            self.update(round);
        }
    }
}

#[test]
fn both_do_the_same_on_two_processors_while_groups_change() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("processors");
    let kernel = Mutex::new(twins.kernel.take().unwrap());
    kernel.lock().unwrap().set_test_time(0).unwrap();
    let ports = twins.ports.clone();
    let side = |is_v6: bool| {
        let open = |port| {
            let host = Interface::open(&format!("h{port}"), true).unwrap();
            host.reserve(4 << 20).unwrap();
            host
        };
        Side {
            is_v6,
            kernel: &kernel,
            ports: &ports,
            hosts: (0..PORTS).map(open).collect(),
            pure: Switch::new(),
            random: 77 + u64::from(is_v6),
            psn: 0,
            found: Out::new(),
        }
    };
    let mut sides = [side(false), side(true)];
    thread::scope(|scope| {
        for (processor, side) in sides.iter_mut().enumerate() {
            scope.spawn(move || side.run(processor));
        }
    });
    for side in &sides {
        let (replication, merging) = side.entry();
        let kernel = kernel.lock().unwrap();
        let qpn = replication.sender_qpn;
        let counted = kernel.group_counters(side.key(), qpn, Some(&merging)).unwrap();
        assert_eq!(Some(counted), side.pure.tables.group_counters(side.key()));
    }
    // Counters of both processors together.
    let counted = kernel.lock().unwrap().counters().unwrap();
    let [one, other] = sides.map(|side| side.pure.tables.counters);
    for ((name, counted), ((_, one), (_, other))) in
        counted.iter().zip(one.iter().zip(other.iter()))
    {
        assert_eq!(counted, one + other, "{name}");
    }
    twins.kernel = Some(kernel.into_inner().unwrap());
}

/// The lock keeps one group's answers right when two processors merge them.
#[test]
fn answers_of_one_group_on_two_processors_are_merged() {
    if skipped() {
        return;
    }
    const ANSWERS: u32 = 3000;
    let mut twins = Twins::new("lock");
    let (replication, merging) = group(&twins.ports, false);
    twins.insert(key(false), replication, Some(merging.clone()));
    let first = merging.psn_first.get();
    let number = |member: u8, at: u32| {
        let psn = first.wrapping_add(at * u32::from(member) / 5);
        (psn, Aeth { syndrome: Syndrome::Ack(31), msn: Serial::new(at) })
    };
    thread::scope(|scope| {
        for (processor, members) in [[2, 4], [3, 5]].into_iter().enumerate() {
            scope.spawn(move || {
                let mut one = rustix::thread::CpuSet::new();
                one.set(processor);
                let _ = rustix::thread::sched_setaffinity(None, &one);
                let hosts = members
                    .map(|member| Interface::open(&format!("h{}", member - 1), false).unwrap());
                for at in 0..ANSWERS {
                    for (member, host) in members.into_iter().zip(&hosts) {
                        let (psn, aeth) = number(member, at);
                        let sent = frame(&answer(false, member, psn, Some(aeth)), &[]);
                        host.send(Offload::NONE, &sent).unwrap();
                    }
                }
            });
        }
    });
    for at in 0..ANSWERS {
        for member in 2..6 {
            let (psn, aeth) = number(member, at);
            let port = twins.ports[usize::from(member) - 1];
            let mut sent = frame(&answer(false, member, psn, Some(aeth)), &[]);
            twins.pure.handle(0, port, &mut sent, |_, _| true);
        }
    }
    let kernel = twins.kernel.as_ref().unwrap();
    let found = kernel.members(key(false), SENDER_QPN, &merging);
    let found: Vec<_> = found.iter().map(|m| (m.address, m.expected, m.msn)).collect();
    let merger = twins.pure.tables.merger(key(false)).unwrap();
    assert_eq!(found, merger.members().collect::<Vec<_>>());
    let counted = kernel.group_counters(key(false), SENDER_QPN, Some(&merging)).unwrap();
    let answers = counted.members.iter().map(|(_, answers)| {
        answers.forwarded.iter().sum::<u64>() + answers.suppressed.iter().sum::<u64>()
    });
    assert!(answers.eq([u64::from(ANSWERS); 4]), "{counted:?}");
    let counted = kernel.counters().unwrap();
    use mcrdma::Counter::{AckForwarded, AnswerSuppressed};
    assert_eq!(
        counted.counted(AckForwarded) + counted.counted(AnswerSuppressed),
        u64::from(ANSWERS) * 4
    );
}
