//! Over shaped links: one of them slow, or all of one member's, or one member's process pauses.

use std::{thread, time::Duration};

use lab::{Lab, LabSettings, Link, Rate, SlowHost, SlowLink};
use rdmc::Algorithm;
use rustix::process::{Pid, Signal, kill_process};

use super::{
    args::Args,
    row::{Row, common_link, slow_link_bound},
    slack,
};
use crate::{
    interrupt::Interrupt,
    links::usual_rate,
    member::{Done, Equipment, Job},
    member_processes::MemberProcesses,
    outcome::Outcome,
    report::median,
    sweep::alternate,
};
use trace::What;

/// How long a member's process pauses once, in block times: longer than in virtual time, since runs differ by some.
const PAUSES: [u32; 2] = [16, 128];

/// What is slow in a lab, or who pauses.
#[derive(Clone, Copy, Debug)]
enum Slow {
    Nothing,
    Link([u32; 2]),
    Member(u32),
    /// This member's process, in the middle of the message, for this many block times.
    Pause(u32, u32),
}

/// Two times of one run, in seconds: until all have the message, and all but the slow member.
type Times = (f64, f64);

/// One row for each algorithm and disturbance.
pub fn measure(args: &Args) -> Outcome<Vec<Row>> {
    let interrupt = Interrupt::watch()?;
    let jobs: Vec<Job> = args
        .algorithms
        .iter()
        .map(|&algorithm| Job::one(algorithm, args.block, args.bytes))
        .collect();
    let schedules =
        jobs.iter().map(|job| job.schedule(args.members)).collect::<Outcome<Vec<_>>>()?;
    let link = common_link(&schedules, args.members)
        .ok_or("these algorithms have no link in common: name fewer of them")?;
    let pauses = PAUSES.map(|blocks| Slow::Pause(link[1], blocks));
    let cases = [Slow::Nothing, Slow::Link(link), Slow::Member(link[1]), pauses[0], pauses[1]];
    let mut labs = Vec::new();
    for slow in cases.into_iter().filter(|slow| !matches!(slow, Slow::Pause(..))) {
        let lab = Lab::create(&settings(args, slow))?;
        let processes = MemberProcesses::start(&lab.hosts(), &interrupt)?;
        labs.push((processes, lab));
    }
    let results = alternate(jobs.len() * cases.len(), args.repeats, "links", |index| {
        let (job, slow) = (&jobs[index / cases.len()], cases[index % cases.len()]);
        let lab = if let Slow::Pause(..) = slow { 0 } else { index % cases.len() };
        let (processes, lab) = &mut labs[lab];
        times(&run(processes, job, slow, block_time(lab, job))?, link[1] as usize)
    })?;
    let medians: Vec<Times> = results
        .iter()
        .map(|runs| {
            let of = |one: fn(&Times) -> f64| median(runs.iter().map(one).collect());
            (of(|times| times.0), of(|times| times.1))
        })
        .collect();
    let labs: Vec<Lab> = labs.into_iter().map(|(_, lab)| lab).collect();
    let mut rows = Vec::new();
    for (job, times) in jobs.iter().zip(medians.chunks(cases.len())) {
        let algorithm = job.algorithm.parse()?;
        let undisturbed = Row::undisturbed(args.members, "links", algorithm, times[0].0, "s");
        for (index, (slow, (all, others))) in cases.into_iter().zip(times).enumerate() {
            let lab = labs.get(index);
            let pause = slow.pause(block_time(&labs[0], job)).as_secs_f64();
            rows.push(Row {
                expected: match slow {
                    Slow::Pause(..) => Some(times[0].0 / (times[0].0 + pause)),
                    _ => slow.expected(algorithm, args),
                },
                others_of_undisturbed: matches!(slow, Slow::Member(_)).then(|| times[0].1 / others),
                slack: lab.map_or(Ok(None), |lab| slack_of(lab, job, args, &interrupt))?,
                ..undisturbed.disturbed(slow.name(args.times_slower), *all)
            });
        }
    }
    Ok(rows)
}

/// How long a block takes on a link.
fn block_time(lab: &Lab, job: &Job) -> Duration {
    let rate_bits_per_s = lab.settings().link.rate.bits_per_s() as f64;
    Duration::from_secs_f64(job.block_bytes as f64 * 8.0 / rate_bits_per_s)
}

/// Runs a job, in the middle of which a member may pause.
fn run(
    processes: &mut MemberProcesses,
    job: &Job,
    slow: Slow,
    block_time: Duration,
) -> Outcome<Vec<Done>> {
    let Slow::Pause(member, _) = slow else { return processes.run_all(job) };
    let pause = slow.pause(block_time);
    let middle = block_time * job.blocks() / 2;
    let process = processes.pid(member as usize)?;
    let mut pausing = None;
    let all = processes.run_after(job, || {
        pausing = Some(thread::spawn(move || stop_for(process, middle, pause)));
        Ok(())
    });
    let stopped = pausing.map(|thread| thread.join().map_err(|_| "a thread panicked"));
    let all = all?;
    stopped.transpose()?.transpose()?;
    Ok(all)
}

