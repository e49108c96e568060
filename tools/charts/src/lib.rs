//! Pictures of measurements, as SVG.
//!
//! - [`Chart`]: lines against axes, in panels side by side. Panels with equal axes have equal scales, names
//!   are beside the lines' ends, and limits, which are not measured, are dotted.
//! - [`draw_course`]: the [`Course`] of a message, a bar for each block in transit.
//!
//! No plotting library is used: names beside lines' ends that make room for each other, marks at powers of 2, scales that
//! panels share and titles for screen readers would all have to be drawn on top of one, which leaves it the
//! grid alone.
//!
//! Every picture has a title for screen readers, and colours that colour-blind readers can distinguish.

#![forbid(unsafe_code)]

mod chart;
mod course;
mod drawing;
mod sheet;

pub use chart::{Axis, Chart, Line, Panel, Point, Spacing, Style, Unit};
pub use course::{Course, Transfer, Wait};
pub use drawing::write as draw_course;
