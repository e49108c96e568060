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
/// The length of blocks for which the windows are those that groups have.
const USUAL_BLOCK_BYTES: u64 = 64 << 10;
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

/// How members' ports serve several blocks, and the windows with which a delay costs no more than itself there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ports {
    /// One after another, as in the paper's model: windows of one, with which members keep the schedule's order.
    InOrder,
    /// All at once, as those of TCP connections, by cut-through: the windows that groups have.
    Shared,
}

impl Ports {
    const ALL: [Self; 2] = [Self::InOrder, Self::Shared];

    fn network(self) -> &'static str {
        match self {
            Self::InOrder => "in-order ports",
            Self::Shared => "shared ports",
        }
    }

    fn shape(self, members: u32, blocks: u32) -> Shape {
        let is_shared = self == Self::Shared;
        let window =
            if is_shared { Window::for_group(USUAL_BLOCK_BYTES, members).receives } else { 1 };
        Shape {
            members,
            blocks,
            window,
            shared: is_shared,
            cut_through: is_shared,
            check: false,
            arrivals: true,
            ..Shape::default()
        }
    }
}

/// One algorithm over one kind of ports, and its undisturbed time.
struct Trial {
    shape: Shape,
    times_slower: u32,
    repeats: u32,
    schedule: Schedule,
    undisturbed: Row,
}

/// One row for each algorithm, kind of ports and disturbance.
pub fn measure(args: &Args) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for &algorithm in &args.algorithms {
        for ports in Ports::ALL {
            rows.extend(Trial::new(args, args.members, algorithm, ports)?.rows()?);
        }
    }
    for &members in &args.slow_link_members {
        for &algorithm in &args.algorithms {
            for ports in Ports::ALL {
                let trial = Trial::new(args, members, algorithm, ports)?;
                let slow_link = trial.slow_link()?;
                rows.extend([trial.undisturbed, slow_link]);
            }
        }
    }
    Ok(rows)
}

impl Trial {
    fn new(args: &Args, members: u32, algorithm: Algorithm, ports: Ports) -> Outcome<Self> {
        let schedule = sim::schedule(algorithm, members, sim::RACK)?;
        let shape = ports.shape(members, args.blocks);
        let run = run(&schedule, &shape, Vec::new(), None)?;
        let mut undisturbed =
            Row::undisturbed(members, ports.network(), algorithm, run.time, "block times");
        undisturbed.slack = run.slack;
        let (times_slower, repeats) = (args.times_slower, args.repeats);
        Ok(Self { shape, times_slower, repeats, schedule, undisturbed })
    }

    fn rows(self) -> Outcome<Vec<Row>> {
        let mut rows = vec![self.slow_link()?, self.slow_member()?];
        for delay in DELAYS {
            rows.push(self.one_delay(delay)?);
        }
        rows.push(self.all_late()?);
        for window in [1, 2, self.shape.window.max(8)] {
            rows.push(self.jitter(window)?);
        }
        rows.insert(0, self.undisturbed);
        Ok(rows)
    }

    /// The worst of all links that the schedule uses.
    fn slow_link(&self) -> Outcome<Row> {
        let times = self.times_slower;
        let members = self.shape.members;
        let links = (0..members).flat_map(|one| {
            let above = self.schedule.neighbours(one).filter(move |&other| one < other);
            above.map(move |other| [one, other])
        });
        let runs = links.map(|link| {
            let shape = Shape { slow_link: Some((link, times.into())), ..self.shape.clone() };
            run(&self.schedule, &shape, Vec::new(), None)
        });
        let worst = worst(runs)?;
        let mut row = self.row(format!("one link at 1/{times}"), worst);
        row.expected = slow_link_bound(self.undisturbed.algorithm, members, times);
        Ok(row)
    }