/// Stops a process after some time, and lets it go on.
fn stop_for(process: Pid, after: Duration, pause: Duration) -> rustix::io::Result<()> {
    thread::sleep(after);
    kill_process(process, Signal::STOP)?;
    thread::sleep(pause);
    kill_process(process, Signal::CONT)
}

/// The slack of one more run, whose members record what they do and which is not timed.
fn slack_of(lab: &Lab, job: &Job, args: &Args, interrupt: &Interrupt) -> Outcome<Option<f64>> {
    let schedule = job.schedule(args.members)?;
    if schedule.algorithm() != Algorithm::BinomialPipeline {
        return Ok(None);
    }
    let equipment = Equipment { timeline: true, ..Equipment::default() };
    let all = MemberProcesses::start_with(&lab.hosts(), interrupt, &equipment)?.run_all(job)?;
    let block_ns = block_time(lab, job).as_nanos() as f64;
    let arrivals = arrivals(&all, job.blocks(), block_ns).ok_or("a member's timeline has gaps")?;
    Ok(slack::measured(&schedule, job.blocks(), &arrivals))
}

/// When each member had each block, in block times; `None` if a receiver did not record one.
fn arrivals(all: &[Done], blocks: u32, block_ns: f64) -> Option<Vec<Vec<f64>>> {
    let of_member = |done: &Done| {
        let mut arrivals = vec![None; blocks as usize];
        for moment in done.timeline.iter().filter(|moment| moment.what == What::Received) {
            let block = arrivals.get_mut(moment.block? as usize)?;
            *block = Some(moment.at_ns as f64 / block_ns);
        }
        // The root has had all of them.
        let default = done.started_ns.map(|_| 0.0);
        arrivals.into_iter().map(|arrival| arrival.or(default)).collect()
    };
    all.iter().map(of_member).collect()
}

impl Slow {
    fn name(self, times: u32) -> String {
        match self {
            Self::Nothing => "none".into(),
            Self::Link([one, other]) => format!("link {one}-{other} at 1/{times}"),
            Self::Member(member) => format!("member {member} at 1/{times}"),
            Self::Pause(member, blocks) => format!("process {member} late once by {blocks} blocks"),
        }
    }

    fn pause(self, block_time: Duration) -> Duration {
        if let Self::Pause(_, blocks) = self { block_time * blocks } else { Duration::ZERO }
    }

    fn expected(self, algorithm: Algorithm, args: &Args) -> Option<f64> {
        match self {
            Self::Nothing | Self::Pause(..) => None,
            Self::Link(_) => slow_link_bound(algorithm, args.members, args.times_slower),
            Self::Member(_) => Some(1.0 / f64::from(args.times_slower)),
        }
    }
}

fn settings(args: &Args, slow: Slow) -> LabSettings {
    let rate = args.rate.unwrap_or(usual_rate(args.members));
    let slow_rate = Rate::from_mbit(rate.bits_per_s() / 1_000_000 / u64::from(args.times_slower));
    let mut settings = LabSettings::new(args.members, Link::of_rate(rate));
    match slow {
        Slow::Nothing | Slow::Pause(..) => {}
        Slow::Link(hosts) => settings.slow_links.push(SlowLink { hosts, rate: slow_rate }),
        Slow::Member(host) => settings.slow_hosts.push(SlowHost { host, rate: slow_rate }),
    }
    settings
}

fn times(all: &[Done], slow: usize) -> Outcome<Times> {
    let started = all.iter().find_map(|done| done.started_ns).ok_or("the root did not start")?;
    let last = |with_slow: bool| {
        let some = all.iter().enumerate().filter(|(rank, _)| with_slow || *rank != slow);
        some.filter_map(|(_, done)| done.received_ns).max().ok_or("no member received")
    };
    let seconds = |ns: u64| ns.saturating_sub(started) as f64 / 1e9;
    Ok((seconds(last(true)?), seconds(last(false)?)))
}

#[cfg(test)]
mod tests {
    use trace::Moment;

    use super::*;

    fn done(started_s: Option<u64>, received_s: Option<u64>) -> Done {
        let ns = |seconds| seconds * 1_000_000_000;
        let timeline = Vec::new();
        Done {
            started_ns: started_s.map(ns),
            received_ns: received_s.map(ns),
            cpu_ns: 0,
            sent_again: 0,
            timeline,
        }
    }

    #[test]
    fn the_slow_member_does_not_count_among_the_others() {
        let all = [done(Some(1), None), done(None, Some(5)), done(None, Some(3))];
        assert_eq!(times(&all, 1).unwrap(), (4.0, 2.0));
        assert!(times(&all[1..], 1).is_err());
    }

    #[test]
    fn arrivals_are_taken_from_timelines() {
        let received = |at_ns, block| Moment {
            at_ns,
            what: What::Received,
            block: Some(block),
            ..Moment::default()
        };
        let mut receiver = done(None, Some(1));
        receiver.timeline = vec![received(10, 1), received(20, 0)];
        let all = [done(Some(1), None), receiver];
        assert_eq!(arrivals(&all, 2, 10.0).unwrap(), [[0.0, 0.0], [2.0, 1.0]]);
        assert_eq!(arrivals(&all, 3, 10.0), None);
        assert_eq!(arrivals(&all, 1, 10.0), None);
    }
}
