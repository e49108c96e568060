//! In virtual time: the same engines over ports and links that are exact.

use rdmc::{Algorithm, Schedule, Window};

use super::{
    args::Args,
    row::{Row, slow_link_bound},
    slack,
};
use crate::{
    outcome::Outcome,
    sim::{self, Late, Shape, World},
};

/// How long one program pauses once, in block times: not whole numbers, with which many events would happen at the same
/// time, in an arbitrary order.
const DELAYS: [f64; 3] = [0.5, 2.5, 16.5];
/// How much longer blocks take at random, in parts of a block time.
const JITTER: f64 = 0.3;
/// How often each program is late at random, and by how many block times.
const LATE: (f64, f64) = (0.1, 0.7);

/// Times of a run, in block times.
#[derive(Clone, Copy, Debug)]
struct Run {
    time: f64,
    /// Without the disturbed member.
    others: f64,
    slack: Option<f64>,
}

/// One algorithm, and its undisturbed time.
struct Trial<'a> {
    args: &'a Args,
    schedule: Schedule,
    undisturbed: Row,
}

/// One row for each algorithm and disturbance.
pub fn measure(args: &Args) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for &algorithm in &args.algorithms {
        rows.extend(Trial::new(args, algorithm)?.rows()?);
    }
    Ok(rows)
}

impl<'a> Trial<'a> {
    fn new(args: &'a Args, algorithm: Algorithm) -> Outcome<Self> {
        let schedule = sim::schedule(algorithm, args.members, sim::RACK)?;
        let run = run(&schedule, &shape(args), Vec::new(), None)?;
        let mut undisturbed = Row::undisturbed("virtual", algorithm, run.time, "block times");
        undisturbed.slack = run.slack;
        Ok(Self { args, schedule, undisturbed })
    }

    fn rows(self) -> Outcome<Vec<Row>> {
        let mut rows = vec![self.slow_link()?, self.slow_member()?];
        for delay in DELAYS {
            rows.push(self.one_delay(delay)?);
        }
        rows.push(self.all_late()?);
        for window in [1, 2, 4] {
            rows.push(self.jitter(window)?);
        }
        rows.insert(0, self.undisturbed);
        Ok(rows)
    }

    /// The worst of all links that the schedule uses.
    fn slow_link(&self) -> Outcome<Row> {
        let times = self.args.times_slower;
        let members = self.args.members;
        let links = (0..members).flat_map(|one| {
            let above = self.schedule.neighbours(one).filter(move |&other| one < other);
            above.map(move |other| [one, other])
        });
        let runs = links.map(|link| {
            let shape = Shape { slow_link: Some((link, times.into())), ..shape(self.args) };
            run(&self.schedule, &shape, Vec::new(), None)
        });
        let worst = worst(runs)?;
        let mut row = self.row(format!("one link at 1/{times}"), worst);
        row.expected = slow_link_bound(self.undisturbed.algorithm, members, times);
        Ok(row)
    }

    /// The worst of all receivers.
    fn slow_member(&self) -> Outcome<Row> {
        let times = self.args.times_slower;
        let runs = (1..self.args.members).map(|member| {
            let shape = Shape { slow_member: Some((member, times.into())), ..shape(self.args) };
            run(&self.schedule, &shape, Vec::new(), Some(member))
        });
        let worst = worst(runs)?;
        let mut row = self.row(format!("one member at 1/{times}"), worst);
        row.expected = Some(1.0 / f64::from(times));
        row.others_of_undisturbed = Some(self.undisturbed.time / worst.others);
        Ok(row)
    }

    /// The worst of all members, each in the middle of the message.
    fn one_delay(&self, delay: f64) -> Outcome<Row> {
        let middle = self.undisturbed.time / 2.0;
        let runs = (0..self.args.members).map(|member| {
            let late = vec![Late::once(member as usize, middle, delay)];
            run(&self.schedule, &shape(self.args), late, None)
        });
        let mut row = self.row(format!("one program late once by {delay} blocks"), worst(runs)?);
        row.expected = Some(self.undisturbed.time / (self.undisturbed.time + delay));
        Ok(row)
    }

    fn all_late(&self) -> Outcome<Row> {
        let (probability, delay) = LATE;
        let members = self.args.members as usize;
        let runs = (1..=u64::from(self.args.repeats)).map(|seed| {
            let late = (0..members).map(|member| {
                Late::new(member, delay, probability, seed * members as u64 + member as u64)
            });
            run(&self.schedule, &shape(self.args), late.collect(), None)
        });
        let name = format!("all programs late by {delay} blocks, {probability} of the time");
        Ok(self.row(name, middle(runs)?))
    }

    fn jitter(&self, window: u32) -> Outcome<Row> {
        let runs = (1..=u64::from(self.args.repeats)).map(|seed| {
            let shape = Shape { jitter: JITTER, window, seed, ..shape(self.args) };
            run(&self.schedule, &shape, Vec::new(), None)
        });
        let name = format!("blocks up to {JITTER} longer, {window} posted ahead");
        Ok(self.row(name, middle(runs)?))
    }

    fn row(&self, disturbance: String, run: Run) -> Row {
        Row { slack: run.slack, ..self.undisturbed.disturbed(disturbance, run.time) }
    }
}

fn shape(args: &Args) -> Shape {
    Shape {
        members: args.members,
        blocks: args.blocks,
        window: Window::default().receives,
        check: false,
        arrivals: true,
        ..Shape::default()
    }
}

fn run(schedule: &Schedule, shape: &Shape, late: Vec<Late>, without: Option<u32>) -> Outcome<Run> {
    let mut world = World::new(shape, schedule)?;
    world.be_late(late);
    world.deliver()?;
    Ok(Run {
        time: world.block_times_without(None),
        others: world.block_times_without(without),
        slack: slack::measured(schedule, shape.blocks, &world.arrivals()),
    })
}

fn worst(runs: impl Iterator<Item = Outcome<Run>>) -> Outcome<Run> {
    Ok(sorted(runs)?.pop().ok_or("there is nothing to disturb")?)
}

/// The one with the median time.
fn middle(runs: impl Iterator<Item = Outcome<Run>>) -> Outcome<Run> {
    let all = sorted(runs)?;
    Ok(*all.get(all.len() / 2).ok_or("there is nothing to disturb")?)
}

fn sorted(runs: impl Iterator<Item = Outcome<Run>>) -> Outcome<Vec<Run>> {
    let mut all = runs.collect::<Outcome<Vec<Run>>>()?;
    all.sort_by(|one, other| one.time.total_cmp(&other.time));
    Ok(all)
}