    /// The worst of all receivers.
    fn slow_member(&self) -> Outcome<Row> {
        let times = self.times_slower;
        let runs = (1..self.shape.members).map(|member| {
            let shape = Shape { slow_member: Some((member, times.into())), ..self.shape.clone() };
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
        let runs = (0..self.shape.members).map(|member| {
            let late = vec![Late::once(member as usize, middle, delay)];
            run(&self.schedule, &self.shape, late, None)
        });
        let mut row = self.row(format!("one program late once by {delay} blocks"), worst(runs)?);
        row.expected = Some(self.undisturbed.time / (self.undisturbed.time + delay));
        Ok(row)
    }

    fn all_late(&self) -> Outcome<Row> {
        let (probability, delay) = LATE;
        let members = self.shape.members as usize;
        let runs = (1..=u64::from(self.repeats)).map(|seed| {
            let late = (0..members).map(|member| {
                Late::new(member, delay, probability, seed * members as u64 + member as u64)
            });
            run(&self.schedule, &self.shape, late.collect(), None)
        });
        let name = format!("all programs late by {delay} blocks, {probability} of the time");
        Ok(self.row(name, middle(runs)?))
    }

    fn jitter(&self, window: u32) -> Outcome<Row> {
        let runs = (1..=u64::from(self.repeats)).map(|seed| {
            let shape = Shape { jitter: JITTER, window, seed, ..self.shape.clone() };
            run(&self.schedule, &shape, Vec::new(), None)
        });
        let name = format!("blocks up to {JITTER} longer, {window} posted ahead");
        Ok(self.row(name, middle(runs)?))
    }

    fn row(&self, disturbance: String, run: Run) -> Row {
        Row { slack: run.slack, ..self.undisturbed.disturbed(disturbance, run.time) }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// DSN 2018 section 4.5, and a block for what is under way when a program pauses.
    #[test]
    fn a_delay_costs_no_more_than_itself_and_a_block() {
        let pipeline = Algorithm::BinomialPipeline;
        for (algorithm, members) in
            [(pipeline, 8), (pipeline, 16), (Algorithm::Circulant, 13), (Algorithm::Chain, 7)]
        {
            for ports in Ports::ALL {
                let schedule = Schedule::new(algorithm, members, 0).unwrap();
                let shape = ports.shape(members, 64);
                let time = |late| run(&schedule, &shape, late, None).unwrap().time;
                let undisturbed = time(Vec::new());
                for delay in DELAYS {
                    for member in 0..members as usize {
                        let taken = time(vec![Late::once(member, undisturbed / 2.0, delay)]);
                        let cost = taken - undisturbed;
                        assert!(
                            cost <= delay + 1.0,
                            "{algorithm} of {members}, {ports:?}: member {member} late by {delay} costs {cost}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn with_windows_of_one_a_delay_costs_itself_at_most_for_any_size() {
        for algorithm in [Algorithm::BinomialPipeline, Algorithm::Circulant] {
            for members in [3, 5, 6, 11, 12, 17, 24] {
                let schedule = Schedule::new(algorithm, members, 0).unwrap();
                let shape = Ports::InOrder.shape(members, 40);
                let time = |late| run(&schedule, &shape, late, None).unwrap().time;
                let undisturbed = time(Vec::new());
                assert_eq!(undisturbed, schedule.steps(40) as f64, "{algorithm} of {members}");
                for member in 0..members as usize {
                    let taken = time(vec![Late::once(member, undisturbed / 2.0, 2.5)]);
                    assert!(
                        taken <= undisturbed + 2.5,
                        "{algorithm} of {members}: member {member} late by 2.5 costs {}",
                        taken - undisturbed
                    );
                }
            }
        }
    }

    #[test]
    fn random_delays_cost_no_more_than_with_windows_of_one() {
        for members in [8, 16] {
            let schedule = Schedule::new(Algorithm::BinomialPipeline, members, 0).unwrap();
            for seed in 1..=5 {
                let shape = Shape { jitter: JITTER, seed, ..Ports::Shared.shape(members, 64) };
                let time = |shape: &Shape| run(&schedule, shape, Vec::new(), None).unwrap().time;
                let with_one = time(&Shape { window: 1, ..shape.clone() });
                assert!(time(&shape) <= with_one, "{members} members, seed {seed}");
            }
        }
    }
}
