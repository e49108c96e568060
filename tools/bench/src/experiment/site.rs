//! A place as it runs: its network, the members' processes, and other connections.

use std::{collections::BTreeMap, net::Ipv4Addr, thread, time::Duration};

use lab::{Host, Lab, LongLink, LongLinkCounts};
use rdmc::Algorithm;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::{
    case::{Case, Work},
    place::{Flows, Network, Place},
    run::Run,
};
use crate::{
    flow::{Connections, Flow, Reading},
    interrupt::Interrupt,
    member::{Equipment, Job},
    member_processes::MemberProcesses,
    outcome::Outcome,
    report::median,
};

/// For connections to find their rate, and for what is under way to arrive.
const SETTLE: Duration = Duration::from_millis(500);
/// The same over a long link, in round trips.
const SETTLE_ROUND_TRIPS: u32 = 20;
/// How long other connections are measured alone.
const ALONE: Duration = Duration::from_secs(1);
/// Messages are not made shorter than this.
const BYTES_MIN: u64 = 1 << 20;

/// Fields are dropped in this order: processes before the network that they use.
pub struct Site {
    processes: MemberProcesses,
    /// Two members, for the time of one copy.
    pair: Option<MemberProcesses>,
    flows: Vec<Flow>,
    long: Option<LongLink>,
    lab: Option<Lab>,
    /// What plain connections carry over the long link.
    plain_mbit: Option<f64>,
    /// Times of one copy, by block and length.
    one_copy: BTreeMap<[u64; 2], f64>,
}

impl Site {
    /// The place of this case. Needs root for a lab.
    pub fn start(case: &Case, interrupt: &Interrupt) -> Outcome<Self> {
        let place = &case.place;
        let lab = match place.network {
            Network::Lab => Some(Lab::create(&place.lab())?),
            Network::Loopback => None,
        };
        let hosts = hosts(place, lab.as_ref(), case.values.flag("own-cores")?);
        let long = match (&lab, place.long) {
            (Some(lab), Some((rate, distance))) => {
                hosts.iter().try_for_each(|host| set(host, "tcp_no_metrics_save", 1))?;
                Some(LongLink::between_racks(lab, place.link.at_rate(rate), &distance)?)
            }
            _ => None,
        };
        if let Some(log) = place.tso_rtt_log {
            hosts.iter().try_for_each(|host| set(host, "tcp_tso_rtt_log", log))?;
        }
        let plain_mbit = match place.long {
            Some((_, distance)) if !case.plain.is_zero() => {
                Some(plain_mbit(place, &hosts, distance.delay * 2, case.plain)?)
            }
            _ => None,
        };
        let racks = place.rack_of_ranks();
        let equipment = Equipment { racks, ..place.equipment.clone() };
        let processes = MemberProcesses::start_with(&hosts, interrupt, &equipment)?;
        let pair = match case.values.flag("one-copy")? {
            true => Some(MemberProcesses::start_with(&hosts[..2], interrupt, &place.equipment)?),
            false => None,
        };
        let flows = start_flows(place.flows, &hosts)?;
        Ok(Self { processes, pair, flows, long, lab, plain_mbit, one_copy: BTreeMap::new() })
    }

    /// What plain connections carry over the long link, where that was measured.
    pub fn plain_mbit(&self) -> Option<f64> {
        self.plain_mbit
    }

    /// The case as it is measured here: a message may be shorter.
    pub fn measured(&self, case: &Case) -> Case {
        let mut case = case.clone();
        if let Work::Messages(job) = &mut case.work
            && let Some((mbit, longest)) = self.plain_mbit.zip(case.longest)
        {
            let fits = (mbit * 1e6 / 8.0 * longest.as_secs_f64()) as u64;
            if fits < job.message_bytes {
                let whole = (fits >> 20 << 20).max(BYTES_MIN);
                job.message_bytes = whole.min(job.message_bytes);
            }
        }
        case
    }

    /// Measures a case of this place once.
    pub fn run(&mut self, case: &Case) -> Outcome<Run> {
        let case = self.measured(case);
        let before = self.read_flows()?;
        let mut run = match &case.work {
            Work::Plain => Run::default(),
            Work::Nothing => {
                thread::sleep(ALONE);
                Run::default()
            }
            Work::Messages(job) => self.send(job)?,
            Work::Together(together) => Run::of_groups(self.processes.run_together(together)?),
        };
        let after = self.read_flows()?;
        let mbit = after.iter().zip(before).map(|(after, before)| after.mbit_since(before));
        run.flow_mbit = mbit.collect();
        if let Work::Messages(job) = &case.work {
            let single = Job { messages: 1, messages_in_flight: 1, ..job.clone() };
            for _ in 0..case.singles {
                run.singles.push(self.processes.run(&single)?.seconds);
            }
        }
        if let Some(long) = &self.long {
            let wrong = long.counts().map(|counts| counts.merged + counts.refused);
            if wrong != [0, 0] {
                let what = "the long link did not treat packets one by one";
                return Err(format!("{what}: {wrong:?}").into());
            }
        }
        Ok(run)
    }

