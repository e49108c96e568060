//! Columns: what a case and its runs say, by name.

use lab::Distance;
use plan::size;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    case::{Case, Work},
    place::{Layout, Network},
    run::Run,
    site::cores,
};
use crate::{
    load::{Copies, Load, busiest},
    member::{Job, Memory, blocks},
    report::{deviation, mean, median, number},
};

/// A case with its results.
#[derive(Debug)]
pub struct Found {
    /// As it was measured.
    pub case: Case,
    pub runs: Vec<Run>,
    /// What plain connections carried over the long link.
    pub plain_mbit: Option<f64>,
    /// The time of one copy to one receiver.
    pub one_copy: f64,
}

/// How a column compares the times of two cases.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ratio {
    /// Own time / other time.
    Time,
    /// Other time / own time.
    Rate,
    /// Own time / other time, of messages sent alone.
    Latency,
}

impl Ratio {
    pub fn of(self, own: &Found, other: &Found) -> f64 {
        match self {
            Self::Time => own.seconds() / other.seconds(),
            Self::Rate => other.seconds() / own.seconds(),
            Self::Latency => own.latency() / other.latency(),
        }
    }
}

impl Found {
    #[cfg(test)]
    pub fn of_nothing(case: Case) -> Self {
        Self { case, runs: vec![Run::default()], plain_mbit: None, one_copy: f64::NAN }
    }

    fn each(&self, what: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().map(what).collect()
    }

    fn median(&self, what: impl Fn(&Run) -> f64) -> f64 {
        median(self.each(what))
    }

    fn seconds(&self) -> f64 {
        self.median(|run| run.seconds)
    }

    fn latency(&self) -> f64 {
        median(self.runs.iter().flat_map(|run| run.singles.clone()).collect())
    }

    /// Of all messages, or groups, of the case.
    fn payload_bytes(&self) -> f64 {
        match &self.case.work {
            Work::Messages(job) => (job.messages * job.message_bytes) as f64,
            Work::Together(all) => all.roots.len() as f64 * all.message_bytes as f64,
            Work::Nothing | Work::Plain => f64::NAN,
        }
    }

    fn mbit_in(&self, seconds: f64) -> f64 {
        self.payload_bytes() * 8e-6 / seconds
    }

    fn mbit(&self) -> f64 {
        self.mbit_in(self.seconds())
    }

    fn link_mbit(&self) -> f64 {
        self.case.place.link.rate.mbit()
    }

    fn of_rate(&self) -> f64 {
        self.mbit() / self.link_mbit()
    }

    /// The message's time at the long link's rate, and half a round trip.
    fn long_limit_seconds(&self) -> f64 {
        let Some((rate, Distance { delay, .. })) = self.case.place.long else { return f64::NAN };
        self.payload_bytes() * 8.0 / rate.bits_per_s() as f64 + delay.as_secs_f64()
    }

    /// What other connections carried, of a link's rate.
    fn flows(&self) -> Vec<f64> {
        let all = self.runs.iter().flat_map(|run| &run.flow_mbit);
        all.map(|mbit| mbit / self.link_mbit()).collect()
    }

    /// The share of the rate that the schedule allows: blocks / steps.
    fn share_of_schedule(&self) -> f64 {
        let steps = |job: &Job| {
            let schedules = self.case.schedules().ok()?;
            Some(f64::from(job.blocks()) / schedules.first()?.steps(job.blocks()) as f64)
        };
        self.case.job().and_then(steps).unwrap_or(f64::NAN)
    }

    /// What the schedules load; `None` if nothing is scheduled.
    fn load(&self) -> Option<Load> {
        let racks = self.case.place.rack_of_ranks();
        let block = match &self.case.work {
            Work::Messages(job) => job.block_bytes,
            Work::Together(all) => all.block_bytes,
            Work::Nothing | Work::Plain => return None,
        };
        let blocks = blocks(self.case.message_bytes()?, block);
        let schedules = self.case.schedules().ok()?;
        schedules.iter().map(|schedule| Load::of(schedule, &racks, blocks)).reduce(
            |mut all, one| {
                all += &one;
                all
            },
        )
    }

