//! The members of one group as processes, and what they measure together.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

pub use lab::Host;
use rdmc::Secret;
use rustix::process::Pid;

use crate::{
    clock::{ClockId, now_ns},
    interrupt::Interrupt,
    member::{Answer, Done, Equipment, Job, Order, PlannedFault, Together, Workload},
    outcome::Outcome,
    traces::{self, MemberPart},
};

/// Longer than the timeouts of members, which report more.
const TIMEOUT: Duration = Duration::from_secs(660);

/// Longer than it takes to send all members the time at which to begin.
const HEAD_START: Duration = Duration::from_millis(50);

/// For members to finish their traces.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Jobs so far: each group of a trace has a number of its own.
static JOBS: AtomicU64 = AtomicU64::new(0);

/// The result of one job.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// From the root's first send to the end of the last receiver's last message.
    pub seconds: f64,
    /// Between the first and the last receiver's end.
    pub skew_seconds: f64,
    /// Processor time of all members, user and system.
    pub cpu_seconds: f64,
    /// TCP segments that were sent again by all members' hosts; each member is on one of its own.
    pub sent_again: u64,
}

/// Reports of the failure of a member.
#[derive(Debug)]
pub struct Reported {
    /// By member; the failed one may have none.
    pub failures: Vec<(usize, String)>,
    /// From the fault to the last of these reports.
    pub seconds: f64,
}

/// One object in transit, by `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flight {
    pub sent_ns: u64,
    /// At the last target.
    pub arrived_ns: u64,
    /// How many targets have it.
    pub targets: usize,
}

/// The result of a workload.
#[derive(Debug)]
pub struct Stored {
    /// By object.
    pub flights: Vec<Flight>,
    /// Processor time of all members, user and system.
    pub cpu_seconds: f64,
}

/// Running members, ended when dropped.
pub struct MemberProcesses {
    processes: Vec<Child>,
    traces: Vec<MemberPart>,
    orders: Vec<ChildStdin>,
    answers: Receiver<(usize, Option<String>)>,
    interrupt: Interrupt,
}

impl MemberProcesses {
    /// Starts one member on each of these hosts; the first is the root.
    pub fn start(hosts: &[Host], interrupt: &Interrupt) -> Outcome<Self> {
        Self::start_with(hosts, interrupt, &Equipment::default())
    }

