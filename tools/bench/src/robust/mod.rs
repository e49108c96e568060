//! The cost of one slow link, one slow member, and late programs (DSN 2018 section 4.5).

mod args;
mod links;
mod row;
mod simulated;
mod slack;

use plan::size;
use rdmc::Schedule;

use crate::{outcome::Outcome, report::Report};
use args::Network;

pub use args::Args;

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
    let undisturbed = rows.iter().filter(|row| row.disturbance == "none");
    let slack = undisturbed.filter_map(|row| row.slack).next();
    if let Some((measured, formula)) = slack.zip(Schedule::average_slack(args.members)) {
        report.note(format!("average slack {measured:.3}, by the formula {formula:.3}."));
    }
    report.print(&args.output);
    Ok(())
}
