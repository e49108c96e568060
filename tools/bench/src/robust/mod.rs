//! What one slow link, one slow member or late programs cost (DSN 2018 section 4.5).

mod args;
mod links;
mod row;
mod simulated;
mod slack;

use plan::size;
use rdmc::Schedule;

use crate::{outcome::Outcome, report::Report};
use args::Network;
use row::Row;

pub use args::Args;

/// Measures and prints.
pub fn run(args: &Args) -> Outcome<()> {
    let what = format!(
        "{} members; over links {} in blocks of {}, in virtual time {} blocks; median of {}",
        args.members,
        size::show(args.bytes),
        size::show(args.block),
        args.blocks,
        args.repeats
    );
    let mut report = Report::new("robust", what);
    let mut rows = Vec::new();
    if args.networks.contains(&Network::Links) {
        rows.extend(links::measure(args)?);
    }
    if args.networks.contains(&Network::Virtual) {
        rows.extend(simulated::measure(args)?);
    }
    rows.iter().for_each(|row| report.row(row.values()));
    report.note(
        "Of undisturbed: undisturbed time / time, the part of the bandwidth that is left; others: the \
         same without the disturbed member. Expected: for the slow link the paper's bound, of a chain \
         the rate of that link; for a slow member its rate, which is the most; for one delay of e \
         steps in T steps T/(T+e), which is the least. In virtual time the worst link or member is shown. Slack: how \
         many steps ago members, but for the root, received the block that they send, measured.",
    );
    explain(args, &mut report, &rows);
    report.print(&args.output);
    Ok(())
}

fn explain(args: &Args, report: &mut Report, rows: &[Row]) {
    let about = |row: &Row| {
        let expected =
            row.expected.map_or(String::new(), |value| format!(" (expected {value:.2})"));
        let (network, disturbance, part) = (row.network, &row.disturbance, row.of_undisturbed);
        format!("{network}, {disturbance}: {} {part:.2}{expected}", row.algorithm)
    };
    let disturbed = rows.iter().filter(|row| row.expected.is_some());
    let mut here: Vec<String> = disturbed.map(about).collect();
    if let Some((measured, formula)) = rows
        .iter()
        .find_map(|row| row.slack.filter(|_| row.disturbance == "none"))
        .zip(Schedule::average_slack(args.members))
    {
        here.push(format!("average slack {measured:.3}, by the formula {formula:.3}"));
    }
    report.finding(
        "calculated, not measured (section 4.5): a step that is delayed by e delays the whole by e at \
         most; with one link at T' among links at T at least l*T'/(T+(l-1)*T') of the bandwidth is \
         left, where a chain falls to T'/T; a block is sent 2(1-(l-1)/(n-2)) steps after it was \
         received, so that a late member can catch up.",
        &format!("{}.", here.join("; ")),
        "in virtual time a block on the slow link keeps the ports of both members, as the paper has it. \
         Over links it does not: with several sends posted the next block leaves by another link \
         meanwhile, and the slow link catches up at steps in which it would be idle. A slow member is \
         another matter: each block has to reach it, and what it does not relay in time holds up \
         neighbours that have credits for few blocks. A delay costs more than itself where it makes \
         members leave the schedule's order: they send whichever block has its credit first, and a \
         block that was posted ahead may keep a port that an earlier one needs, until exchanges \
         are in step again. A chain has one way only, and no order to lose.",
    );
}
