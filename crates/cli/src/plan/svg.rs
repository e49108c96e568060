//! The plan as a picture: members are lanes, steps are columns, and a transfer is an arrow in its block's colour
//! from the source's lane at the start of the step to the target's lane at its end.
//!
//! A member sends at most one block per step and receives at most one, so neither the labels, which sit where
//! arrows begin, nor the heads ever cover each other.

use svg::{
    Document,
    node::element::{
        Circle, Definitions, Description, Group, Line, Marker, Path, Rectangle, Text, Title,
    },
};

use super::{message::Plan, table, transfers::Transfers};
use crate::failure::Failure;

const MAX_MEMBERS: u32 = 64;
const MAX_STEPS: u64 = 128;
/// At most this many blocks have an entry of their own in the legend.
const MAX_LEGEND: u32 = 16;

// All lengths in pixels.
const COLUMN: f64 = 124.0;
const LANE: f64 = 44.0;
const LEFT: f64 = 104.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 64.0;
const LABEL_WIDTH: f64 = 28.0;
const LABEL_HEIGHT: f64 = 18.0;
const LEGEND_ENTRY: f64 = 98.0;

const INK: &str = "#1f2933";
const FAINT_INK: &str = "#52606d";
const RULE: &str = "#d3dae1";
const FONT: &str =
    "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif";

/// Dark enough for white labels and told apart by colour-blind readers; further blocks get hues of their own.
const COLOURS: [&str; 8] =
    ["#0b66b0", "#c2410c", "#0a7d5f", "#a21c6f", "#8a6100", "#5b3fc4", "#0e7490", "#b3261e"];

fn colour(block: u32) -> String {
    match COLOURS.get(block as usize) {
        Some(colour) => (*colour).to_owned(),
        // The golden angle keeps the hues of consecutive blocks far apart.
        None => format!("hsl({:.0}, 62%, 38%)", f64::from(block) * 137.508 % 360.0),
    }
}

fn column_x(step: u64) -> f64 {
    LEFT + COLUMN * step as f64
}

fn lane_y(member: u32) -> f64 {
    TOP + LANE * (f64::from(member) + 0.5)
}

fn text(content: &str, x: f64, y: f64, size: u32, fill: &str) -> Text {
    Text::new(content).set("x", x).set("y", y).set("font-size", size).set("fill", fill)
}

/// The picture, as the text of an SVG file.
pub fn draw(plan: &Plan) -> Result<String, Failure> {
    let (members, steps) = (plan.schedule.members(), plan.steps());
    if members > MAX_MEMBERS || steps > MAX_STEPS {
        return Err(Failure::Usage(format!(
            "a picture of {members} members and {steps} steps is too large to read: --svg draws at most \
             {MAX_MEMBERS} members and {MAX_STEPS} steps; ask for fewer, or leave --svg out for the table"
        )));
    }
    // Never narrower than the title and the legend.
    let legend_width = LEGEND_ENTRY * f64::from(plan.blocks.min(MAX_LEGEND)) + 180.0;
    let width = (column_x(steps) + RIGHT).max(LEFT + RIGHT + legend_width).max(600.0);
    let height = TOP + LANE * f64::from(members) + BOTTOM;
    let title = table::headline(plan);
    let document = Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("role", "img")
        .set("font-family", FONT)
        .add(Title::new(&title))
        .add(Description::new().add(svg::node::Text::new("Each arrow is one block on its way.")))
        .add(markers(plan))
        .add(
            Rectangle::new()
                .set("width", width)
                .set("height", height)
                .set("rx", 8)
                .set("fill", "#fbfcfd"),
        )
        .add(text(&title, 24.0, 36.0, 18, INK).set("font-weight", 600))
        .add(grid(plan))
        .add(arrows(plan))
        .add(legend(plan, height - 26.0));
    Ok(format!("{document}\n"))
}

/// One arrow head per block: a marker cannot take the colour of its line everywhere yet.
fn markers(plan: &Plan) -> Definitions {
    let blocks = if plan.steps() == 0 { 0 } else { plan.blocks };
    (0..blocks).fold(Definitions::new(), |definitions, block| {
        definitions.add(
            Marker::new()
                .set("id", format!("head{block}"))
                .set("viewBox", (0, 0, 10, 10))
                .set("refX", 9)
                .set("refY", 5)
                .set("markerWidth", 5.5)
                .set("markerHeight", 5.5)
                .set("orient", "auto")
                .add(Path::new().set("d", "M0 0 10 5 0 10z").set("fill", colour(block))),
        )
    })
}