    fn read_flows(&mut self) -> Outcome<Vec<Reading>> {
        self.flows.iter_mut().map(Flow::read).collect()
    }

    fn send(&mut self, job: &Job) -> Outcome<Run> {
        let mut crossed = Vec::new();
        let mut counts = [LongLinkCounts::default(); 2];
        let (lab, long) = (&self.lab, &self.long);
        let all = self.processes.run_after(job, || {
            match (lab, long) {
                (_, Some(long)) => counts = long.counts(),
                (Some(lab), None) => crossed = lab.uplink_bytes()?,
                (None, None) => {}
            }
            Ok(())
        })?;
        let mut run = Run::of_members(&all)?;
        match (lab, long) {
            (_, Some(long)) => run.add_long_link(&counts, &long.counts(), job.message_bytes),
            (Some(lab), None) => {
                run.add_uplinks(&crossed, &lab.uplink_bytes()?, job.message_bytes);
            }
            (None, None) => {}
        }
        Ok(run)
    }

    /// The time of one copy of a case's message with its blocks, the median of these runs; NaN if it was not requested.
    pub fn one_copy(&mut self, case: &Case, repeats: u32) -> Outcome<f64> {
        let (Some(pair), Some(job)) = (&mut self.pair, case.job()) else { return Ok(f64::NAN) };
        let key = [job.block_bytes, job.message_bytes];
        if let Some(&seconds) = self.one_copy.get(&key) {
            return Ok(seconds);
        }
        let single = Job { algorithm: Algorithm::Chain.to_string(), ..job.clone() };
        let runs = (0..repeats).map(|_| Ok(pair.run(&single)?.seconds));
        let seconds = median(runs.collect::<Outcome<_>>()?);
        self.one_copy.insert(key, seconds);
        Ok(seconds)
    }
}

/// The host of each rank.
fn hosts(place: &Place, lab: Option<&Lab>, own_cores: bool) -> Vec<Host> {
    if let Some(lab) = lab {
        let hosts = lab.hosts();
        return place.hosts().into_iter().map(|host| hosts[host as usize].clone()).collect();
    }
    let here = [Ipv4Addr::LOCALHOST.into()];
    let addresses = if place.addresses.is_empty() { &here[..] } else { &place.addresses };
    let hosts = Host::here_at(addresses, place.members);
    match cores(place.members).filter(|_| own_cores) {
        Some(cores) => {
            hosts.into_iter().zip(cores).map(|(host, core)| host.on_core(core)).collect()
        }
        None => hosts,
    }
}

/// A core for each member, of those that this process may use; `None` if there are too few.
pub fn cores(members: u32) -> Option<Vec<usize>> {
    let usable = sched_getaffinity(None).ok()?;
    let cores = (0..CpuSet::MAX_CPU).filter(|&core| usable.is_set(core));
    let cores: Vec<usize> = cores.take(members as usize).collect();
    (cores.len() == members as usize).then_some(cores)
}

/// Sets one of a host's net.ipv4 parameters.
fn set(host: &Host, name: &str, value: u8) -> Outcome<()> {
    let command = format!("echo {value} > /proc/sys/net/ipv4/{name}");
    let status = host.command("sh").args(["-c", &command]).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command}: {status}").into()) }
}

fn start_flows(flows: Flows, hosts: &[Host]) -> Outcome<Vec<Flow>> {
    let pairs = match flows {
        Flows::None => return Ok(Vec::new()),
        Flows::One => 2..3,
        Flows::All => 0..hosts.len(),
    };
    let flows = pairs.map(|from| Flow::start(&hosts[from], &hosts[(from + 1) % hosts.len()]));
    let flows = flows.collect::<Outcome<_>>();
    thread::sleep(SETTLE);
    flows
}

/// What plain connections carry from the first host to the last, which is in the other rack.
fn plain_mbit(place: &Place, hosts: &[Host], round_trip: Duration, time: Duration) -> Outcome<f64> {
    let (first, last) = hosts.first().zip(hosts.last()).ok_or("there are no hosts")?;
    let Equipment { streams, congestion, .. } = place.equipment.clone();
    let connections = Connections { count: streams.unwrap_or(1), congestion };
    let mut flow = Flow::start_with(first, last, &connections)?;
    thread::sleep(SETTLE.max(round_trip * SETTLE_ROUND_TRIPS));
    let before = flow.read()?;
    thread::sleep(time);
    let mbit = flow.read()?.mbit_since(before);
    drop(flow);
    // What is under way arrives, and is refused.
    thread::sleep(SETTLE.max(round_trip * 2));
    Ok(mbit)
}
