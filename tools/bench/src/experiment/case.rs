//! One row of an experiment: where it is measured, and what is sent.

use std::{net::SocketAddr, time::Duration};

use plan::{
    choice::{Choice, ChoiceRequest},
    size,
};
use rdmc::{Algorithm, ContextSettings, GroupSettings, Schedule, Secret, Window};

use super::{
    place::{Network, Place},
    values::Values,
};
use crate::{
    links::costs,
    member::{Job, Memory, Together},
    outcome::{Outcome, Usage},
};

/// The longest message that is written into the receivers' rings.
const WRITTEN_BYTES_MAX: u64 = 64 << 10;

/// What is sent.
#[derive(Clone, Debug)]
pub enum Work {
    /// Nothing: other connections are alone.
    Nothing,
    /// Plain TCP connections carry what they can over the long link.
    Plain,
    /// Messages in one group.
    Messages(Job),
    /// A message in each of several groups of the same members.
    Together(Together),
}

/// A combination of settings.
#[derive(Clone, Debug)]
pub struct Case {
    pub values: Values,
    pub place: Place,
    pub work: Work,
    /// Whether the cost model chose the algorithm and the block.
    pub is_auto: bool,
    /// How often a single message is sent after the others, each time in a group of its own.
    pub singles: u32,
    /// Messages are shorter, but not below 1 MiB, if plain connections would take longer.
    pub longest: Option<Duration>,
    /// How long plain connections are measured.
    pub plain: Duration,
}

impl Case {
    /// Errors: a setting is invalid.
    pub fn new(values: Values) -> Outcome<Self> {
        let place = Place::new(&values)?;
        let seconds = |name| -> Outcome<Option<Duration>> {
            let seconds = values.number(name, 0.0..=3_600.0)?;
            Ok(seconds.map(Duration::from_secs_f64))
        };
        Ok(Self {
            is_auto: values.text("algorithms").is_none(),
            singles: values.number("singles", 0..=1_000)?.unwrap_or(0),
            longest: seconds("longest-s")?,
            plain: seconds("plain-s")?.unwrap_or_default(),
            work: Work::new(&values, &place)?,
            place,
            values,
        })
    }

    /// For the progress.
    pub fn title(&self) -> String {
        format!("{} members", self.place.members)
    }

    /// The messages of one group, if that is what is sent.
    pub fn job(&self) -> Option<&Job> {
        if let Work::Messages(job) = &self.work { Some(job) } else { None }
    }

    /// The length of a message, if any is sent.
    pub fn message_bytes(&self) -> Option<u64> {
        match &self.work {
            Work::Messages(job) => Some(job.message_bytes),
            Work::Together(together) => Some(together.message_bytes),
            Work::Nothing | Work::Plain => None,
        }
    }

    /// What each member sends; of several groups of each.
    pub fn schedules(&self) -> Outcome<Vec<Schedule>> {
        match &self.work {
            Work::Messages(job) => Ok(vec![job.schedule_in(&self.place.rack_of_ranks())?]),
            Work::Together(together) => together.schedules(self.place.members),
            Work::Nothing | Work::Plain => Ok(Vec::new()),
        }
    }

    /// The block that the cost model takes for this algorithm and length over this network.
    pub fn picked_block(&self) -> Option<u64> {
        let job = self.job()?;
        let algorithm = job.algorithm.parse().ok()?;
        Some(choose(&self.place, job.message_bytes, Some(algorithm)).block_bytes)
    }
}

/// What the cost model takes for a message over links of this place.
fn choose(place: &Place, message_bytes: u64, algorithm: Option<Algorithm>) -> Choice {
    let request = ChoiceRequest {
        members: place.members,
        racks: &[],
        message_bytes,
        algorithm,
        block_bytes: None,
    };
    request.choose(&costs(place.members, place.link))
}

/// What a group takes whose members set this length and nothing else.
fn choose_here(place: &Place, message_bytes: u64) -> Choice {
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let members = vec![here; place.members as usize];
    let settings = GroupSettings::new(1, members, 0).message_bytes(message_bytes);
    let context = ContextSettings::new(here, Secret::from_bytes([0; 32]));
    settings.choose(&context.fabric(place.equipment.fabric.clone()))
}

