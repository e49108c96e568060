//! `rdmc plan --fetch`: hosts that come at any time, in chains.

use std::io::{self, Write};

use plan::fetch::{Fetch, FetchOutcome};
use serde::Serialize;

use super::{
    args::Args,
    arrivals::{Arrivals, STEPS_MAX},
};
use crate::{failure::Failure, json, output};

/// The most hosts of such a plan.
const HOSTS_MAX: u32 = 10_000;

/// A plan of hosts that fetch.
struct Plan {
    blocks: u64,
    outcome: FetchOutcome,
}

#[derive(Serialize)]
struct Document {
    members: usize,
    blocks: u64,
    title: String,
    root_sent_blocks: u64,
    hosts: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    came: u64,
    done: u64,
    senders: Vec<usize>,
    sent_blocks: u64,
}

/// Prints when each host is done. Errors: too many hosts or blocks.
pub fn run(args: &Args, arrivals: Arrivals) -> Result<(), Failure> {
    let (members, blocks) = (args.members()?, u64::from(args.blocks.unwrap_or(0)));
    if !(2..=HOSTS_MAX).contains(&members) || !(1..=STEPS_MAX).contains(&blocks) {
        return Err(Failure::Usage(format!(
            "--fetch needs 2 to {HOSTS_MAX} --members, the server included, and 1 to {STEPS_MAX} --blocks"
        )));
    }
    let arrivals = arrivals.steps(u64::from(members - 1), blocks);
    let outcome = Fetch { blocks, arrivals, shares: args.share.unwrap_or(0) }.run();
    let plan = Plan { blocks, outcome };
    output::print(|out| if args.json { plan.write_json(out) } else { plan.write(out) })
}

impl Plan {
    fn copies(&self, blocks: u64) -> f64 {
        blocks as f64 / self.blocks as f64
    }

    fn headline(&self) -> String {
        let mut times: Vec<u64> = self.outcome.times().collect();
        times.sort_unstable();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        format!(
            "fetch: {} hosts, {} blocks; done after {:.3} times one copy, at worst {:.3}; {:.2} copies leave the server",
            times.len(),
            self.blocks,
            self.copies(median),
            self.copies(worst),
            self.copies(self.outcome.root_sent),
        )
    }

    /// A line for each host: the members that sent to it, one after another; `0` is the server.
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.headline())?;
        let width = self
            .outcome
            .hosts
            .iter()
            .map(|host| host.done)
            .max()
            .unwrap_or(0)
            .to_string()
            .len()
            .max(4);
        writeln!(out, "host  {:>width$}  {:>width$}  copies sent  from", "came", "done")?;
        for (number, host) in (1..).zip(&self.outcome.hosts) {
            let senders: Vec<String> = host.senders.iter().map(ToString::to_string).collect();
            let (came, done, sent) = (host.came, host.done, self.copies(host.sent));
            let senders = senders.join(", ");
            writeln!(out, "{number:>4}  {came:>width$}  {done:>width$}  {sent:>11.2}  {senders}")?;
        }
        Ok(())
    }

    /// Writes `{"schema","members","blocks","title","root_sent_blocks","hosts":[{"came","done","senders","sent_blocks"},…]}`.
    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let hosts = self.outcome.hosts.iter().map(|host| Entry {
            came: host.came,
            done: host.done,
            senders: host.senders.clone(),
            sent_blocks: host.sent,
        });
        let document = Document {
            members: self.outcome.hosts.len() + 1,
            blocks: self.blocks,
            title: self.headline(),
            root_sent_blocks: self.outcome.root_sent,
            hosts: hosts.collect(),
        };
        json::write_line(out, &document)
    }
}
