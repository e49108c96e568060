//! Figures 6 to 10.

use charts::{Axis, Chart, Line, Panel, Point, Style, Unit};
use collective::model::{PAPER_BLOCK_BYTES, Parameters, broadcast_us, two_sided_us};
use serde_json::json;

use super::{
    super::{
        cell::{Cell, Operation},
        pictures::Pictures,
    },
    data::Data,
    times::{BLOCK, BLOCKS, LENGTHS, MEMBERS, Source},
};
use crate::report::{Report, number};

const SOURCES: [Source; 2] = [Source::Measured, Source::Simulated];

pub fn add(data: &Data, report: &mut Report, pictures: &mut Pictures) {
    add_blocks(data, report);
    pictures.add("fig6-7", blocks_chart(data));
    pictures.add("fig8", model_chart(data));
    add_many(data, report);
    pictures.add("fig9-10", many_chart(data));
}

fn broadcast(bytes: u64) -> Cell {
    Cell { operation: Operation::Broadcast, bytes }
}

/// The time saved.
pub fn gain(time_us: f64, other_us: f64) -> f64 {
    1.0 - time_us / other_us
}

/// A point, with us as seconds.
pub fn point(bytes: u64, us: f64) -> Point {
    Point::new(bytes as f64, us / 1e6)
}

/// A line over lengths, without those that have no time.
pub fn line(name: impl Into<String>, style: Style, time_us: impl Fn(u64) -> f64) -> Line {
    let points = LENGTHS.into_iter().map(|bytes| point(bytes, time_us(bytes)));
    Line { style, ..Line::new(name, points.filter(|point| !point.y.is_nan()).collect()) }
}

pub fn panel(title: impl Into<String>, lines: Vec<Line>) -> Panel {
    let y = Axis { unit: Unit::Seconds, ..Axis::linear("time") };
    Panel { title: title.into(), y, lines }
}

pub fn chart(title: &str, panels: Vec<Panel>) -> Chart {
    Chart { title: title.into(), x: Axis::powers("length", 4.0, Unit::Bytes), panels }
}

fn add_blocks(data: &Data, report: &mut Report) {
    report.table(
        "fig6_7",
        "Figures 6 and 7: broadcast to 16 until the deepest leaf has it, us, by block size (the paper's, with its flag):",
    );
    for source in SOURCES {
        for bytes in LENGTHS {
            let [a, b, c, d] = BLOCKS.map(|block| data.broadcast(source, MEMBERS, block, bytes));
            let other = data.two_sided(source, MEMBERS, broadcast(bytes));
            report.row([
                ("source", json!(source.name())),
                ("bytes", json!(bytes)),
                ("1025_B", number(a)),
                ("2049_B", number(b)),
                ("3073_B", number(c)),
                ("4097_B", number(d)),
                ("send_receive", number(other)),
                ("gain_with_3073_B", number(gain(c, other))),
            ]);
        }
    }
}

fn blocks_chart(data: &Data) -> Chart {
    let panels = SOURCES.map(|source| {
        let mut lines: Vec<Line> = BLOCKS
            .map(|block| {
                line(format!("blocks of {} B", block + 1), Style::Solid, |bytes| {
                    data.broadcast(source, MEMBERS, block, bytes)
                })
            })
            .into();
        lines.push(line("send/receive", Style::Dashed, |bytes| {
            data.two_sided(source, MEMBERS, broadcast(bytes))
        }));
        panel(format!("broadcast to 16, {}", source.name()), lines)
    });
    chart("Broadcast by block size: figures 6 and 7", panels.into())
}

fn model_chart(data: &Data) -> Chart {
    let panels = data.fitted.map(|(source, parameters)| {
        let mut lines = Vec::new();
        for members in [2, 4, 8, MEMBERS] {
            lines.push(line(format!("{members} members"), Style::Solid, |bytes| {
                data.broadcast(source, members, BLOCK, bytes)
            }));
            lines.push(line(format!("{members} by model"), Style::Dashed, |bytes| {
                broadcast_us(members, bytes, BLOCK.into(), &parameters)
            }));
        }
        panel(format!("broadcast, {}, and the fitted model", source.name()), lines)
    });
    chart("Broadcast measured and by the model: figure 8", panels.into())
}

fn add_many(data: &Data, report: &mut Report) {
    report.table(
        "fig9_10",
        "Figures 9 and 10: broadcast to many, us, simulated and by the model with the paper's parameters:",
    );
    for &members in &data.many {
        for bytes in LENGTHS {
            let simulated = data.broadcast(Source::Simulated, members, BLOCK, bytes);
            let model = broadcast_us(members, bytes, PAPER_BLOCK_BYTES, &Parameters::PAPER);
            let other = data.two_sided(Source::Simulated, members, broadcast(bytes));
            let of_two = data.two_sided(Source::Simulated, 2, broadcast(bytes));
            let other_model = two_sided_us(members, of_two);
            report.row([
                ("members", json!(members)),
                ("bytes", json!(bytes)),
                ("simulated", number(simulated)),
                ("model", number(model)),
                ("model_error", number(model / simulated - 1.0)),
                ("send_receive", number(other)),
                ("send_receive_by_model", number(other_model)),
                ("gain", number(gain(simulated, other))),
                ("gain_by_model", number(gain(model, other_model))),
            ]);
        }
    }
}

fn many_chart(data: &Data) -> Chart {
    let panels = data.many.iter().map(|&members| {
        let of_two = |bytes| data.two_sided(Source::Simulated, 2, broadcast(bytes));
        let lines = vec![
            line("blocks of 3073 B", Style::Solid, |bytes| {
                data.broadcast(Source::Simulated, members, BLOCK, bytes)
            }),
            line("by the model", Style::Dashed, |bytes| {
                broadcast_us(members, bytes, PAPER_BLOCK_BYTES, &Parameters::PAPER)
            }),
            line("send/receive", Style::Solid, |bytes| {
                data.two_sided(Source::Simulated, members, broadcast(bytes))
            }),
            line("send/receive by model", Style::Dashed, |bytes| {
                two_sided_us(members, of_two(bytes))
            }),
        ];
        panel(format!("broadcast to {members}, simulated"), lines)
    });
    chart("Broadcast to many members: figures 9 and 10", panels.collect())
}