    /// [`MemberProcesses::start`] with other than default contexts.
    pub fn start_with(
        hosts: &[Host],
        interrupt: &Interrupt,
        equipment: &Equipment,
    ) -> Outcome<Self> {
        let secret = Secret::random()?.to_hex();
        let (sender, answers) = mpsc::channel();
        let mut processes = Self {
            processes: Vec::new(),
            traces: Vec::new(),
            orders: Vec::new(),
            answers,
            interrupt: interrupt.clone(),
        };
        for (rank, host) in hosts.iter().enumerate() {
            let (orders, output) = processes.spawn(rank, hosts.len(), host, equipment)?;
            processes.orders.push(orders);
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = sender.send((rank, Some(line)));
                }
                let _ = sender.send((rank, None));
            });
            writeln!(processes.orders[rank], "{}", &*secret)?;
        }
        let meeting_place = processes.next_line()?.1;
        for orders in &mut processes.orders[1..] {
            writeln!(orders, "{meeting_place}")?;
        }
        Ok(processes)
    }

    fn spawn(
        &mut self,
        rank: usize,
        members: usize,
        host: &Host,
        equipment: &Equipment,
    ) -> Outcome<(ChildStdin, ChildStdout)> {
        let racks: Vec<String> = equipment.racks.iter().map(ToString::to_string).collect();
        let trace = traces::part(rank)?;
        let traced = trace.as_ref().map(MemberPart::arguments).transpose()?;
        self.traces.extend(trace);
        let mut process = host
            .command(env::current_exe()?)
            .arg("member")
            .args(["--rank", &rank.to_string(), "--members", &members.to_string()])
            .args(["--listen", &host.address.to_string()])
            .args(["--fabric", &equipment.fabric.to_string()])
            .args(["--completion", equipment.completion.name()])
            .args(["--protect", equipment.protection().name()])
            .args(equipment.offload.then_some("--offload"))
            .args(equipment.through_sockets.then_some("--through-sockets"))
            .args(equipment.timeline.then_some("--timeline"))
            .args((!racks.is_empty()).then(|| format!("--racks={}", racks.join(","))))
            .args(equipment.congestion.as_ref().map(|name| format!("--congestion={name}")))
            .args(equipment.streams.map(|streams| format!("--streams={streams}")))
            .args(traced.iter().flatten())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        self.processes.push(process);
        pipes.ok_or_else(|| "a member has no pipes".into())
    }

    /// Runs one job at all members; its number is replaced by a fresh one.
    pub fn run(&mut self, job: &Job) -> Outcome<Measured> {
        Measured::of(&self.run_all(job)?)
    }

    /// [`MemberProcesses::run`] with what each member measured, by rank.
    pub fn run_all(&mut self, job: &Job) -> Outcome<Vec<Done>> {
        self.run_after(job, || Ok(()))
    }

    /// [`MemberProcesses::run_all`] that calls `before` when all members are warm and nothing has been sent.
    pub fn run_after(
        &mut self,
        job: &Job,
        before: impl FnOnce() -> Outcome<()>,
    ) -> Outcome<Vec<Done>> {
        self.prepare(job)?;
        before()?;
        self.send(0, &Order::Go)?;
        let mut all = BTreeMap::new();
        for _ in 0..self.orders.len() {
            match self.next_answer()? {
                (rank, Answer::Done(done)) => drop(all.insert(rank, done)),
                (rank, answer) => {
                    return Err(format!("member {rank} did not finish but {answer:?}").into());
                }
            }
        }
        Ok(all.into_values().collect())
    }

    /// Returns a member's process.
    pub fn pid(&self, rank: usize) -> Outcome<Pid> {
        let process = self.processes.get(rank).ok_or("there is no such member")?;
        Ok(i32::try_from(process.id()).ok().and_then(Pid::from_raw).ok_or("not a process")?)
    }

    /// Runs several groups at once. Answers the time of each in seconds, from the moment at which all roots sent.
    pub fn run_together(&mut self, together: &Together) -> Outcome<Vec<f64>> {
        let number = JOBS.fetch_add(together.roots.len() as u64, Ordering::Relaxed) + 1;
        self.send_all(&Order::JoinAll(Together { number, ..together.clone() }))?;
        self.await_ready()?;
        let start_ns = now_ns(ClockId::Monotonic) + HEAD_START.as_nanos() as u64;
        self.send_all(&Order::GoAt(start_ns))?;
        let mut last_ns = vec![None; together.roots.len()];
        for _ in 0..self.orders.len() {
            let (rank, Answer::AllDone(times_ns)) = self.next_answer()? else {
                return Err("a member did not finish".into());
            };
            if times_ns.len() != last_ns.len() {
                return Err(format!("member {rank} was not in all groups").into());
            }
            for (last, time) in last_ns.iter_mut().zip(times_ns) {
                *last = time.max(*last);
            }
        }
        let seconds = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let all: Option<Vec<f64>> = last_ns.into_iter().map(|ns| ns.map(seconds)).collect();
        all.ok_or_else(|| "no member received".into())
    }

    /// The first member sends all objects, the next when one of those in flight has arrived at all its targets.
    pub fn store(&mut self, workload: &Workload) -> Outcome<Stored> {
        let number = JOBS.fetch_add(workload.groups.len() as u64, Ordering::Relaxed) + 1;
        self.send_all(&Order::Store(Workload { number, ..workload.clone() }))?;
        self.await_ready()?;
        let mut times = vec![Flight::default(); workload.objects.len()];
        let mut waiting = 0..workload.objects.len();
        for object in waiting.by_ref().take(workload.in_flight) {
            self.send(0, &Order::Send(object))?;
        }
        for _ in 0..times.len() * (1 + Workload::TARGETS) {
            match self.next_answer()? {
                (0, Answer::Sent { object, at_ns }) if object < times.len() => {
                    times[object].sent_ns = at_ns;
                }
                (_, Answer::Arrived { object, at_ns }) if object < times.len() => {
                    let flight = &mut times[object];
                    flight.arrived_ns = flight.arrived_ns.max(at_ns);
                    flight.targets += 1;
                    if flight.targets == Workload::TARGETS
                        && let Some(next) = waiting.next()
                    {
                        self.send(0, &Order::Send(next))?;
                    }
                }
                (rank, answer) => return Err(format!("member {rank} answered {answer:?}").into()),
            }
        }
        self.send_all(&Order::Close)?;
        let mut cpu_ns = 0;
        for _ in 0..self.orders.len() {
            match self.next_answer()? {
                (_, Answer::Stored(ns)) => cpu_ns += ns,
                (rank, answer) => return Err(format!("member {rank} answered {answer:?}").into()),
            }
        }
        Ok(Stored { flights: times, cpu_seconds: cpu_ns as f64 / 1e9 })
    }

    /// Runs one job in which a member fails, until all `others` have reported that the
    /// group has failed.
    pub fn lose(&mut self, job: &Job, victim: usize, fault: &PlannedFault) -> Outcome<Reported> {
        self.send(victim, &Order::Fail(fault.clone()))?;
        self.prepare(job)?;
        self.send(0, &Order::Go)?;
        let mut failed_at = None;
        let mut failures = Vec::new();
        let is_other = |(rank, _): &&(usize, String)| *rank != victim;
        // Other members may report before the victim's last line is read.
        while failed_at.is_none()
            || failures.iter().filter(is_other).count() < self.orders.len() - 1
        {
            let (rank, line) = self.next_event()?;
            let Some(line) = line else {
                if rank == victim {
                    continue;
                }
                return Err(format!("member {rank} ended").into());
            };
            match serde_json::from_str(&line)? {
                Answer::Failing if rank == victim => failed_at = Some(Instant::now()),
                Answer::Failed(error) => failures.push((rank, error)),
                answer => return Err(format!("member {rank} answered {answer:?}").into()),
            }
        }
        let seconds = failed_at.map_or(0.0, |failed_at: Instant| failed_at.elapsed().as_secs_f64());
        Ok(Reported { failures, seconds })
    }

    /// All members join and warm up.
    fn prepare(&mut self, job: &Job) -> Outcome<()> {
        let number = JOBS.fetch_add(1, Ordering::Relaxed) + 1;
        self.send_all(&Order::Join(Job { number, ..job.clone() }))?;
        self.await_ready()
    }

    fn await_ready(&mut self) -> Outcome<()> {
        for _ in 0..self.orders.len() {
            let (rank, answer) = self.next_answer()?;
            if !matches!(answer, Answer::Ready) {
                return Err(format!("member {rank} was not ready but {answer:?}").into());
            }
        }
        Ok(())
    }

    fn send_all(&mut self, order: &Order) -> Outcome<()> {
        (0..self.orders.len()).try_for_each(|rank| self.send(rank, order))
    }

    fn send(&mut self, rank: usize, order: &Order) -> Outcome<()> {
        let line = serde_json::to_string(order)?;
        Ok(writeln!(self.orders[rank], "{line}")?)
    }

    fn next_answer(&mut self) -> Outcome<(usize, Answer)> {
        let (rank, line) = self.next_line()?;
        match serde_json::from_str(&line)? {
            Answer::Failed(error) => Err(format!("member {rank}: {error}").into()),
            answer => Ok((rank, answer)),
        }
    }

    fn next_line(&mut self) -> Outcome<(usize, String)> {
        match self.next_event()? {
            (rank, Some(line)) => Ok((rank, line)),
            (rank, None) => Err(format!("member {rank} ended").into()),
        }
    }

    /// Members end when their input does; traced ones may finish their traces.
    fn await_end(&mut self) {
        let start = Instant::now();
        let runs = |process: &mut Child| matches!(process.try_wait(), Ok(None));
        while self.processes.iter_mut().any(runs) && start.elapsed() < EXIT_TIMEOUT {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The next line of any member, or the end of its output.
    fn next_event(&mut self) -> Outcome<(usize, Option<String>)> {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            self.interrupt.check()?;
            match self.answers.recv_timeout(Duration::from_millis(100)) {
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("all members ended".into()),
            }
        }
        Err("members do not answer".into())
    }
}

