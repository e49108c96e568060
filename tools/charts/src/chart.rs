//! Lines against an axis that all panels share, each panel with an axis upwards of its own.

use std::{fs, io, path::Path};

use svg::node::element::{Circle, Group, Line as Stroke, Polyline};

use crate::sheet::{COLOURS, FAINT_INK, INK, RULE, rounded, sheet, text};

// All lengths in pixels.
const LEFT: f64 = 64.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 52.0;
const PLOT: f64 = 460.0;
const LABELS: f64 = 190.0;
const PANEL: f64 = LEFT + PLOT + LABELS;
/// Between names of lines.
const LABEL_HEIGHT: f64 = 15.0;
/// Half of the width of an error bar's ends.
const CAP: f64 = 3.0;
/// A linear axis has at most so many marks above 0.
const MARKS_MAX: f64 = 10.0;

/// A picture: panels side by side.
#[derive(Debug)]
pub struct Chart {
    /// For screen readers.
    pub title: String,
    /// To the right, the same for all panels.
    pub x: Axis,
    /// From left to right.
    pub panels: Vec<Panel>,
}

/// Lines in one frame. Panels with equal axes have equal scales, so that they can be compared.
#[derive(Debug)]
pub struct Panel {
    /// Above the frame.
    pub title: String,
    /// Upwards.
    pub y: Axis,
    /// In the order in which they take colours.
    pub lines: Vec<Line>,
}

/// What is shown along one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// What is shown, with its unit if marks have none.
    pub title: &'static str,
    /// Where values lie.
    pub spacing: Spacing,
    /// How marks are written.
    pub unit: Unit,
}

/// Where values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// From 0 up, at equal distances; none is below 0.
    Linear,
    /// By the logarithm to this base, with a mark at each power; all are above 0.
    Powers(f64),
}

/// How marks of an axis are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// The number alone.
    Number,
    /// The same of what is counted: marks are whole numbers.
    Count,
    /// Seconds or a part of them.
    Seconds,
    /// Bytes, in KiB and so on.
    Bytes,
}

/// Values, and their name beside the last of them.
#[derive(Debug)]
pub struct Line {
    /// Beside the last value.
    pub name: String,
    /// Solid, or what else.
    pub style: Style,
    /// In the order in which they are connected; a single one is a dot.
    pub points: Vec<Point>,
}

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Measured.
    Solid,
    /// The same in another way, such as by a model.
    Dashed,
    /// Dotted and without a colour: a limit, which is not measured.
    Bound,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// How far it reaches up and down, such as a standard deviation; 0 and NaN draw nothing.
    pub error: f64,
}

impl Point {
    /// A value without an error.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, error: 0.0 }
    }
}

impl Line {
    /// A solid line.
    pub fn new(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), style: Style::Solid, points }
    }
}

impl Axis {
    /// From 0, at equal distances, in numbers.
    pub fn linear(title: &'static str) -> Self {
        Self { title, spacing: Spacing::Linear, unit: Unit::Number }
    }

    /// The same with marks at whole numbers.
    pub fn counted(title: &'static str) -> Self {
        Self { unit: Unit::Count, ..Self::linear(title) }
    }

    /// By logarithm to this base.
    pub fn powers(title: &'static str, base: f64, unit: Unit) -> Self {
        Self { title, spacing: Spacing::Powers(base), unit }
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Number | Self::Count => tidy(value),
            Self::Seconds if value < 0.9e-3 => format!("{} µs", tidy(value * 1e6)),
            Self::Seconds if value < 0.9 => format!("{} ms", tidy(value * 1e3)),
            Self::Seconds => format!("{} s", tidy(value)),
            Self::Bytes => bytes(value),
        }
    }
}

/// In the largest unit of which there is at least one.
fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (exponent(value, 1024.0) as usize).min(units.len() - 1);
    format!("{} {}", tidy(value / 1024_f64.powi(unit as i32)), units[unit])
}

