//! Times against members, both by logarithm: a panel for each network, a line for each contender.

use std::{fs, ops::RangeInclusive, path::Path};

use svg::{
    Document,
    node::element::{Group, Line, Polyline, Title},
};

use crate::{
    Outcome,
    drawing::{COLOURS, FAINT_INK, FONT, INK, RULE, rectangle, rounded, text},
};

// All lengths in pixels.
const LEFT: f64 = 64.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 52.0;
const PLOT: f64 = 460.0;
const LABELS: f64 = 190.0;
const PANEL: f64 = LEFT + PLOT + LABELS;
/// Between names of lines.
const LABEL_HEIGHT: f64 = 15.0;

/// One network.
pub struct Panel {
    pub title: String,
    pub curves: Vec<Curve>,
}

/// Seconds by members.
pub struct Curve {
    pub name: String,
    pub dashed: bool,
    pub points: Vec<(u32, f64)>,
}

/// Draws into a file, which is made or replaced; `bound` is in every panel.
///
/// Errors: the file cannot be written.
pub fn write(path: &Path, panels: &[Panel], bound: &Curve) -> Outcome<()> {
    fs::write(path, draw(panels, bound))
        .map_err(|error| format!("{}: {error}", path.display()).into())
}

fn draw(panels: &[Panel], bound: &Curve) -> String {
    let scale = Scale::of(panels, bound);
    let (width, height) = (PANEL * panels.len() as f64, TOP + PLOT + BOTTOM);
    let title = "Time to the last member against the number of members";
    let mut document = Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("role", "img")
        .set("font-family", FONT)
        .add(Title::new(title))
        .add(rectangle(0.0, 0.0, width, height, "#fbfcfd").set("rx", 8));
    for (index, panel) in panels.iter().enumerate() {
        let group = draw_panel(panel, bound, &scale);
        document =
            document.add(group.set("transform", format!("translate({} 0)", index as f64 * PANEL)));
    }
    document.to_string() + "\n"
}

fn draw_panel(panel: &Panel, bound: &Curve, scale: &Scale) -> Group {
    let title = text(&panel.title, LEFT, 34.0, 16, INK).set("font-weight", 600);
    let mut group = Group::new().add(title).add(grid(scale));
    group = group.add(line(bound, FAINT_INK, scale).set("stroke-dasharray", "2 4"));
    let mut labels = vec![(bound, FAINT_INK)];
    let colours = COLOURS.iter().copied().cycle();
    for (curve, colour) in panel.curves.iter().zip(colours) {
        let line = line(curve, colour, scale);
        group = group.add(match curve.dashed {
            true => line.set("stroke-dasharray", "7 4"),
            false => line,
        });
        labels.push((curve, colour));
    }
    group.add(names(labels, scale))
}

fn line(curve: &Curve, colour: &str, scale: &Scale) -> Polyline {
    let point =
        |&(members, seconds): &(u32, f64)| format!("{},{}", scale.x(members), scale.y(seconds));
    let points: Vec<String> = curve.points.iter().map(point).collect();
    Polyline::new()
        .set("points", points.join(" "))
        .set("fill", "none")
        .set("stroke", colour)
        .set("stroke-width", 2)
}

/// Beside the lines' ends, apart from each other.
fn names(mut curves: Vec<(&Curve, &str)>, scale: &Scale) -> Group {
    curves.retain(|(curve, _)| !curve.points.is_empty());
    let end = |curve: &Curve| curve.points.last().map_or(0.0, |&(_, seconds)| scale.y(seconds));
    curves.sort_by(|(one, _), (other, _)| end(one).total_cmp(&end(other)));
    let mut group = Group::new();
    let mut free = TOP;
    for (index, &(curve, colour)) in curves.iter().enumerate() {
        let after = (curves.len() - index) as f64 * LABEL_HEIGHT;
        let y = (end(curve) + 4.0).max(free).min(TOP + PLOT + LABEL_HEIGHT - after);
        free = y + LABEL_HEIGHT;
        let x = LEFT + PLOT + 10.0;
        group = group.add(text(&curve.name, x, rounded(y), 12, colour));
    }
    group
}

