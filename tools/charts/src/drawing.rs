//! The course of a message as a picture: each member has a row for what it receives, a row for what
//! it sends, and between them a thin line while it waits before sending on. Time runs to the right,
//! a bar is one block in transit, from the source's post to the target's completion, in its block's
//! colour. Where several are in transit at once, bars share the row's height.

use std::{
    fs,
    io::{self, ErrorKind},
    ops::Range,
    path::Path,
};

use svg::node::element::{Description, Group, Line, Title};
use trace::Reason;

use crate::{
    course::{Course, Transfer, Wait},
    sheet::{COLOURS, FAINT_INK, INK, RULE, rectangle, rounded, sheet, text},
};

const MAX_MEMBERS: u32 = 64;
const MAX_TRANSFERS: usize = 20_000;

// All lengths in pixels.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 32.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 60.0;
const ROW: f64 = 22.0;
const WAITS: f64 = 5.0;
const LANE: f64 = 2.0 * ROW + WAITS + 16.0;
/// A block's bar is about so long, unless that makes the picture shorter or longer than this.
const BAR: f64 = 26.0;
const LENGTH_MIN: f64 = 900.0;
const LENGTH_MAX: f64 = 16_000.0;
const LABEL_WIDTH_MIN: f64 = 18.0;
const TICK: f64 = 120.0;
/// More at once than this are drawn over each other.
const LAYERS_MAX: usize = 4;

/// Draws the course of a message into a file, which is made or replaced.
///
/// Errors: there is too much to draw, or the file cannot be written.
pub fn write(path: &Path, course: &Course, title: &str) -> io::Result<()> {
    let picture = draw(course, title)?;
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    fs::write(path, picture).map_err(named)
}

/// The picture, as the text of an SVG file. Errors: there is too much to draw.
fn draw(course: &Course, title: &str) -> io::Result<String> {
    let (members, transfers) = (course.members(), course.transfers.len());
    if members > MAX_MEMBERS || transfers > MAX_TRANSFERS {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!(
                "a picture of {members} members and {transfers} blocks on their way is too large to \
             read: --draw draws at most {MAX_MEMBERS} and {MAX_TRANSFERS}; take larger blocks, or a \
             shorter message"
            ),
        ));
    }
    let scale = Scale::of(course);
    let width = LEFT + scale.length + RIGHT;
    let height = TOP + LANE * f64::from(members) + BOTTOM;
    let what =
        "Each bar is one block on its way, from the source's post to the target's completion.";
    let mut document = sheet(title, width, height)
        .add(Description::new().add(svg::node::Text::new(what)))
        .add(text(title, 24.0, 36.0, 18, INK).set("font-weight", 600))
        .add(grid(&scale, members));
    for member in 0..members {
        document = document.add(lane(course, member, &scale));
    }
    Ok(format!("{}\n", document.add(legend(height - 26.0))))
}

/// From times to pixels.
struct Scale {
    span: Range<u64>,
    length: f64,
}

impl Scale {
    /// Such that a usual block has a bar that can be seen.
    fn of(course: &Course) -> Self {
        let mut lengths: Vec<u64> =
            course.transfers.iter().map(|it| it.time.end - it.time.start).collect();
        lengths.sort_unstable();
        let usual_ns = lengths.get(lengths.len() / 2).copied().unwrap_or(0).max(1);
        let span = course.span();
        let wanted = (span.end - span.start) as f64 / usual_ns as f64 * BAR;
        Self { span, length: wanted.clamp(LENGTH_MIN, LENGTH_MAX) }
    }

    fn total_ns(&self) -> f64 {
        (self.span.end - self.span.start).max(1) as f64
    }

    fn x(&self, at_ns: u64) -> f64 {
        let since = at_ns.saturating_sub(self.span.start) as f64;
        rounded(LEFT + since / self.total_ns() * self.length)
    }