/// Without what is left of binary fractions.
fn tidy(value: f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}

impl Chart {
    /// Points with the title of their panel and the name of their line, both in the order in which
    /// they first occur. Each line connects its points from left to right.
    pub fn grouped(
        title: &str,
        x: Axis,
        y: Axis,
        points: impl IntoIterator<Item = (String, String, Point)>,
    ) -> Self {
        let mut panels: Vec<Panel> = Vec::new();
        for (title, name, point) in points {
            let at = panels.iter().position(|panel| panel.title == title).unwrap_or_else(|| {
                panels.push(Panel { title, y, lines: Vec::new() });
                panels.len() - 1
            });
            let lines = &mut panels[at].lines;
            let at = lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
                lines.push(Line::new(name, Vec::new()));
                lines.len() - 1
            });
            lines[at].points.push(point);
        }
        for line in panels.iter_mut().flat_map(|panel| &mut panel.lines) {
            line.points.sort_by(|one, other| one.x.total_cmp(&other.x));
        }
        Self { title: title.into(), x, panels }
    }

    /// Draws into a file, which is made or replaced.
    ///
    /// Errors: the file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        fs::write(path, self.draw()).map_err(named)
    }

    /// The picture, as the text of an SVG file.
    fn draw(&self) -> String {
        let (width, height) = (PANEL * self.panels.len() as f64, TOP + PLOT + BOTTOM);
        let mut document = sheet(&self.title, width, height);
        let x = Scale::of(self.x, self.points(|_| true).map(|point| (point.x, 0.0)));
        for (index, panel) in self.panels.iter().enumerate() {
            let alike = self.points(|other| other.y == panel.y);
            let y = Scale::of(panel.y, alike.map(|point| (point.y, point.error)));
            let group = Frame { x: &x, y: &y }.draw(panel);
            let place = format!("translate({} 0)", index as f64 * PANEL);
            document = document.add(group.set("transform", place));
        }
        document.to_string() + "\n"
    }

    fn points(&self, of: impl Fn(&Panel) -> bool) -> impl Iterator<Item = &Point> {
        let panels = self.panels.iter().filter(move |panel| of(panel));
        panels.flat_map(|panel| &panel.lines).flat_map(|line| &line.points)
    }
}

