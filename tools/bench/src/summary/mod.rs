//! Figures of a trace: which member waited for which, how busy links were, how long blocks took.

mod figures;
mod messages;

use std::{collections::BTreeSet, path::PathBuf};

use lab::Rate;
use plan::size;
use serde_json::{Value, json};
use trace::Reason;

use crate::{
    course::{Course, reason_name},
    outcome::Outcome,
    report::{Output, Report, ms, number},
};
use figures::{Direction, Durations};
use messages::Messages;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file that --trace has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The group to look at; unless given, that of the largest message, of several the last
    #[arg(long, value_name = "NUMBER")]
    group: Option<u64>,
    /// Its messages to look at; unless given, the largest, of several the last
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    message: Vec<u64>,
    /// Only list the groups and messages of the trace
    #[arg(long, conflicts_with_all = ["group", "message", "rate"])]
    list: bool,
    /// The rate of a link, as in 250mbit: shows times as multiples of a block's time at that rate
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> Outcome<()> {
    let messages = Messages::in_file(&args.file)?;
    if args.list {
        messages.report(&args.file).print(&args.output);
        return Ok(());
    }
    let chosen = messages.choose(args.group, &args.message)?;
    let course = messages::course(&args.file, &chosen)?;
    if course.transfers.is_empty() {
        return Err(format!("{chosen}: the trace has no block with both its ends").into());
    }
    let what = format!("{}: {chosen}, of {} in the trace", args.file.display(), messages.count());
    let mut report = Tables { course: &course, rate: args.rate }.report(what);
    if messages.lost > 0 {
        report.note(format!("{} events are missing in the trace.", messages.lost));
    }
    course.add_to(&mut report);
    report.print(&args.output);
    Ok(())
}

/// What the tables are made from.
struct Tables<'a> {
    course: &'a Course,
    rate: Option<Rate>,
}

impl Tables<'_> {
    fn report(&self, what: String) -> Report {
        let mut report = Report::new("trace-summary", what).without_machine();
        self.add_waits(&mut report);
        report.table("members", "Waiting by member, and of others for it:");
        self.add_members(&mut report);
        report.table("links", "Links, from a block's post to its arrival:");
        self.add_links(&mut report);
        for (name, title, direction) in [
            ("sources", "Time of a block by its source:", Direction::Out),
            ("targets", "Time of a block by its target:", Direction::In),
        ] {
            report.table(name, title);
            self.add_durations(direction, &mut report);
        }
        self.add_notes(&mut report);
        report
    }

    fn span_ns(&self) -> u64 {
        let span = self.course.span();
        span.end - span.start
    }

    fn share(&self, ns: u64) -> Value {
        number(ns as f64 / self.span_ns().max(1) as f64)
    }

    /// A block's time at the rate.
    fn block_ns(&self) -> Option<f64> {
        let bits = self.course.block_bytes as f64 * 8.0;
        self.rate.map(|rate| bits * 1e9 / rate.bits_per_s() as f64)
    }

    fn add_waits(&self, report: &mut Report) {
        for waiting in figures::waiting(&self.course.waits) {
            report.row([
                ("member", json!(waiting.member)),
                ("waits_for", json!(reason_name(waiting.reason))),
                ("of_member", json!(waiting.peer)),
                ("times", json!(waiting.times)),
                ("total_ms", ms(waiting.total_ns)),
                ("share", self.share(waiting.total_ns)),
                ("mean_ms", ms(waiting.total_ns / waiting.times)),
                ("longest_ms", ms(waiting.longest_ns)),
            ]);
        }
    }

    fn add_members(&self, report: &mut Report) {
        let all = figures::waiting(&self.course.waits);
        let holding_up = figures::holding_up(self.course);
        for member in 0..self.course.members() {
            let own = || all.iter().filter(move |waiting| waiting.member == member);
            let why = |reason: Reason| -> u64 {
                own().filter(|it| it.reason == reason).map(|it| it.total_ns).sum()
            };
            let of_others = all.iter().filter(|waiting| waiting.peer == Some(member));
            report.row([
                ("member", json!(member)),
                ("for_credit_ms", ms(why(Reason::Credit))),
                ("for_block_ms", ms(why(Reason::Block))),
                ("for_memory_ms", ms(why(Reason::Memory))),
                ("share", self.share(own().map(|waiting| waiting.total_ns).sum())),
                ("others_wait_ms", ms(of_others.map(|waiting| waiting.total_ns).sum())),
                ("holds_up", number(holding_up.get(member as usize).copied().unwrap_or(0.0))),
            ]);
        }
    }

    fn add_links(&self, report: &mut Report) {
        let start = self.course.span().start;
        for member in 0..self.course.members() {
            for direction in [Direction::Out, Direction::In] {
                let used = figures::use_of(self.course, member, direction);
                if used.blocks == 0 {
                    continue;
                }
                report.row([
                    ("member", json!(member)),
                    ("direction", json!(direction.name())),
                    ("blocks", json!(used.blocks)),
                    ("first_ms", ms(used.time.start - start)),
                    ("last_ms", ms(used.time.end - start)),
                    ("busy", self.share(used.busy_ns)),
                    ("idle_ms", ms(used.idle_ns())),
                    ("two_or_more", self.share(used.double_ns)),
                ]);
            }
        }
    }

    fn add_durations(&self, direction: Direction, report: &mut Report) {
        for member in 0..self.course.members() {
            let Some(durations) = figures::durations(self.course, member, direction) else {
                continue;
            };
            let Durations { blocks, median_ns, p90_ns, max_ns } = durations;
            let mut row = vec![
                ("member", json!(member)),
                ("blocks", json!(blocks)),
                ("median_ms", ms(median_ns)),
                ("p90_ms", ms(p90_ns)),
                ("max_ms", ms(max_ns)),
            ];
            if let Some(block_ns) = self.block_ns() {
                let times = |ns: u64| number(ns as f64 / block_ns);
                row.extend([
                    ("median_block_times", times(median_ns)),
                    ("p90_block_times", times(p90_ns)),
                    ("max_block_times", times(max_ns)),
                ]);
            }
            report.row(row);
        }
    }

    fn add_notes(&self, report: &mut Report) {
        let Course { transfers, block_bytes, without_send, backwards, .. } = self.course;
        let distinct: BTreeSet<u32> = transfers.iter().map(|transfer| transfer.block).collect();
        let mut total = format!(
            "{} transfers of blocks of {} in {:.3} ms",
            transfers.len(),
            size::show(*block_bytes),
            self.span_ns() as f64 / 1e6
        );
        if let Some(block_ns) = self.block_ns() {
            total += &format!(
                ": {:.2} block times of {:.3} ms; {} blocks",
                self.span_ns() as f64 / block_ns,
                block_ns / 1e6,
                distinct.len()
            );
        }
        report.note(total + ".");
        report.note(
            "holds up: the member's share in what held the message up, all members together 1, \
             found by following who waits for whom. A slow member, or the two ends of a slow link, \
             stand out; of a chain that is not slow its first link does.",
        );
        report.note(
            "waits: the member sends nothing meanwhile. share, busy, two or more: of the time from \
             the first post to the last arrival. idle: without a block, between the first and the \
             last. A block's time includes that behind others that were posted before it.",
        );
        if *without_send > 0 {
            report.note(format!("{without_send} blocks are left out: no send of theirs is shown."));
        }
        if *backwards > 0 {
            report.note(format!(
                "{backwards} blocks came before they were sent: the hosts' clocks differ, and with \
                 them the times of blocks."
            ));
        }
    }
}