    /// The highest rate that the busiest port or uplink allows, all groups together, of a link's rate.
    fn limit(&self) -> f64 {
        let groups = if let Work::Together(all) = &self.case.work { all.roots.len() } else { 1 };
        let least = self.load().map(|load| load.least_time(self.case.place.uplink_rate()));
        least.map_or(f64::NAN, |least| groups as f64 / least)
    }

    fn uplinks(&self, one: fn(&Copies) -> f64) -> Value {
        let copies = self.runs.first().map_or(&[][..], |run| &run.uplinks);
        copies.iter().map(|copies| json!((one(copies) * 100.0).round() / 100.0)).collect()
    }
}

/// Jain's index of the rates of things of the same size that took these times.
fn jain(times: &[f64]) -> f64 {
    let rates = || times.iter().map(|time| 1.0 / time.max(1e-9));
    let sum: f64 = rates().sum();
    let squares: f64 = rates().map(|rate| rate * rate).sum();
    sum * sum / (times.len() as f64 * squares)
}

/// The value of a column; `None` if there is no such column.
pub fn value(name: &str, found: &Found) -> Option<Value> {
    let value = setting(name, found).or_else(|| result(name, found).map(number));
    value.or_else(|| list(name, found))
}

fn size_or_dash(bytes: Option<u64>) -> Value {
    bytes.map_or(json!("-"), |bytes| json!(size::show(bytes)))
}

/// Columns with what was set.
fn setting(name: &str, found: &Found) -> Option<Value> {
    let Case { place, values, .. } = &found.case;
    let job = found.case.job();
    Some(match name {
        "members" => json!(place.members),
        "mbit" => json!(place.link.rate.bits_per_s() / 1_000_000),
        "queue_ms" => json!(place.link.queue_ms),
        "length" | "bytes" => size_or_dash(found.case.message_bytes()),
        "algorithm" => json!(algorithm(&found.case)),
        "block" => size_or_dash(job.map(|job| job.block_bytes)),
        "blocks" => json!(job.map(Job::blocks)),
        "messages" => json!(job.map(|job| job.messages)),
        "in_flight" => json!(job.map(|job| job.messages_in_flight)),
        "verify" => json!(job.map(|job| job.verify)),
        "path" => json!(job.map(|job| if job.small { "written" } else { "relayed" })),
        "memory" => json!(job.map(|job| memory(job.memory))),
        "senders" => match &found.case.work {
            Work::Together(all) => json!(all.roots.len()),
            _ => json!(1),
        },
        "completion" => json!(place.equipment.completion.name()),
        "own_core" => json!(values.flag("own-cores").ok()? && cores(place.members).is_some()),
        "layout" => json!(if place.layout == Layout::Packed { "packed" } else { "scattered" }),
        "oversubscribed" => match place.oversubscription {
            Some(times) => json!(format!("{times}:1")),
            None => json!("full bisection"),
        },
        "round_trip_ms" => {
            json!(place.long.map(|(_, distance)| (distance.delay * 2).as_millis() as u64))
        }
        "loss_percent" => json!(place.long.map(|(_, distance)| distance.loss * 100.0)),
        "congestion" => json!(place.equipment.congestion),
        "streams" => json!(place.equipment.streams.unwrap_or(1)),
        "flows" => json!(values.text(name)),
        "network" => json!(if place.network == Network::Lab { "links" } else { "processes" }),
        "model_picks" => size_or_dash(found.case.picked_block()),
        _ => return None,
    })
}

fn algorithm(case: &Case) -> String {
    match &case.work {
        Work::Nothing => "-".into(),
        Work::Plain => "plain TCP".into(),
        Work::Messages(job) if case.is_auto => format!("auto: {}", job.algorithm),
        Work::Messages(job) => job.algorithm.clone(),
        Work::Together(all) => all.algorithm.clone(),
    }
}

fn memory(memory: Memory) -> &'static str {
    match memory {
        Memory::OnArrival => "allocated on arrival",
        Memory::Ahead => "posted ahead",
        Memory::AheadTouched => "posted ahead, used before",
    }
}

