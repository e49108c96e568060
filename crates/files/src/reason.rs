//! Text of peers in reasons, logs and names.

/// The longest reason or name of a peer that is kept and passed on, in bytes.
const BYTES_MAX: usize = 1000;

/// A text that a peer may have made, in one line and cut to 1,000 bytes: reasons are printed, kept for each host, and passed on.
pub fn shortened(text: &str) -> String {
    let kept = &text[..text.floor_char_boundary(BYTES_MAX)];
    // Lines of a log are this program's.
    let line = kept.replace(['\n', '\r', '\u{2028}', '\u{2029}'], " ");
    if kept.len() == text.len() { line } else { format!("{line}... ({} bytes)", text.len()) }
}

/// Control characters, line ends, invisible characters and those that change the writing direction: a text with
/// them can look like another or send control sequences to a terminal.
pub fn shows_nothing(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{61c}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened("a reason\n  rdmc: a line"), "a reason   rdmc: a line");
        assert_eq!(shortened(&"x".repeat(1000)).len(), 1000);
        let long = format!("x{}", "\u{e9}".repeat(600));
        assert_eq!(shortened(&long), format!("x{}... (1201 bytes)", "\u{e9}".repeat(499)));
    }
}