/// Step columns and member lanes with their names.
fn grid(plan: &Plan) -> Group {
    let (members, steps) = (plan.schedule.members(), plan.steps());
    let mut group = Group::new();
    for step in 0..steps {
        if step % 2 == 0 {
            group = group.add(
                Rectangle::new()
                    .set("x", column_x(step))
                    .set("y", TOP - 26.0)
                    .set("width", COLUMN)
                    .set("height", LANE * f64::from(members) + 26.0)
                    .set("fill", "#eef2f6"),
            );
        }
        let name =
            text(&format!("step {step}"), column_x(step) + COLUMN / 2.0, TOP - 8.0, 13, FAINT_INK);
        group = group.add(name.set("text-anchor", "middle"));
    }
    for member in 0..members {
        let y = lane_y(member);
        let root = member == plan.schedule.root();
        let name = if root { format!("{member} (root)") } else { member.to_string() };
        group = group
            .add(
                Line::new()
                    .set("x1", LEFT)
                    .set("x2", column_x(steps))
                    .set("y1", y)
                    .set("y2", y)
                    .set("stroke", RULE),
            )
            .add(
                text(&name, LEFT - 16.0, y + 5.0, 14, INK)
                    .set("text-anchor", "end")
                    .set("font-weight", if root { 700 } else { 400 }),
            );
    }
    group
}

/// The transfers, and a ring where a member has received all blocks.
fn arrows(plan: &Plan) -> Group {
    let mut lines = Group::new().set("stroke-width", 2.2).set("fill", "none");
    let mut labels = Group::new();
    let mut received = vec![0; plan.schedule.members() as usize];
    for transfer in Transfers::new(&plan.schedule, plan.blocks) {
        let (x1, y1) = (column_x(transfer.step) + 8.0 + LABEL_WIDTH / 2.0, lane_y(transfer.source));
        let (x2, y2) = (column_x(transfer.step + 1) - 12.0, lane_y(transfer.target));
        lines = lines.add(
            Line::new()
                .set("x1", x1)
                .set("y1", y1)
                .set("x2", x2)
                .set("y2", y2)
                .set("stroke", colour(transfer.block))
                .set("marker-end", format!("url(#head{})", transfer.block)),
        );
        labels = labels.add(label(transfer.block, x1, y1));
        received[transfer.target as usize] += 1;
        if received[transfer.target as usize] == plan.blocks {
            labels = labels.add(complete(x2 + 7.0, y2));
        }
    }
    Group::new().add(lines).add(labels)
}

/// A block's name on its colour.
fn label(block: u32, x: f64, y: f64) -> Group {
    Group::new()
        .add(
            Rectangle::new()
                .set("x", x - LABEL_WIDTH / 2.0)
                .set("y", y - LABEL_HEIGHT / 2.0)
                .set("width", LABEL_WIDTH)
                .set("height", LABEL_HEIGHT)
                .set("rx", LABEL_HEIGHT / 2.0)
                .set("fill", colour(block)),
        )
        .add(
            text(&format!("b{block}"), x, y + 4.0, 11, "#ffffff")
                .set("text-anchor", "middle")
                .set("font-weight", 600),
        )
}

fn complete(x: f64, y: f64) -> Circle {
    Circle::new()
        .set("cx", x)
        .set("cy", y)
        .set("r", 5)
        .set("fill", "#ffffff")
        .set("stroke", INK)
        .set("stroke-width", 2)
}

fn legend(plan: &Plan, y: f64) -> Group {
    let mut group = Group::new();
    let mut x = LEFT + 8.0 + LABEL_WIDTH / 2.0;
    let shown = plan.blocks.min(MAX_LEGEND);
    for block in 0..shown {
        let name = text(&format!("block {block}"), x + 20.0, y + 4.5, 12, FAINT_INK);
        group = group.add(label(block, x, y)).add(name);
        x += LEGEND_ENTRY;
    }
    if shown < plan.blocks {
        group = group.add(text("…", x - 14.0, y + 4.5, 12, FAINT_INK));
        x += 16.0;
    }
    group.add(complete(x, y)).add(text("has every block", x + 14.0, y + 4.5, 12, FAINT_INK))
}
