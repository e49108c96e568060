//! Host files: each line has a list as in `--to`, or a host with slots as for MPI. A line `[NAME]` begins a rack.

use std::collections::{HashMap, HashSet};

use crate::hosts::{HOSTS_MAX, Host, check_name, expand, split};

/// Keys of MPI host files for the number of processes of a host.
const MPI_KEYS: [&str; 3] = ["slots", "max_slots", "max-slots"];

/// Parses a file; `#` starts a comment. A host may be repeated on lines with `slots=` of MPI.
///
/// Errors have the number of the line.
pub fn parse(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut racks: HashSet<&str> = HashSet::new();
    // The first line that names a host, and whether it has slots.
    let mut named: HashMap<String, (usize, bool)> = HashMap::new();
    // Some editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (line, number) in text.lines().zip(1..) {
        let wrong = |error: String| format!("line {number}: {error}");
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(rack) = heading(line) {
            if !racks.insert(rack) {
                return Err(wrong(format!("the rack [{rack}] is listed twice")));
            }
            continue;
        }
        let rack = (!racks.is_empty()).then_some(racks.len() as u32);
        let (list, has_slots) = without_slots(line).map_err(wrong)?;
        for entry in split(list).map_err(wrong)? {
            for name in expand(entry, HOSTS_MAX - hosts.len()).map_err(wrong)? {
                check_name(&name).map_err(wrong)?;
                match named.get(&name) {
                    // Batch systems repeat a host for each processor.
                    Some((_, true)) if has_slots => continue,
                    Some((first, _)) => {
                        return Err(wrong(format!(
                            "host {name} is named twice, first in line {first}"
                        )));
                    }
                    None => named.insert(name.clone(), (number, has_slots)),
                };
                hosts.push(Host { rack, ..Host::named(name) });
            }
        }
    }
    if hosts.is_empty() { Err("no hosts".into()) } else { Ok(hosts) }
}

/// The name in `[NAME]`, which begins with a letter: `[1-3]` is a list.
fn heading(line: &str) -> Option<&str> {
    let name = line.strip_prefix('[')?.strip_suffix(']')?;
    let is_name = name.chars().next().is_some_and(char::is_alphabetic);
    (is_name && !name.contains([':', ',', '[', ']'])).then_some(name)
}

/// The list of a line, and whether slots follow it.
fn without_slots(line: &str) -> Result<(&str, bool), String> {
    let Some((list, rest)) = line.split_once(char::is_whitespace) else { return Ok((line, false)) };
    let is_setting = |word: &str| {
        let (key, count) = word.split_once('=').unwrap_or((word, ""));
        MPI_KEYS.contains(&key) && count.parse::<u32>().is_ok()
    };
    let mut words = rest.split_whitespace().peekable();
    // Lists may have spaces after their commas.
    if words.peek().is_some_and(|word| MPI_KEYS.iter().any(|key| word.starts_with(key))) {
        return match words.find(|word| !is_setting(word)) {
            None => Ok((list, true)),
            Some(word) => Err(format!("{word:?} is not like slots=8")),
        };
    }
    Ok((line, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        parse(text).unwrap().into_iter().map(|host| host.name).collect()
    }

    #[test]
    fn files_have_comments_and_line_numbers() {
        assert_eq!(
            names("# all\na[1-2]\n\n  b # the big one\nc, d\n"),
            ["a1", "a2", "b", "c", "d"]
        );
        assert!(parse("a\n\nn[3-1]").unwrap_err().starts_with("line 3:"));
        assert_eq!(parse("a\nb,a").unwrap_err(), "line 2: host a is named twice, first in line 1");
        assert!(parse("a\n\nb:/x\n").unwrap_err().starts_with("line 3: "));
        assert!(parse("# none").is_err());
        assert_eq!(names("\u{feff}a\r\nb\r\n").len(), 2);
    }

    #[test]
    fn host_files_of_mpi_are_understood() {
        let text =
            "node1 slots=8\nnode2\tslots=4 max_slots=8\nnode1 slots=2\nnode[3-4] slots=1\nhead\n";
        assert_eq!(names(text), ["node1", "node2", "node3", "node4", "head"]);
        assert!(
            parse("a slots=x").unwrap_err().contains("line 1: \"slots=x\" is not like slots=8")
        );
        assert!(parse("a slots=1 b").unwrap_err().contains("\"b\" is not like"));
        assert!(parse("a b").is_err() && parse("a tasks=3").is_err());
        assert!(
            parse("a slots=1\na").unwrap_err().contains("twice"),
            "it is named beside its slots"
        );
    }

    #[test]
    fn headings_make_racks() {
        let hosts = parse("login\n[left]\na[1-2]\n[right side]\nb\n[::1]:7000\n").unwrap();
        let racks: Vec<_> = hosts.iter().map(|host| (host.name.as_str(), host.rack)).collect();
        let (left, right) = (Some(1), Some(2));
        let expected =
            [("login", None), ("a1", left), ("a2", left), ("b", right), ("[::1]:7000", right)];
        assert_eq!(racks, expected);
        let error = parse("[one]\na\n[one]\nb").unwrap_err();
        assert_eq!(error, "line 3: the rack [one] is listed twice");
        assert_eq!(names("[1-3]"), ["1", "2", "3"]);
    }
}
