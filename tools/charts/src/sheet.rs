//! What all pictures share: their background, colours and letters.

use svg::{
    Document,
    node::element::{Rectangle, Text, Title},
};

// The look of `rdmc plan --svg`.
pub const INK: &str = "#1f2933";
pub const FAINT_INK: &str = "#52606d";
pub const RULE: &str = "#d3dae1";
const FONT: &str =
    "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif";
/// Distinguishable for colour-blind readers; blocks use them in rotation.
pub const COLOURS: [&str; 8] =
    ["#0b66b0", "#c2410c", "#0a7d5f", "#a21c6f", "#8a6100", "#5b3fc4", "#0e7490", "#b3261e"];

/// An empty picture with a title for screen readers.
pub fn sheet(title: &str, width: f64, height: f64) -> Document {
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("role", "img")
        .set("font-family", FONT)
        .add(Title::new(title))
        .add(rectangle(0.0, 0.0, width, height, "#fbfcfd").set("rx", 8))
}

/// Hundredths of pixels are all that can be seen, and keep files short.
pub fn rounded(pixels: f64) -> f64 {
    (pixels * 100.0).round() / 100.0
}

/// Words, from this place to the right.
pub fn text(content: &str, x: f64, y: f64, size: u32, fill: &str) -> Text {
    Text::new(content).set("x", x).set("y", y).set("font-size", size).set("fill", fill)
}

/// Without rounded corners.
pub fn rectangle(x: f64, y: f64, width: f64, height: f64, fill: &str) -> Rectangle {
    Rectangle::new()
        .set("x", x)
        .set("y", y)
        .set("width", rounded(width))
        .set("height", rounded(height))
        .set("fill", fill)
}
