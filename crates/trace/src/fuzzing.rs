//! What fuzzers feed (`./dev fuzz`): files that people open, and parts that other hosts write.

use crate::{
    Shown,
    file::{Lines, copy_events},
    read,
};

/// Reads a file, then adds it as a part to a trace, which has to be a trace again. True if it had
/// something to show.
pub fn files(bytes: &[u8]) -> bool {
    let shown = read(bytes).filter(|shown| matches!(shown, Ok(Shown::Slice(_)))).count();
    let mut whole = Vec::new();
    let mut lines = Lines::begin(&mut whole).expect("memory takes everything");
    copy_events(&mut lines, bytes).expect("both ends are memory");
    lines.end().expect("memory takes everything");
    let text = str::from_utf8(&whole).expect("a trace is text");
    serde_json::from_str::<Vec<serde::de::IgnoredAny>>(text).expect("a trace is JSON");
    shown > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_passes() {
        let slice = |category: &str, name: &str| {
            format!(
                "[\n{{\"ph\":\"X\",\"name\":\"{name}\",\"cat\":\"{category}\",\"ts\":1.5,\"dur\":2.25,\
                 \"pid\":1,\"tid\":2,\"args\":{{\"group\":1,\"member\":2,\"peer\":0,\"message\":3,\
                 \"step\":4,\"block\":5,\"bytes\":6,\"unfinished\":true}}}},\n\
                 {{\"ph\":\"i\",\"name\":\"9 events were lost\"}},\n\
                 {{\"ph\":\"M\",\"name\":\"process_name\"}}\n]\n"
            )
        };
        let seeds = [
            ("send", slice("send", "block 0").into()),
            ("wait", slice("wait", "waits for block 0 from 1").into()),
        ];
        testing::replay("trace_files", &seeds, files);
    }
}