impl Drop for MemberProcesses {
    fn drop(&mut self) {
        self.orders.clear();
        if !self.traces.is_empty() {
            self.await_end();
        }
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        for trace in self.traces.drain(..) {
            if let Err(error) = trace.join() {
                eprintln!("rdmc-bench: the trace is not complete: {error}");
            }
        }
    }
}

impl Measured {
    /// From the times of all members. Errors: times are missing.
    pub fn of(all: &[Done]) -> Outcome<Self> {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let received = || all.iter().filter_map(|done| done.received_ns);
        let started =
            all.iter().find_map(|done| done.started_ns).ok_or("the root did not start")?;
        let (first, last) = received().min().zip(received().max()).ok_or("no member received")?;
        Ok(Self {
            seconds: seconds(last.saturating_sub(started)),
            skew_seconds: seconds(last - first),
            cpu_seconds: seconds(all.iter().map(|done| done.cpu_ns).sum()),
            sent_again: all.iter().map(|done| done.sent_again).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_runs_from_the_send_to_the_last_receiver() {
        let done = |started_ns, received_ns| Done {
            started_ns,
            received_ns,
            cpu_ns: 5,
            sent_again: 7,
            timeline: Vec::new(),
        };
        let all = [done(Some(1_000), None), done(None, Some(9_000)), done(None, Some(3_000))];
        let measured = Measured::of(&all).unwrap();
        assert!((measured.seconds - 8e-6).abs() < 1e-12);
        assert!((measured.skew_seconds - 6e-6).abs() < 1e-12);
        assert_eq!(measured.sent_again, 21);
        assert!(Measured::of(&[]).is_err());
    }
}
