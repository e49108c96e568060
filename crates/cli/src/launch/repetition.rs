//! Whether a reason already contains a text that could be added to it.

use super::remedy::NOT_CONNECTED;
use crate::failure::plain;

/// Whether a reason contains this text: lines of processes are escaped and have a final period, while reasons have none, and
/// name a lost connection in their own words.
pub fn is_in(reason: &str, text: &str) -> bool {
    let text = words(text);
    let text = text.strip_prefix(NOT_CONNECTED).unwrap_or(&text);
    words(reason).contains(text.trim_end_matches('.'))
}

/// The text as it is displayed, in one line.
fn words(text: &str) -> String {
    plain(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_form_alone_are_repeated() {
        let reason = "its receiver could not be started: Host key verification failed; see --ssh";
        assert!(is_in(reason, "Host key verification failed."));
        assert!(is_in(reason, reason) && !is_in(reason, "Connection refused"));
        assert!(is_in("cannot write \u{1b}a:\n  no space", "cannot write \\u{1b}a: no space"));
        let reason =
            "its receiver could not reach this machine: 10.0.0.1:7000; is there a firewall?";
        assert!(is_in(reason, &format!("{NOT_CONNECTED}10.0.0.1:7000")));
    }
}
