//! Where the time of one transfer goes, at the receiver whose first block comes last (DSN 2018
//! section 5.2.1, Table 1).

use std::{net::IpAddr, ops::Range};

use rdmc::{Algorithm, size};
use serde_json::json;
use trace::What;

use crate::{
    Outcome,
    crew::{Crew, Host},
    interrupt::Interrupt,
    member::{Done, Equipment, Job},
    report::{Report, number},
    sweep::algorithms,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    members: u32,
    /// Length of the message
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    bytes: u64,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "1MiB")]
    block: u64,
    /// Algorithm
    #[arg(long, value_parser = algorithms(), default_value = "binomial-pipeline")]
    algorithm: Algorithm,
    /// Addresses of this host that members take by turns; each chooses its device by its address
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1")]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    equipment: Equipment,
    /// How often it is measured; the one with the median time is shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
pub fn run(args: &Args) -> Outcome<()> {
    if args.equipment.offload {
        return Err("with offload members do not see their blocks: leave out --offload".into());
    }
    let interrupt = Interrupt::watch()?;
    let equipment = Equipment { timeline: true, ..args.equipment.clone() };
    let what = format!(
        "time of {} to {} receivers as processes of this host, {}, {}, blocks of {}, at the \
         receiver whose first block comes last; the median of {}",
        size::show(args.bytes),
        args.members - 1,
        equipment.network(),
        args.algorithm,
        size::show(args.block),
        args.repeats
    );
    let hosts = Host::here_at(&args.addresses, args.members);
    let mut crew = Crew::start_with(&hosts, &interrupt, &equipment)?;
    let job = Job {
        number: 0,
        algorithm: args.algorithm.to_string(),
        block_bytes: args.block,
        window: rdmc::Window::default().receives,
        messages_in_flight: 1,
        messages: 1,
        message_bytes: args.bytes,
        small: false,
    };
    let mut all = Vec::new();
    for _ in 0..args.repeats {
        let parts = Parts::of(&crew.run_all(&job)?).ok_or("a member's timeline has gaps")?;
        all.push(parts);
    }
    all.sort_by_key(Parts::total_ns);
    let median = &all[all.len() / 2];
    let mut report = Report::new("breakdown", what, &["part", "time_us", "share"]);
    for (name, ns) in median.rows() {
        let share = ns as f64 / median.total_ns() as f64;
        report.row(vec![json!(name), number(ns as f64 / 1e3), number(share)]);
    }
    report.note(
        "remote: until this receiver has its first block. local setup: until it has told its \
         sources of its memory. block transfers: a block is on its way to it or from it, from the \
         sender's post to the receiver's completion. waiting: none is.",
    );
    report.print(args.json);
    Ok(())
}

/// What the time went to, in ns.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    remote_setup: u64,
    remote_transfers: u64,
    local_setup: u64,
    transfers: u64,
    waiting: u64,
    copying: u64,
}

/// A block on its way, from the sender's post to the receiver's completion.
struct Transfer {
    from: usize,
    to: usize,
    block: Option<u32>,
    time: Range<u64>,
}

impl Parts {
    /// `None` if a member did not record what it has to.
    fn of(members: &[Done]) -> Option<Self> {
        let transfers = transfers(members)?;
        let first_of = |member: usize| {
            let received = transfers.iter().filter(move |transfer| transfer.to == member);
            received.min_by_key(|transfer| transfer.time.end)
        };
        let first = (1..members.len()).filter_map(first_of).max_by_key(|first| first.time.end)?;
        let (start, end) = (members[0].started_ns?, members[first.to].received_ns?);
        let mut parts = Self::default();
        let mut hop = first;
        loop {
            parts.remote_transfers += hop.time.end.saturating_sub(hop.time.start);
            if hop.from == 0 {
                break;
            }
            hop = transfers.iter().find(|it| it.to == hop.from && it.block == hop.block)?;
        }
        let remote = first.time.end.checked_sub(start)?;
        parts.remote_setup = remote.saturating_sub(parts.remote_transfers);
        parts.remote_transfers = remote - parts.remote_setup;

        let own = &members[first.to].timeline;
        let after = |what: What| {
            let since = own.iter().filter(|moment| moment.at_ns >= first.time.end);
            since.filter(|moment| moment.what == what).map(|moment| moment.at_ns).next()
        };
        // A message of one block is never granted for.
        let setup = first.time.end..after(What::Grant).unwrap_or(first.time.end);
        let copying = after(What::Copy)?..after(What::Copied)?;
        let touching: Vec<&Range<u64>> = transfers
            .iter()
            .filter(|transfer| transfer.from == first.to || transfer.to == first.to)
            .map(|transfer| &transfer.time)
            .collect();
        for piece in pieces(first.time.end..end, touching.iter().copied().chain([&setup, &copying]))
        {
            let length = piece.end - piece.start;
            let inside = |range: &Range<u64>| range.start <= piece.start && piece.end <= range.end;
            if inside(&copying) {
                parts.copying += length;
            } else if inside(&setup) {
                parts.local_setup += length;
            } else if touching.iter().any(|time| inside(time)) {
                parts.transfers += length;
            } else {
                parts.waiting += length;
            }
        }
        Some(parts)
    }

