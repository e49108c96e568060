//! Figures 5 and 6: groups and other flows at the same links.

use charts::{Axis, Chart, Line, Panel, Point, Style};
use mcrdma_sim::experiments::{
    FairnessRow, FairnessSettings, NotificationsRow, NotificationsSettings, Rule,
    fairness as simulate_fairness, notifications as simulate_notifications,
};
use serde_json::json;

use super::args::Args;
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
    paper); most: in each millisecond as many as the member that has most.";

/// Figure 5.
pub fn fairness(args: &Args) -> Outcome<(Report, Chart)> {
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
    let panels = Rule::ALL.map(|rule| Panel {
        title: format!("Notifications received: {}", rule.name()),
        y: Axis::linear("Gbit/s"),
        lines: FAIRNESS_FLOWS.map(|(name, rate)| fairness_line(&rows, rule, name, rate)).into(),
    });
    let x = Axis::linear("ms");
    Ok((
        report,
        Chart { title: "Flows that start one after another".into(), x, panels: panels.into() },
    ))
}

fn fairness_line(
    rows: &[FairnessRow],
    rule: Rule,
    name: &str,
    rate: fn(&FairnessRow) -> f64,
) -> Line {
    let own = rows.iter().filter(|row| row.rule == rule);
    Line::new(name, own.map(|row| Point::new(row.at_ms as f64, rate(row))).collect())
}

/// Figure 6.
pub fn notifications(args: &Args) -> Outcome<(Report, Chart)> {
    let default = NotificationsSettings::default();
    let (settle_ms, measure_ms) =
        (args.part_of(default.settle_ms), args.part_of(default.measure_ms));
    let settings = NotificationsSettings { config: args.config(), settle_ms, measure_ms };
    let rows = simulate_notifications(&settings)?;
    let what = format!(
        "a group of seven members, of which some share their link with another flow; rates over \
         {measure_ms} ms after {settle_ms} ms"
    );
    let mut report = args.report(&what);
    for row in &rows {
        report.row([
            ("rule", json!(row.rule.name())),
            ("congested", json!(row.congested)),
            ("group_gbit_per_s", number(row.multicast_gbit_per_s)),
            ("group_in_theory", number(row.multicast_theory_gbit_per_s)),
            ("flow_gbit_per_s", number(row.unicast_gbit_per_s)),
            ("flow_in_theory", number(row.unicast_theory_gbit_per_s)),
        ]);
    }
    report.note(RULE_NOTE);
    report.note(
        "In theory flows at a link receive notifications equally often (section IV-D): n congested \
         members whose notifications all count leave the group C / (n + 1), one leaves C / 2.",
    );
    let panels = Rule::ALL.map(|rule| Panel {
        title: format!("Notifications received: {}", rule.name()),
        y: Axis::linear("Gbit/s"),
        lines: notification_lines(&rows, rule),
    });
    let x = Axis::counted("congested members");
    Ok((report, Chart { title: "Congested members".into(), x, panels: panels.into() }))
}

fn notification_lines(rows: &[NotificationsRow], rule: Rule) -> Vec<Line> {
    let line = |name: &str, style: Style, rate: fn(&NotificationsRow) -> f64| {
        let own = rows.iter().filter(|row| row.rule == rule);
        let points = own.map(|row| Point::new(row.congested as f64, rate(row))).collect();
        Line { style, ..Line::new(name, points) }
    };
    vec![
        line("group", Style::Solid, |row| row.multicast_gbit_per_s),
        line("group, in theory", Style::Bound, |row| row.multicast_theory_gbit_per_s),
        line("other flows", Style::Solid, |row| row.unicast_gbit_per_s),
        line("others, in theory", Style::Bound, |row| row.unicast_theory_gbit_per_s),
    ]
}