    /// Between marks on the time axis, in ns: 1, 2 or 5 and zeros.
    fn tick_ns(&self) -> f64 {
        let wanted = self.total_ns() / self.length * TICK;
        let power = 10_f64.powf(wanted.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        steps.into_iter().find(|&step| step >= wanted).unwrap_or(steps[3])
    }
}

fn lane_y(member: u32) -> f64 {
    TOP + LANE * f64::from(member)
}

/// Lanes with the names of members, and marks of time.
fn grid(scale: &Scale, members: u32) -> Group {
    let mut group = Group::new();
    for member in 0..members {
        let y = lane_y(member);
        if member % 2 == 0 {
            let whole = LEFT + scale.length + RIGHT;
            group = group.add(rectangle(0.0, y - 5.0, whole, LANE, "#eef2f6"));
        }
        let root = member == 0;
        let name = if root { format!("{member} (root)") } else { member.to_string() };
        group = group.add(
            text(&name, 24.0, y + ROW + 6.0, 14, INK)
                .set("font-weight", if root { 700 } else { 400 }),
        );
        for (row, name) in [(0.0, "receives"), (ROW + WAITS, "sends")] {
            let label = text(name, LEFT - 8.0, y + row + 15.0, 11, FAINT_INK);
            group = group.add(label.set("text-anchor", "end"));
        }
    }
    let tick_ns = scale.tick_ns();
    let bottom = lane_y(members);
    for number in 0..=(scale.total_ns() / tick_ns) as u64 {
        let since_ns = number as f64 * tick_ns;
        let x = scale.x(scale.span.start + since_ns as u64);
        let line = Line::new().set("x1", x).set("x2", x).set("y1", TOP - 10.0).set("y2", bottom);
        let name = text(&format!("{} ms", since_ns / 1e6), x, TOP - 16.0, 12, FAINT_INK);
        group = group.add(line.set("stroke", RULE)).add(name.set("text-anchor", "middle"));
    }
    group
}

/// What one member receives, waits for and sends.
fn lane(course: &Course, member: u32, scale: &Scale) -> Group {
    let y = lane_y(member);
    let received: Vec<&Transfer> = course.transfers.iter().filter(|it| it.to == member).collect();
    let sent: Vec<&Transfer> = course.transfers.iter().filter(|it| it.from == member).collect();
    let mut group =
        Group::new().add(row(received, y, scale)).add(row(sent, y + ROW + WAITS, scale));
    for wait in course.waits.iter().filter(|wait| wait.member == member) {
        let (x, end) = (scale.x(wait.time.start), scale.x(wait.time.end));
        let line = rectangle(x, y + ROW + 1.0, end - x, WAITS - 2.0, wait_colour(wait.reason));
        group = group.add(line.add(Title::new(said(wait))));
    }
    group
}

/// Bars of one direction; those that overlap lie in layers of the row.
fn row(mut transfers: Vec<&Transfer>, y: f64, scale: &Scale) -> Group {
    transfers.sort_by_key(|transfer| (transfer.time.start, transfer.time.end));
    let mut layers: Vec<u64> = Vec::new();
    let mut placed = Vec::new();
    for transfer in transfers {
        let free = layers.iter().position(|&end| end <= transfer.time.start);
        let layer = free.unwrap_or(layers.len()).min(LAYERS_MAX - 1);
        layers.resize(layers.len().max(layer + 1), 0);
        layers[layer] = layers[layer].max(transfer.time.end);
        placed.push((transfer, layer));
    }
    let height = ROW / layers.len().max(1) as f64;
    placed.into_iter().fold(Group::new(), |group, (transfer, layer)| {
        group.add(bar(transfer, y + height * layer as f64, height, scale))
    })
}

fn bar(transfer: &Transfer, y: f64, height: f64, scale: &Scale) -> Group {
    let Transfer { from, to, block, step, time } = transfer;
    let (x, end) = (scale.x(time.start), scale.x(time.end));
    // A gap between neighbours, and a minimum width.
    let width = (end - x - 0.6).max(0.6);
    let colour = COLOURS[*block as usize % COLOURS.len()];
    let step = step.map_or(String::new(), |step| format!(", step {step}"));
    let length_ms = (time.end - time.start) as f64 / 1e6;
    let facts = format!("block {block} from {from} to {to}{step}: {length_ms:.3} ms");
    let whole = rectangle(x, rounded(y + 0.5), width, height - 1.0, colour).set("rx", 2);
    let group = Group::new().add(whole.add(Title::new(facts)));
    if width < LABEL_WIDTH_MIN || height < 10.0 {
        return group;
    }
    let middle = rounded(y + height / 2.0 + 3.5);
    let label = text(&block.to_string(), rounded(x + width / 2.0), middle, 10, "#ffffff");
    group.add(label.set("text-anchor", "middle").set("pointer-events", "none"))
}

fn wait_colour(reason: Reason) -> &'static str {
    match reason {
        Reason::Block => "#9aa5b1",
        Reason::Credit => "#e0412f",
        Reason::Memory => "#f0b429",
    }
}

