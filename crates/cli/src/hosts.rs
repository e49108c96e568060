//! Lists of hosts with ranges: `node[01-16],login,n[1,3,5-8].rack[1-2]`.

use std::collections::HashSet;

/// The maximum number of hosts of a push.
pub const HOSTS_MAX: usize = 10_000;

/// An entry of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// The host's name in reports: the entry, without brackets around an address that has no port.
    pub name: String,
    /// Whether the entry is `HOST:PORT`, where a receiver listens.
    pub listens: bool,
    /// The host's rack in a host file, counted from 1.
    pub rack: Option<u32>,
}

impl Host {
    /// A host without a rack, by its entry.
    pub fn named(name: String) -> Self {
        let listens = has_port(&name) == Some(true);
        Self { name: if listens { name } else { without_brackets(name) }, listens, rack: None }
    }
}

/// Removes the brackets of `USER@[ADDRESS]`, as ssh takes addresses without; keeps names.
fn without_brackets(name: String) -> String {
    let at = name.find('@').map_or(0, |at| at + 1);
    let (user, host) = name.split_at(at);
    let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match inside.filter(|address| address.contains(':')) {
        Some(address) => format!("{user}{address}"),
        None => name,
    }
}

/// Parses a list with commas. Errors: not a list of hosts, a repeated host, too many hosts.
pub fn parse(list: &str) -> Result<Vec<Host>, String> {
    let mut names = Vec::new();
    for entry in split(list)? {
        names.extend(expand(entry, HOSTS_MAX - names.len())?);
    }
    checked(names.into_iter().map(Host::named).collect())
}