    fn rows(&self) -> [(&'static str, u64); 7] {
        [
            ("remote setup", self.remote_setup),
            ("remote block transfers", self.remote_transfers),
            ("local setup", self.local_setup),
            ("block transfers", self.transfers),
            ("waiting", self.waiting),
            ("copy time", self.copying),
            ("total", self.total_ns()),
        ]
    }

    fn total_ns(&self) -> u64 {
        self.remote_setup
            + self.remote_transfers
            + self.local_setup
            + self.transfers
            + self.waiting
            + self.copying
    }
}

/// All transfers between these members; `None` if a block came that nobody sent.
fn transfers(members: &[Done]) -> Option<Vec<Transfer>> {
    let mut all = Vec::new();
    for (to, member) in members.iter().enumerate() {
        for received in member.timeline.iter().filter(|moment| moment.what == What::Received) {
            let from = usize::try_from(received.peer?).ok()?;
            let sent = members.get(from)?.timeline.iter().find(|moment| {
                moment.what == What::Send
                    && moment.peer == Some(to as u32)
                    && moment.block == received.block
            })?;
            // A word that was late does not make time run backwards.
            let time = sent.at_ns.min(received.at_ns)..received.at_ns;
            all.push(Transfer { from, to, block: received.block, time });
        }
    }
    Some(all)
}

/// The range, cut wherever one of the others begins or ends.
fn pieces<'a>(range: Range<u64>, others: impl Iterator<Item = &'a Range<u64>>) -> Vec<Range<u64>> {
    let mut cuts: Vec<u64> = others.flat_map(|other| [other.start, other.end]).collect();
    cuts.retain(|cut| range.contains(cut));
    cuts.extend([range.start, range.end]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Moment;

    fn moment(at_ns: u64, what: What, peer: u32, block: u32) -> Moment {
        Moment { at_ns, what, peer: Some(peer), block: Some(block), ..Moment::default() }
    }

    fn member(received_ns: Option<u64>, timeline: Vec<Moment>) -> Done {
        Done { started_ns: received_ns.is_none().then_some(100), received_ns, cpu_ns: 0, timeline }
    }

    #[test]
    fn every_nanosecond_belongs_to_one_part() {
        let root = vec![moment(103, What::Send, 1, 0), moment(140, What::Send, 1, 1)];
        let relay = vec![
            moment(113, What::Received, 0, 0),
            moment(115, What::Send, 2, 0),
            moment(150, What::Received, 0, 1),
            moment(151, What::Send, 2, 1),
        ];
        let last = vec![
            moment(125, What::Received, 1, 0),
            moment(127, What::Grant, 1, 0),
            moment(127, What::Copy, 2, 0),
            moment(132, What::Copied, 2, 0),
            moment(170, What::Received, 1, 1),
        ];
        let members = [member(None, root), member(Some(151), relay), member(Some(171), last)];
        let parts = Parts::of(&members).unwrap();
        let expected = Parts {
            remote_setup: 5,
            remote_transfers: 20,
            local_setup: 2,
            transfers: 19,
            waiting: 20,
            copying: 5,
        };
        assert_eq!(parts, expected);
        assert_eq!(parts.total_ns(), 71);
    }

    #[test]
    fn a_block_that_nobody_sent_is_a_gap() {
        let members =
            [member(None, Vec::new()), member(Some(9), vec![moment(5, What::Received, 0, 0)])];
        assert_eq!(Parts::of(&members), None);
    }
}