/// From values to pixels inside a panel.
struct Frame<'a> {
    x: &'a Scale,
    y: &'a Scale,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        rounded(LEFT + PLOT * self.x.part(value))
    }

    fn y(&self, value: f64) -> f64 {
        rounded(TOP + PLOT * (1.0 - self.y.part(value)))
    }

    fn draw(&self, panel: &Panel) -> Group {
        let title = text(&panel.title, LEFT, 34.0, 16, INK).set("font-weight", 600);
        let mut group = Group::new().add(title).add(self.grid());
        let mut colours = COLOURS.iter().copied().cycle();
        let mut labels = Vec::new();
        for line in &panel.lines {
            let colour = match line.style {
                Style::Bound => FAINT_INK,
                Style::Solid | Style::Dashed => colours.next().unwrap_or(INK),
            };
            group = group.add(self.line(line, colour));
            labels.push((line, colour));
        }
        group.add(self.names(labels))
    }

    fn line(&self, line: &Line, colour: &str) -> Group {
        let mut group = Group::new();
        for point in line.points.iter().filter(|point| point.error > 0.0) {
            group = group.add(self.error_bar(point, colour));
        }
        if let [point] = line.points[..] {
            let dot = Circle::new().set("cx", self.x(point.x)).set("cy", self.y(point.y));
            return group.add(dot.set("r", 4).set("fill", colour));
        }
        let place = |point: &Point| format!("{},{}", self.x(point.x), self.y(point.y));
        let points: Vec<String> = line.points.iter().map(place).collect();
        let stroke = Polyline::new()
            .set("points", points.join(" "))
            .set("fill", "none")
            .set("stroke", colour)
            .set("stroke-width", 2);
        group.add(match line.style {
            Style::Solid => stroke,
            Style::Dashed => stroke.set("stroke-dasharray", "7 4"),
            Style::Bound => stroke.set("stroke-dasharray", "2 4"),
        })
    }

    fn error_bar(&self, point: &Point, colour: &str) -> Group {
        let (x, high) = (self.x(point.x), self.y(point.y + point.error));
        let low = self.y((point.y - point.error).max(self.y.least()));
        let bar = |x1: f64, y1: f64, x2: f64, y2: f64| stroke(x1, y1, x2, y2, colour);
        Group::new().add(bar(x, low, x, high)).add(bar(x - CAP, low, x + CAP, low)).add(bar(
            x - CAP,
            high,
            x + CAP,
            high,
        ))
    }

    /// Beside the lines' ends, apart from each other.
    fn names(&self, mut lines: Vec<(&Line, &str)>) -> Group {
        lines.retain(|(line, _)| !line.points.is_empty());
        let end = |line: &Line| line.points.last().map_or(0.0, |point| self.y(point.y));
        lines.sort_by(|(one, _), (other, _)| end(one).total_cmp(&end(other)));
        let mut group = Group::new();
        let mut free = TOP;
        for (index, &(line, colour)) in lines.iter().enumerate() {
            let after = (lines.len() - index) as f64 * LABEL_HEIGHT;
            let y = (end(line) + 4.0).max(free).min(TOP + PLOT + LABEL_HEIGHT - after);
            free = y + LABEL_HEIGHT;
            let x = LEFT + PLOT + 10.0;
            group = group.add(text(&line.name, x, rounded(y), 12, colour));
        }
        group
    }

    fn grid(&self) -> Group {
        let (right, bottom) = (LEFT + PLOT, TOP + PLOT);
        let mut group = Group::new();
        for value in self.x.marks() {
            let x = self.x(value);
            let name = text(&self.x.axis.unit.show(value), x, bottom + 18.0, 11, FAINT_INK);
            group =
                group.add(stroke(x, TOP, x, bottom, RULE)).add(name.set("text-anchor", "middle"));
        }
        for value in self.y.marks() {
            let y = self.y(value);
            let name = text(&self.y.axis.unit.show(value), LEFT - 8.0, y + 4.0, 11, FAINT_INK);
            group = group.add(stroke(LEFT, y, right, y, RULE)).add(name.set("text-anchor", "end"));
        }
        let along = text(self.x.axis.title, LEFT + PLOT / 2.0, bottom + 38.0, 12, FAINT_INK);
        let upwards = text(self.y.axis.title, LEFT, TOP - 10.0, 12, FAINT_INK);
        group.add(along.set("text-anchor", "middle")).add(upwards)
    }
}

fn stroke(x1: f64, y1: f64, x2: f64, y2: f64, colour: &str) -> Stroke {
    Stroke::new().set("x1", x1).set("y1", y1).set("x2", x2).set("y2", y2).set("stroke", colour)
}

/// An axis from its first mark to its last.
#[derive(Debug, PartialEq)]
struct Scale {
    axis: Axis,
    /// Between marks: values on a linear axis, else exponents.
    step: f64,
    /// The first mark and the last, in steps.
    ends: (i32, i32),
}

impl Scale {
    /// With room for all values and their errors.
    fn of(axis: Axis, values: impl Iterator<Item = (f64, f64)>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for (value, error) in values {
            (least, most) = (least.min(value), most.max(value + error.max(0.0)));
        }
        match axis.spacing {
            Spacing::Linear => {
                let least = if axis.unit == Unit::Count { 1.0 } else { 0.0 };
                let step = round_step(most / MARKS_MAX).max(least);
                Self { axis, step, ends: (0, (most / step - 1e-9).ceil().max(1.0) as i32) }
            }
            Spacing::Powers(base) => {
                let (low, high) = if most > 0.0 { (least, most) } else { (1.0, 1.0) };
                let first = exponent(low, base).floor() as i32;
                let last = (exponent(high, base).ceil() as i32).max(first + 1);
                Self { axis, step: 1.0, ends: (first, last) }
            }
        }
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        (self.ends.0..=self.ends.1).map(|mark| self.value(mark))
    }