/// Columns with a number that was measured, or a limit.
fn result(name: &str, found: &Found) -> Option<f64> {
    let seconds = found.seconds();
    let members = f64::from(found.case.place.members);
    let messages = found.case.job().map_or(f64::NAN, |job| job.messages as f64);
    let all_mbit = || found.each(|run| found.mbit_in(run.seconds));
    let flows = |what: fn(Vec<f64>) -> f64| match found.flows() {
        flows if flows.is_empty() => f64::NAN,
        flows => what(flows),
    };
    let is_plain = matches!(found.case.work, Work::Plain);
    Some(match name {
        "time_s" => seconds,
        "time_us" => seconds * 1e6,
        "mean_s" => mean(&found.each(|run| run.seconds)),
        "deviation_s" => deviation(&found.each(|run| run.seconds)),
        "fastest_s" => found.each(|run| run.seconds).into_iter().fold(f64::INFINITY, f64::min),
        "slowest_s" => found.each(|run| run.seconds).into_iter().fold(0.0, f64::max),
        "skew_s" => found.median(|run| run.skew_seconds),
        "cpu_s" => found.median(|run| run.cpu_seconds),
        "sent_again" if found.case.place.network == Network::Lab => {
            found.median(|run| run.sent_again)
        }
        "sent_again" => f64::NAN,
        "cpu_share_per_member" => found.median(|run| run.cpu_seconds) / seconds / members,
        "cpu_us_per_message" => found.median(|run| run.cpu_seconds) * 1e6 / messages,
        "messages_per_s" => messages / seconds,
        "latency_us" => found.latency() * 1e6,
        "MB_per_s" => found.payload_bytes() / seconds / 1e6,
        "mbit_per_s" => found.mbit(),
        "deviation_mbit" => deviation(&all_mbit()),
        "of_rate" => found.of_rate(),
        "of_its_limit" => found.of_rate() / found.share_of_schedule(),
        "of_one_copy" => seconds / found.one_copy,
        "limit_of_rate" => found.limit(),
        "limit_mbit" => found.limit() * found.link_mbit(),
        "of_the_limit" => found.of_rate() / found.limit(),
        "busiest_uplink" => found.runs.first().map_or(f64::NAN, |run| busiest(&run.uplinks)),
        "scheduled" => found.load().map_or(f64::NAN, |load| busiest(&load.uplinks)),
        "fairness" => found.median(|run| jain(&run.groups)),
        "first_group_s" => {
            found.median(|run| run.groups.iter().copied().fold(f64::INFINITY, f64::min))
        }
        "flow_of_rate" => flows(median),
        "lowest" => flows(|all| all.into_iter().fold(f64::INFINITY, f64::min)),
        "highest" => flows(|all| all.into_iter().fold(0.0, f64::max)),
        "of_long_limit" if is_plain => {
            let (rate, _) = found.case.place.long?;
            found.plain_mbit.unwrap_or(f64::NAN) / rate.mbit()
        }
        "of_long_limit" => found.long_limit_seconds() / seconds,
        "of_plain" if is_plain => 1.0,
        "of_plain" => found.mbit() / found.plain_mbit.unwrap_or(f64::NAN),
        "crossed" => found.median(|run| run.crossed),
        "lost" => found.median(|run| run.lost),
        "dropped" => found.median(|run| run.dropped),
        _ => return None,
    })
}

/// Columns with a list of numbers, by rack.
fn list(name: &str, found: &Found) -> Option<Value> {
    match name {
        "out_of_racks" => Some(found.uplinks(|copies| copies.leaving)),
        "into_racks" => Some(found.uplinks(|copies| copies.entering)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rates_are_fair_and_one_that_gets_all_is_not() {
        assert!((jain(&[2.0; 5]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 1e9, 1e9, 1e9]) - 0.25).abs() < 1e-6);
        // Rates of 1 and 1/2: (3/2)^2 / (2 * 5/4).
        assert!((jain(&[1.0, 2.0]) - 0.9).abs() < 1e-12);
    }
}