fn grid(scale: &Scale) -> Group {
    let (right, bottom) = (LEFT + PLOT, TOP + PLOT);
    let rule = |x1: f64, y1: f64, x2: f64, y2: f64| {
        Line::new().set("x1", x1).set("y1", y1).set("x2", x2).set("y2", y2).set("stroke", RULE)
    };
    let mut group = Group::new();
    for power in scale.powers_of_two.clone() {
        let x = scale.x(1 << power);
        let name = text(&(1u64 << power).to_string(), x, bottom + 18.0, 11, FAINT_INK);
        group = group.add(rule(x, TOP, x, bottom)).add(name.set("text-anchor", "middle"));
    }
    for power in scale.powers_of_ten.clone() {
        let (y, seconds) = (scale.y(10f64.powi(power)), 10f64.powi(power));
        let words =
            if power < 0 { format!("{} ms", seconds * 1e3) } else { format!("{seconds} s") };
        let name = text(&words, LEFT - 8.0, y + 4.0, 11, FAINT_INK).set("text-anchor", "end");
        group = group.add(rule(LEFT, y, right, y)).add(name);
    }
    let what = text("members", LEFT + PLOT / 2.0, bottom + 38.0, 12, FAINT_INK);
    group.add(what.set("text-anchor", "middle"))
}

struct Scale {
    powers_of_two: RangeInclusive<u32>,
    /// Of seconds.
    powers_of_ten: RangeInclusive<i32>,
}

impl Scale {
    fn of(panels: &[Panel], bound: &Curve) -> Self {
        let curves = panels.iter().flat_map(|panel| &panel.curves).chain([bound]);
        let points: Vec<_> = curves.flat_map(|curve| &curve.points).copied().collect();
        let (fewest, most) = ends(points.iter().map(|&(members, _)| f64::from(members).log2()));
        let (least, longest) = ends(points.iter().map(|&(_, seconds)| seconds.log10()));
        let above = |low: f64, high: f64| (high.ceil() as i32).max(low.floor() as i32 + 1);
        Self {
            powers_of_two: fewest.floor() as u32..=above(fewest, most) as u32,
            powers_of_ten: least.floor() as i32..=above(least, longest),
        }
    }

    fn x(&self, members: u32) -> f64 {
        let (first, last) = (*self.powers_of_two.start(), *self.powers_of_two.end());
        let part = (f64::from(members).log2() - f64::from(first)) / f64::from(last - first);
        rounded(LEFT + PLOT * part)
    }

    fn y(&self, seconds: f64) -> f64 {
        let (first, last) = (*self.powers_of_ten.start(), *self.powers_of_ten.end());
        let part = (seconds.log10() - f64::from(first)) / f64::from(last - first);
        rounded(TOP + PLOT * (1.0 - part))
    }
}

/// The least and the greatest; 0 and 0 of none.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .fold(None, |ends: Option<(f64, f64)>, value| {
            let (least, most) = ends.unwrap_or((value, value));
            Some((least.min(value), most.max(value)))
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, points: &[(u32, f64)]) -> Curve {
        Curve { name: name.into(), dashed: false, points: points.to_vec() }
    }

    #[test]
    fn every_curve_has_a_line_and_a_name() {
        let curves = vec![
            curve("one", &[(2, 0.02), (4096, 0.03)]),
            curve("two", &[(2, 0.02), (4096, 0.03)]),
            curve("none", &[]),
        ];
        let panels = [Panel { title: "Net".into(), curves }];
        let picture = draw(&panels, &curve("bound", &[(2, 0.02), (4096, 0.021)]));
        assert_eq!(picture.matches("<polyline").count(), 4);
        assert!(["one", "two", "bound"].iter().all(|name| picture.contains(name)));
        assert!(!picture.contains("NaN") && !picture.contains("none\n</text>"));
    }

    #[test]
    fn scales_end_at_powers_and_are_never_empty() {
        let scale = Scale::of(&[], &curve("", &[(3, 0.02), (100, 1.5)]));
        assert_eq!((scale.powers_of_two.clone(), scale.powers_of_ten.clone()), (1..=7, -2..=1));
        assert_eq!((scale.x(2), scale.y(0.01)), (LEFT, TOP + PLOT));
        assert_eq!((scale.x(128), scale.y(10.0)), (LEFT + PLOT, TOP));
        let point = Scale::of(&[], &curve("", &[(8, 0.1)]));
        assert!(point.x(8).is_finite() && point.y(0.1).is_finite());
    }
}
