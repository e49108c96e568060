//! Figures 5 and 6: groups and other flows at the same links.

use std::thread;

use mcrdma_sim::{
    NoGroup,
    experiments::{
        FairnessRow, FairnessSettings, NotificationsSettings, ReactionRow, Rule,
        fairness as simulate_fairness, notifications as simulate_notifications,
        reaction as simulate_reaction,
    },
};
use serde_json::json;

use super::{args::Args, confidence::Estimate};
use crate::{
    outcome::Outcome,
    report::{Report, mean, number},
};

/// A flow's name, and its rate in a row.
type Flow = (&'static str, fn(&FairnessRow) -> f64);

const FAIRNESS_FLOWS: [Flow; 3] = [
    ("A1 to C1, D1", |row| row.multicast_1_gbit_per_s),
    ("C1 to D1, A2", |row| row.multicast_2_gbit_per_s),
    ("D1 to A2", |row| row.unicast_gbit_per_s),
];

const RULE_NOTE: &str = "rule: all: a group's sender receives every congestion notification (the \
    paper); most: as many as the most congested member sends.";

/// Figure 5.
pub fn fairness(args: &Args) -> Outcome<Report> {
    let default = FairnessSettings::default();
    let phase_ms = args.part_of(default.phase_ms).max(default.sample_ms);
    let settings = FairnessSettings { config: args.config(), phase_ms, ..default };
    let rows = simulate_fairness(&settings)?;
    let what = format!(
        "two groups and a flow that start one after another, {phase_ms} ms apart; rates in the last \
         half of each phase"
    );
    let mut report = args.report(&what);
    for rule in Rule::ALL {
        for phase in 0..3 {
            let (from, to) = (phase * phase_ms + phase_ms / 2, (phase + 1) * phase_ms);
            let is_in =
                |row: &&FairnessRow| row.rule == rule && (from + 1..=to).contains(&row.at_ms);
            let own: Vec<&FairnessRow> = rows.iter().filter(is_in).collect();
            let rates = FAIRNESS_FLOWS
                .map(|(_, rate)| mean(&own.iter().map(|row| rate(row)).collect::<Vec<f64>>()));
            let [one, two, flow] = rates;
            report.row([
                ("rule", json!(rule.name())),
                ("phase", json!(phase + 1)),
                ("group_1_gbit_per_s", number(one)),
                ("group_2_gbit_per_s", number(two)),
                ("flow_gbit_per_s", number(flow)),
            ]);
        }
    }
    report.note(RULE_NOTE);
    report.data("rates");
    for row in &rows {
        for (flow, rate) in FAIRNESS_FLOWS {
            report.row([
                ("rule", json!(row.rule.name())),
                ("flow", json!(flow)),
                ("at_ms", json!(row.at_ms)),
                ("gbit_per_s", number(rate(row))),
            ]);
        }
    }
    Ok(report)
}

/// What each seed gave: all have the same rows.
struct Seeds<R>(Vec<Vec<R>>);

impl<R> Seeds<R> {
    /// Each seed on a thread of its own.
    fn simulate(args: &Args, one: impl Fn(u64) -> Result<Vec<R>, NoGroup> + Sync) -> Outcome<Self>
    where
        R: Send,
    {
        let one = &one;
        let rows = thread::scope(|scope| {
            let start = |seed| scope.spawn(move || one(seed));
            let threads: Vec<_> = args.seeds().into_iter().map(start).collect();
            let end = |thread: thread::ScopedJoinHandle<'_, Result<Vec<R>, NoGroup>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(end).collect::<Result<_, _>>()
        })?;
        Ok(Self(rows))
    }

    /// The first seed's rows: what is the same for all is read there.
    fn rows(&self) -> impl Iterator<Item = (usize, &R)> {
        self.0.first().into_iter().flatten().enumerate()
    }

    fn estimate(&self, at: usize, value: impl Fn(&R) -> f64) -> Estimate {
        Estimate::of(&self.0.iter().map(|rows| value(&rows[at])).collect::<Vec<_>>())
    }
}

/// Figure 6.
pub fn notifications(args: &Args) -> Outcome<Report> {
    let default = NotificationsSettings::default();
    let (settle_ms, measure_ms) =
        (args.part_of(default.settle_ms), args.part_of(default.measure_ms));
    let seeds = Seeds::simulate(args, |seed| {
        let config = args.config_of(seed);
        simulate_notifications(&NotificationsSettings { config, settle_ms, measure_ms })
    })?;
    let what = format!(
        "a group of seven members, of which some share their link with another flow; rates over \
         {measure_ms} ms after {settle_ms} ms, with half the width of the 95 % interval of confidence"
    );
    let mut report = args.report_of_seeds(&what);
    for (at, row) in seeds.rows() {
        let (group, group_half) = seeds.estimate(at, |row| row.multicast_gbit_per_s).cells();
        let (flow, flow_half) = seeds.estimate(at, |row| row.unicast_gbit_per_s).cells();
        report.row([
            ("rule", json!(row.rule.name())),
            ("congested", json!(row.congested)),
            ("group_gbit_per_s", group),
            ("group_half", group_half),
            ("group_in_theory", number(row.multicast_theory_gbit_per_s)),
            ("flow_gbit_per_s", flow),
            ("flow_half", flow_half),
            ("flow_in_theory", number(row.unicast_theory_gbit_per_s)),
        ]);
    }
    report.note(RULE_NOTE);
    report.note(
        "In theory flows at a link receive notifications equally often (section IV-D): n congested \
         members whose notifications all count leave the group C / (n + 1), one leaves C / 2.",
    );
    Ok(report)
}

/// Figure 6's group, when another member's link becomes the tightest.
pub fn reaction(args: &Args) -> Outcome<Report> {
    let default = NotificationsSettings::default();
    let (settle_ms, measure_ms) =
        (args.part_of(default.settle_ms), args.part_of(default.measure_ms));
    let seeds = Seeds::simulate(args, |seed| {
        let config = args.config_of(seed);
        simulate_reaction(&NotificationsSettings { config, settle_ms, measure_ms })
    })?;
    let what = format!(
        "a group of seven members, of which some share their link with another flow; after {settle_ms} ms \
         flows start to a member's link until three compete there; with half the width of the 95 % interval of confidence"
    );
    let mut report = args.report_of_seeds(&what);
    for (at, row) in seeds.rows() {
        let of = |value: fn(&ReactionRow) -> f64| seeds.estimate(at, value).cells();
        let (begun, begun_half) = of(|row| row.begun_us as f64);
        let (reacted, reacted_half) = of(|row| row.reacted_us as f64);
        let (after, after_half) = of(|row| row.after_gbit_per_s);
        report.row([
            ("rule", json!(row.rule.name())),
            ("congested", json!(row.congested)),
            ("tightened", json!(row.tightened.name())),
            ("before_gbit_per_s", of(|row| row.before_gbit_per_s).0),
            ("begun_us", begun),
            ("begun_half", begun_half),
            ("reacted_us", reacted),
            ("reacted_half", reacted_half),
            ("after_gbit_per_s", after),
            ("after_half", after_half),
        ]);
    }
    report.note(RULE_NOTE);
    report.note(
        "tightened: free: a member whose link no other flow used; congested: one of those that were congested. begun: the sender's rate is a tenth below that before. reacted: within a tenth of a quarter of the \
         link. after: what the group gets in the second half of the time that is measured.",
    );
    Ok(report)
}