/// Splits at commas that are not in brackets.
pub fn split(list: &str) -> Result<Vec<&str>, String> {
    let (mut entries, mut start, mut inside) = (Vec::new(), 0, false);
    for (index, character) in list.char_indices() {
        match character {
            '[' if inside => return Err(format!("\"{list}\": brackets inside brackets")),
            ']' if !inside => return Err(format!("\"{list}\": ] without [")),
            '[' => inside = true,
            ']' => inside = false,
            ',' if !inside => {
                entries.push(&list[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("\"{list}\": [ without ]"));
    }
    entries.push(&list[start..]);
    Ok(entries.into_iter().map(str::trim).collect())
}

/// Expands all ranges of an entry, to at most `limit` names.
pub fn expand(entry: &str, limit: usize) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    let mut rest = entry;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').ok_or(format!("\"{entry}\": [ without ]"))?;
        // An IPv6 address is in brackets too, as in [::1]:7000.
        let choices = if inside.contains(':') {
            vec![format!("[{inside}]")]
        } else {
            let wrong = |error| format!("\"{entry}\": {error}");
            numbers(inside, limit / names.len()).map_err(wrong)?
        };
        names = names
            .iter()
            .flat_map(|name| choices.iter().map(move |choice| format!("{name}{before}{choice}")))
            .collect();
        rest = after;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    if names.len() > limit {
        return Err(too_many());
    }
    Ok(names)
}

/// Expands `01-16` or `1,3,5-8`; leading zeros keep their width.
fn numbers(ranges: &str, limit: usize) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let value = digits.then(|| text.parse::<u64>().ok()).flatten();
            value.ok_or_else(|| format!("[{ranges}] is not like [1-8] or [01,03,05-08]"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(format!("[{range}] goes backwards"));
        }
        if to - from >= (limit - all.len().min(limit)) as u64 {
            return Err(too_many());
        }
        let padded = first.starts_with('0') || last.starts_with('0');
        let width = if padded { first.len().max(last.len()) } else { 0 };
        all.extend((from..=to).map(|value| format!("{value:0width$}")));
    }
    Ok(all)
}

fn too_many() -> String {
    format!("more than {HOSTS_MAX} hosts")
}

/// Checks a whole list. Errors: no hosts, an invalid name, a repeated host.
pub fn checked(hosts: Vec<Host>) -> Result<Vec<Host>, String> {
    let mut seen = HashSet::new();
    for Host { name, .. } in &hosts {
        check_name(name)?;
        if !seen.insert(name.as_str()) {
            return Err(format!("host {name} is named twice"));
        }
    }
    if hosts.is_empty() {
        return Err("no hosts".into());
    }
    Ok(hosts)
}

/// Checks a name: names become arguments of the launcher and parts of paths.
pub fn check_name(name: &str) -> Result<(), String> {
    let allowed = |character: char| character.is_alphanumeric() || "-._:@%[]".contains(character);
    match name {
        "" => Err("an empty host name: is there an extra comma?".into()),
        "." | ".." => Err(format!("\"{name}\" is not a host")),
        _ if name.starts_with('-') => Err(format!("\"{name}\" looks like an option, not a host")),
        _ if name.contains(":/") => {
            Err(format!("{name:?} has a path: give only the host, and the path with --dest"))
        }
        _ if !name.chars().all(allowed) => Err(format!("{name:?} is not a host name")),
        _ if has_port(name) == Some(false) => Err(format!(
            "\"{name}\" has no port from 1 to 65535 after the colon; HOST:PORT is a receiver that listens, \
             and a path goes into --dest"
        )),
        _ => Ok(()),
    }
}

/// Whether the part after the colon is a valid port; `None` without a colon, or for an IPv6 address such as `::1`.
fn has_port(name: &str) -> Option<bool> {
    let (host, port) = name.rsplit_once(':')?;
    let is_plain = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    is_plain.then(|| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        parse(list).unwrap().into_iter().map(|host| host.name).collect()
    }

    #[test]
    fn ranges_expand_to_every_number() {
        assert_eq!(names("a, b"), ["a", "b"]);
        assert_eq!(names("node[08-11]"), ["node08", "node09", "node10", "node11"]);
        assert_eq!(names("n[1,3,5-6]"), ["n1", "n3", "n5", "n6"]);
        assert_eq!(names("r[1-2]n[1-2].x,y"), ["r1n1.x", "r1n2.x", "r2n1.x", "r2n2.x", "y"]);
        assert_eq!(names("me@n[9-10]"), ["me@n9", "me@n10"]);
        assert_eq!(names("n[001]"), ["n001"]);
    }

    #[test]
    fn listening_receivers_have_ports() {
        let listens =
            |list| parse(list).unwrap().iter().map(|host| host.listens).collect::<Vec<_>>();
        assert_eq!(listens("a:70,n[1-2]:70,[::1]:70"), [true; 4]);
        assert_eq!(listens("a,::1,fe80::1%eth0,[::2],me@[::3]"), [false; 5]);
        assert_eq!(
            names("[::1]:70,[::2],me@[::3],[fe80::1%eth0]"),
            ["[::1]:70", "::2", "me@::3", "fe80::1%eth0"]
        );
        for list in ["a:b", "a:0", "a:70000", "a:", "[::1]:", "[::1]:99999", "n[1-2]:x"] {
            let error = parse(list).unwrap_err();
            assert!(error.contains("no port from 1 to 65535"), "{list}: {error}");
        }
    }

    #[test]
    fn invalid_lists_are_refused() {
        let error = |list| parse(list).unwrap_err();
        assert_eq!(error("a,b,a"), "host a is named twice");
        assert_eq!(error("n[1-3],n2"), "host n2 is named twice");
        for list in
            ["n[1-999999999]", "n[1-10001]", "a[1-999]b[1-999]", "n[0-18446744073709551615]"]
        {
            assert!(error(list).contains("more than 10000 hosts"), "{list}: {}", error(list));
        }
        assert_eq!(names("n[1-10000]").len(), 10_000);
        for list in [
            "",
            "a,,b",
            "a,",
            "n[",
            "n]",
            "n[]",
            "n[1",
            "n[[1]]",
            "n[3-1]",
            "n[a-b]",
            "n[-3]",
            "n[1-]",
            "-oProxyCommand=x",
            "a b",
            "a/b",
            "..",
            "a;b",
            "$(a)",
        ] {
            assert!(parse(list).is_err(), "{list}");
        }
    }
}
