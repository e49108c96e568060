//! Plans as pictures: members are lanes, steps are columns, and a transfer is an arrow in its colour from the source's lane
//! at the start of the step to the target's lane at its end.
//!
//! A member sends at most once in a step, so the labels, which sit where arrows begin, never cover each other.

use std::{io::Write, ops::Range, path::Path};

use svg::{
    Document,
    node::element::{
        Circle, Definitions, Description, Group, Line, Marker, Path as Shape, Rectangle, Text,
        Title,
    },
};

use crate::{
    failure::Failure,
    output::{self, InUse},
};

const MAX_MEMBERS: u32 = 64;
const MAX_STEPS: u64 = 128;
/// The maximum number of colours with their own entry in the legend.
const MAX_LEGEND: usize = 16;

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

/// Dark enough for white labels and distinguishable for colour-blind readers; further colours get generated hues.
const COLOURS: [&str; 8] =
    ["#0b66b0", "#c2410c", "#0a7d5f", "#a21c6f", "#8a6100", "#5b3fc4", "#0e7490", "#b3261e"];

fn paint(colour: u32) -> String {
    match COLOURS.get(colour as usize) {
        Some(paint) => (*paint).to_owned(),
        // The golden angle keeps the hues of consecutive colours far apart.
        None => format!("hsl({:.0}, 62%, 38%)", f64::from(colour) * 137.508 % 360.0),
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

/// The texts of a picture.
#[derive(Clone, Copy)]
pub struct Names {
    /// The meaning of an arrow, in a sentence.
    pub arrows: &'static str,
    /// The label of an arrow of a colour; at most three letters.
    pub label: fn(u32) -> String,
    /// The text for a colour in the legend.
    pub colour: fn(u32) -> String,
    /// The text for the ring in the legend.
    pub complete: &'static str,
}

/// A transfer.
pub struct Arrow {
    pub step: u64,
    pub source: u32,
    pub target: u32,
    pub colour: u32,
    /// Whether the target is then complete, drawn as a ring.
    pub completes: bool,
}

/// A plan to draw.
pub struct Picture {
    pub title: String,
    pub members: u32,
    pub steps: u64,
    pub root: u32,
    pub names: Names,
    /// The colours in the legend.
    pub colours: Range<u32>,
    pub arrows: Vec<Arrow>,
}

impl Picture {
    /// A picture without arrows. Errors: it is too large to read.
    pub fn new(
        title: String,
        members: u32,
        steps: u64,
        root: u32,
        names: Names,
    ) -> Result<Self, Failure> {
        if members > MAX_MEMBERS || steps > MAX_STEPS {
            return Err(Failure::Usage(format!(
                "a picture of {members} members and {steps} steps is too large to read: --svg draws at most \
                 {MAX_MEMBERS} members and {MAX_STEPS} steps; ask for fewer, or leave --svg out for the table"
            )));
        }
        Ok(Self { title, members, steps, root, names, colours: 0..0, arrows: Vec::new() })
    }

    fn width(&self) -> f64 {
        // Never narrower than the title and the legend.
        let shown = self.colours.len().min(MAX_LEGEND) as f64;
        let legend_width = LEGEND_ENTRY * shown + 180.0;
        (column_x(self.steps) + RIGHT).max(LEFT + RIGHT + legend_width).max(600.0)
    }
}

/// Writes a picture to the file that `--svg` names.
pub fn save(path: &Path, picture: &Picture) -> Result<(), Failure> {
    output::create("--svg", path, &InUse::default())?
        .write_all(draw(picture).as_bytes())
        .map_err(Failure::while_doing(format_args!("--svg {}", path.display())))
}

/// The picture, as the text of an SVG file.
fn draw(picture: &Picture) -> String {
    let width = picture.width();
    let height = TOP + LANE * f64::from(picture.members) + BOTTOM;
    let title = &picture.title;
    let document = Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("role", "img")
        .set("font-family", FONT)
        .add(Title::new(title))
        .add(Description::new().add(svg::node::Text::new(picture.names.arrows)))
        .add(markers(picture))
        .add(
            Rectangle::new()
                .set("width", width)
                .set("height", height)
                .set("rx", 8)
                .set("fill", "#fbfcfd"),
        )
        .add(text(title, 24.0, 36.0, 18, INK).set("font-weight", 600))
        .add(grid(picture))
        .add(arrows(picture))
        .add(legend(picture, height - 26.0));
    format!("{document}\n")
}

/// One arrow head per colour: not all viewers let a marker inherit the colour of its line.
fn markers(picture: &Picture) -> Definitions {
    let colours = if picture.steps == 0 { 0..0 } else { picture.colours.clone() };
    colours.fold(Definitions::new(), |definitions, colour| {
        definitions.add(
            Marker::new()
                .set("id", format!("head{colour}"))
                .set("viewBox", (0, 0, 10, 10))
                .set("refX", 9)
                .set("refY", 5)
                .set("markerWidth", 5.5)
                .set("markerHeight", 5.5)
                .set("orient", "auto")
                .add(Shape::new().set("d", "M0 0 10 5 0 10z").set("fill", paint(colour))),
        )
    })
}

/// Step columns and member lanes with their names.
fn grid(picture: &Picture) -> Group {
    let (members, steps) = (picture.members, picture.steps);
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
        let root = member == picture.root;
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

/// The transfers, and a ring where a member is complete.
fn arrows(picture: &Picture) -> Group {
    let mut lines = Group::new().set("stroke-width", 2.2).set("fill", "none");
    let mut labels = Group::new();
    for arrow in &picture.arrows {
        let (x1, y1) = (column_x(arrow.step) + 8.0 + LABEL_WIDTH / 2.0, lane_y(arrow.source));
        let (x2, y2) = (column_x(arrow.step + 1) - 12.0, lane_y(arrow.target));
        lines = lines.add(
            Line::new()
                .set("x1", x1)
                .set("y1", y1)
                .set("x2", x2)
                .set("y2", y2)
                .set("stroke", paint(arrow.colour))
                .set("marker-end", format!("url(#head{})", arrow.colour)),
        );
        labels = labels.add(label(picture, arrow.colour, x1, y1));
        if arrow.completes {
            labels = labels.add(complete(x2 + 7.0, y2));
        }
    }
    Group::new().add(lines).add(labels)
}

/// The label of a colour, on a patch of that colour.
fn label(picture: &Picture, colour: u32, x: f64, y: f64) -> Group {
    Group::new()
        .add(
            Rectangle::new()
                .set("x", x - LABEL_WIDTH / 2.0)
                .set("y", y - LABEL_HEIGHT / 2.0)
                .set("width", LABEL_WIDTH)
                .set("height", LABEL_HEIGHT)
                .set("rx", LABEL_HEIGHT / 2.0)
                .set("fill", paint(colour)),
        )
        .add(
            text(&(picture.names.label)(colour), x, y + 4.0, 11, "#ffffff")
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

fn legend(picture: &Picture, y: f64) -> Group {
    let mut group = Group::new();
    let mut x = LEFT + 8.0 + LABEL_WIDTH / 2.0;
    for colour in picture.colours.clone().take(MAX_LEGEND) {
        let name = (picture.names.colour)(colour);
        let name = text(&name, x + 20.0, y + 4.5, 12, FAINT_INK);
        group = group.add(label(picture, colour, x, y)).add(name);
        x += LEGEND_ENTRY;
    }
    if picture.colours.len() > MAX_LEGEND {
        group = group.add(text("…", x - 14.0, y + 4.5, 12, FAINT_INK));
        x += 16.0;
    }
    group.add(complete(x, y)).add(text(picture.names.complete, x + 14.0, y + 4.5, 12, FAINT_INK))
}