fn said(wait: &Wait) -> String {
    let peer = wait.peer.map_or(String::new(), |peer| format!(" of member {peer}"));
    let what = match (wait.reason, wait.block) {
        (Reason::Block, Some(block)) => format!("block {block}"),
        (Reason::Block, None) => "a block".to_owned(),
        (Reason::Credit, _) => "credit".to_owned(),
        (Reason::Memory, _) => "memory".to_owned(),
    };
    let length_ms = (wait.time.end - wait.time.start) as f64 / 1e6;
    format!("waits for {what}{peer}: {length_ms:.3} ms")
}

/// What the thin lines mean.
fn legend(y: f64) -> Group {
    let entries = [
        (Reason::Block, "waits for a block"),
        (Reason::Credit, "waits for credit"),
        (Reason::Memory, "waits for memory"),
    ];
    (0_u32..).zip(entries).fold(Group::new(), |group, (place, (reason, name))| {
        let x = LEFT + 160.0 * f64::from(place);
        let line = rectangle(x, y - WAITS + 1.0, 22.0, WAITS - 2.0, wait_colour(reason));
        group.add(line).add(text(name, x + 30.0, y, 12, FAINT_INK))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(transfers: u32) -> Course {
        let transfer = |block: u32| {
            let start = 10_000_000 * u64::from(block / 2);
            Transfer { from: 0, to: 1, block, step: None, time: start..start + 8_000_000 }
        };
        let wait = Wait {
            member: 0,
            peer: Some(1),
            reason: Reason::Credit,
            block: None,
            time: 8_000_000..10_000_000,
        };
        let transfers = (0..transfers).map(transfer).collect();
        Course { transfers, waits: vec![wait], ..Course::default() }
    }

    #[test]
    fn every_transfer_is_drawn_at_both_its_ends() {
        let picture = draw(&course(6), "a <title>").unwrap();
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("a &lt;title&gt;"));
        assert_eq!(picture.matches("block 5 from 0 to 1: 8.000 ms").count(), 2);
        assert_eq!(picture.matches("waits for credit of member 1: 2.000 ms").count(), 1);
        // Two at once share a row, and gaps stay empty: 28 ms are 900 pixels.
        let bars = picture.matches("height=\"10\"").count();
        assert_eq!(bars, 2 * 6);
        assert!(picture.contains(&format!("x=\"{}\"", rounded(LEFT + 900.0 * 10.0 / 28.0))));
    }

    #[test]
    fn too_many_transfers_for_a_picture_are_refused() {
        let error = draw(&course(MAX_TRANSFERS as u32 + 1), "").unwrap_err().to_string();
        assert!(error.contains("at most"), "{error}");
        assert!(draw(&Course::default(), "").is_ok());
    }

    #[test]
    fn marks_of_time_are_round() {
        let tick = |total_ns: u64, length| Scale { span: 5..5 + total_ns, length }.tick_ns();
        assert_eq!(tick(100_000_000, 1_200.0), 1e7);
        assert_eq!(tick(130_000_000, 1_200.0), 2e7);
        assert_eq!(tick(30_000_000, 1_200.0), 5e6);
    }
}