    fn least(&self) -> f64 {
        self.value(self.ends.0)
    }

    fn value(&self, mark: i32) -> f64 {
        match self.axis.spacing {
            Spacing::Linear => f64::from(mark) * self.step,
            Spacing::Powers(base) => base.powi(mark),
        }
    }

    /// 0 at the first mark and 1 at the last.
    fn part(&self, value: f64) -> f64 {
        let place = match self.axis.spacing {
            Spacing::Linear => value / self.step,
            Spacing::Powers(base) => exponent(value, base),
        };
        let (first, last) = (f64::from(self.ends.0), f64::from(self.ends.1));
        (place - first) / (last - first)
    }
}

/// The next 1, 2 or 5 with zeros.
fn round_step(wanted: f64) -> f64 {
    if wanted <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(wanted.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|&step| step >= wanted * (1.0 - 1e-9)).unwrap_or(steps[3])
}

/// The logarithm, exact for powers: most axes begin and end with one.
fn exponent(value: f64, base: f64) -> f64 {
    let exponent = value.max(f64::MIN_POSITIVE).log(base);
    if (exponent - exponent.round()).abs() < 1e-9 { exponent.round() } else { exponent }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        Line::new(name, points.iter().map(|&(x, y)| Point::new(x, y)).collect())
    }

    fn chart(y: Axis, lines: Vec<Line>) -> Chart {
        let x = Axis::powers("members", 2.0, Unit::Number);
        Chart { title: "A & B".into(), x, panels: vec![Panel { title: "Net".into(), y, lines }] }
    }

    #[test]
    fn every_line_is_drawn_and_named() {
        let bound = Line { style: Style::Bound, ..line("bound", &[(2.0, 0.02), (4096.0, 0.021)]) };
        let mut erring = line("erring", &[(2.0, 0.02), (4096.0, 0.03)]);
        erring.points[1].error = 0.005;
        let lines = vec![
            line("one", &[(2.0, 0.02), (4096.0, 0.03)]),
            Line { style: Style::Dashed, ..line("two", &[(2.0, 0.02), (4096.0, 0.03)]) },
            line("dot", &[(8.0, 0.02)]),
            line("none", &[]),
            bound,
            erring,
        ];
        let picture = chart(Axis::powers("time", 10.0, Unit::Seconds), lines).draw();
        assert_eq!(picture.matches("<polyline").count(), 5);
        assert_eq!(picture.matches("<circle").count(), 1);
        assert_eq!(picture.matches("stroke-dasharray=\"7 4\"").count(), 1);
        assert_eq!(picture.matches("stroke-dasharray=\"2 4\"").count(), 1);
        let names = ["one", "two", "dot", "bound", "erring", "Net", "members", "time"];
        assert!(picture.contains("<title>A &amp; B</title>"));
        assert!(names.iter().all(|name| picture.contains(&format!("\n{name}\n"))), "{picture}");
        assert!(["\n4096\n", "\n10 ms\n", "\n100 ms\n"].iter().all(|mark| picture.contains(mark)));
        assert!(!picture.contains("NaN") && !picture.contains("\nnone\n"));
        // The bar of an error has two ends, and rules of the grid have none.
        let colour = COLOURS[4];
        assert_eq!(picture.matches(&format!("stroke=\"{colour}\" x1")).count(), 3, "{picture}");
    }

    #[test]
    fn scales_end_at_marks_and_are_never_empty() {
        let powers = |base, values: &[f64]| {
            let axis = Axis::powers("", base, Unit::Number);
            Scale::of(axis, values.iter().map(|&value| (value, 0.0)))
        };
        assert_eq!(powers(2.0, &[3.0, 100.0]).ends, (1, 7));
        assert_eq!(powers(10.0, &[0.02, 1.5]).ends, (-2, 1));
        assert_eq!(powers(4.0, &[16384.0, 16777216.0]).ends, (7, 12));
        let scale = powers(10.0, &[0.001, 1000.0]);
        assert_eq!((scale.ends, scale.part(0.001), scale.part(1000.0)), ((-3, 3), 0.0, 1.0));
        assert_eq!(powers(2.0, &[8.0]).ends, (3, 4));
        assert!(powers(2.0, &[]).part(5.0).is_finite());
        let linear = |most, error| Scale::of(Axis::linear(""), [(most, error)].into_iter());
        let marks = |scale: &Scale| scale.marks().collect::<Vec<_>>();
        assert_eq!(marks(&linear(900.0, 0.0)).len(), 10);
        assert_eq!(linear(990.0, 20.0).marks().last(), Some(1200.0));
        assert_eq!(marks(&linear(1.0, 0.0)).last(), Some(&1.0));
        assert_eq!(linear(990.0, f64::NAN).marks().last(), Some(1000.0));
        assert_eq!(marks(&linear(0.0, 0.0)), [0.0, 1.0]);
        let counted = Scale::of(Axis::counted(""), [(3.0, 0.0)].into_iter());
        assert_eq!(marks(&counted), [0.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn panels_with_equal_axes_have_equal_scales() {
        let mut both = chart(Axis::linear("rate"), vec![line("low", &[(2.0, 1.0), (4.0, 2.0)])]);
        let high = vec![line("high", &[(2.0, 50.0), (4.0, 100.0)])];
        both.panels.push(Panel { title: String::new(), y: Axis::linear("rate"), lines: high });
        assert_eq!(both.draw().matches("\n100\n").count(), 2);
        both.panels[1].y.title = "share";
        assert_eq!(both.draw().matches("\n100\n").count(), 1);
    }

    #[test]
    fn points_are_grouped_by_panel_and_line() {
        let point = |panel: &str, line: &str, x| (panel.into(), line.into(), Point::new(x, 1.0));
        let points = [point("p", "b", 2.0), point("p", "a", 1.0), point("q", "b", 3.0)];
        let points = points.into_iter().chain([point("p", "b", 1.0)]);
        let chart = Chart::grouped("", Axis::linear("x"), Axis::linear("y"), points);
        let of = |panel: &Panel| {
            let xs = |line: &Line| line.points.iter().map(|point| point.x).collect::<Vec<_>>();
            panel.lines.iter().map(|line| (line.name.clone(), xs(line))).collect::<Vec<_>>()
        };
        let all: Vec<_> = chart.panels.iter().map(of).collect();
        let p = vec![("b".to_owned(), vec![1.0, 2.0]), ("a".to_owned(), vec![1.0])];
        assert_eq!(all, [p, vec![("b".to_owned(), vec![3.0])]]);
    }

    #[test]
    fn marks_are_written_in_their_unit() {
        assert_eq!(Unit::Seconds.show(1e-5), "10 µs");
        assert_eq!(Unit::Seconds.show(0.01), "10 ms");
        assert_eq!(Unit::Seconds.show(10.0), "10 s");
        let sizes = [0.0, 512.0, 1024.0, 16384.0, 1_048_576.0, 268_435_456.0, 1_099_511_627_776.0];
        let shown = ["0 B", "512 B", "1 KiB", "16 KiB", "1 MiB", "256 MiB", "1 TiB"];
        assert_eq!(sizes.map(|bytes| Unit::Bytes.show(bytes)), shown);
        assert_eq!(Unit::Number.show(0.1 + 0.2), "0.3");
    }
}