/// Messages and their length, as in 32x1MiB.
fn load(text: &str) -> Result<(u64, u64), String> {
    let invalid = || format!("\"{text}\" is not as in 32x1MiB");
    let (count, bytes) = text.split_once('x').ok_or_else(invalid)?;
    Ok((count.parse().map_err(|_| invalid())?, size::parse_nonzero(bytes)?))
}

impl Work {
    fn new(values: &Values, place: &Place) -> Outcome<Self> {
        let algorithm = match values.text("algorithms") {
            Some("none") => return Ok(Self::Nothing),
            Some("plain") => return Ok(Self::Plain),
            _ => values.parsed("algorithms", str::parse::<Algorithm>)?,
        };
        let (messages, bytes) = match values.parsed("loads", load)? {
            Some((messages, bytes)) => {
                let less = values.number("less", 1..=100)?.unwrap_or(1);
                // Short messages are fewer only.
                let bytes = if bytes > 1_000_000 { bytes / less } else { bytes };
                ((messages / less).max(1), bytes)
            }
            None => {
                let messages = values.number("messages", 1..=1_000_000)?.unwrap_or(1);
                (messages, values.bytes("bytes")?.unwrap_or(1 << 20))
            }
        };
        let picked = match (algorithm, place.network) {
            (Some(_), _) => None,
            (None, Network::Loopback) => Some(choose_here(place, bytes)),
            (None, _) => Some(choose(place, bytes, None)),
        };
        let chosen = algorithm.or(picked.as_ref().map(|choice| choice.algorithm));
        let algorithm = chosen.ok_or("no algorithm")?;
        let block = values.bytes("blocks")?;
        let block = picked.map(|choice| choice.block_bytes).or(block).unwrap_or(64 << 10);
        let window: Option<u32> = values.number("window", 1..=1_024)?;
        if let Some(senders) = values.text("senders") {
            return Ok(Self::Together(Together {
                number: 0,
                algorithm: algorithm.to_string(),
                block_bytes: block,
                window: window.unwrap_or(Window::default().receives),
                message_bytes: bytes,
                roots: roots(senders, place.members)?,
            }));
        }
        let in_flight = values.number("in-flight", 1..=64)?;
        let memory = values.choice("memory", &Memory::NAMES)?;
        let paths = [("relayed", false), ("written", true)];
        let small = values.choice("path", &paths)?.unwrap_or(false);
        if small && bytes > WRITTEN_BYTES_MAX {
            return Err(Usage("--bytes: written messages have at most 64KiB".into()).into());
        }
        let job = Job {
            messages,
            messages_in_flight: in_flight.unwrap_or(if messages > 1 { 2 } else { 1 }),
            small,
            verify: values.flag("verify")?,
            memory: memory.unwrap_or(Memory::AheadTouched),
            ..Job::one(algorithm, block, bytes)
        };
        Ok(Self::Messages(match values.flag("window-of-group")? || window.is_some() {
            true => job.in_group(place.members, window),
            false => job,
        }))
    }
}

/// Roots of groups, spread evenly over the members.
fn roots(senders: &str, members: u32) -> Outcome<Vec<u32>> {
    let count = match senders {
        "all" => members,
        "half" => members / 2,
        "one" => 1,
        other => {
            return Err(Usage(format!("--senders: \"{other}\" is not all, half or one")).into());
        }
    };
    Ok((0..count).map(|sender| sender * members / count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_spread_evenly() {
        assert_eq!(roots("half", 8).unwrap(), [0, 2, 4, 6]);
        assert_eq!(roots("all", 3).unwrap(), [0, 1, 2]);
        assert_eq!(roots("one", 8).unwrap(), [0]);
        assert!(roots("most", 8).is_err());
    }

    #[test]
    fn loads_are_a_count_and_a_length() {
        assert_eq!(load("32x1MiB"), Ok((32, 1 << 20)));
        assert!(load("1MiB").is_err() && load("x1MiB").is_err() && load("2x0").is_err());
    }
}
