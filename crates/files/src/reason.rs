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

/// Whether a character behind `before` shows nothing or changes the writing direction: control characters, line ends, blanks
/// that are not known as such, and Unicode's Default_Ignorable_Code_Point. A text with them can look like another or send control
/// sequences to a terminal. What selects the look of an emoji (U+FE0E, U+FE0F) counts as seen directly behind one.
pub fn shows_nothing(before: Option<char>, character: char) -> bool {
    match character {
        '\u{fe0e}' | '\u{fe0f}' => !before.is_some_and(has_selectors),
        _ => character.is_control() || is_invisible(character),
    }
}

fn is_invisible(character: char) -> bool {
    // Format characters, blanks and what turns the writing direction.
    matches!(character, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}')
        || matches!(character, '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        // Fillers and inherent vowels.
        || matches!(character, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}' | '\u{17b5}')
        // Selectors of variations.
        || matches!(character, '\u{180b}'..='\u{180f}' | '\u{fe00}'..='\u{fe0f}')
}

/// Whether it may be an emoji of which selectors choose the look: a symbol that is no ASCII, or one of the emoji that
/// Unicode counts as letters and numbers.
fn has_selectors(character: char) -> bool {
    let is_symbol =
        !character.is_ascii() && !character.is_alphanumeric() && !character.is_whitespace();
    let is_selector = matches!(character, '\u{fe0e}' | '\u{fe0f}');
    is_symbol && !is_selector && !shows_nothing(None, character)
        || matches!(
            character,
            '\u{2139}' | '\u{24c2}' | '\u{1f170}'..='\u{1f17f}' | '\u{3297}' | '\u{3299}'
        )
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

    #[test]
    fn selectors_show_behind_emoji_alone() {
        let hidden = |text: &str| {
            let before = [None].into_iter().chain(text.chars().map(Some));
            before
                .zip(text.chars())
                .filter(|&(before, letter)| shows_nothing(before, letter))
                .count()
        };
        for seen in
            ["\u{2764}\u{fe0f}.bin", "a\u{1f170}\u{fe0e}", "caf\u{e9} e\u{301} \u{3000}\u{5b57}"]
        {
            assert_eq!(hidden(seen), 0, "{seen:?}");
        }
        for (text, count) in [
            ("a\u{fe0f}", 1),
            ("\u{fe0f}", 1),
            ("\u{2764}\u{fe0f}\u{fe0f}", 1),
            ("\u{ad}\u{fe0f}", 2),
        ] {
            assert_eq!(hidden(text), count, "{text:?}");
        }
        let invisible = "\u{34f}\u{115f}\u{1160}\u{17b4}\u{180e}\u{2800}\u{3164}\u{fe00}\u{ffa0}\u{fff9}\u{1d173}\u{e0041}\u{e01ef}";
        assert_eq!(hidden(invisible), invisible.chars().count());
    }
}
