//! Variables of the environment: docs/reference/variables.md has them all.

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::rules::{assert_none, files, read, root};

const PREFIX: &str = "RDMC_";

/// Sources where names of variables stand in quotes.
const SOURCES: [&str; 4] = [".rs", ".py", ".c", ".cc"];

/// The names in a text that begin with `RDMC_`, each with the character before it and behind it.
fn names(text: &str) -> impl Iterator<Item = (Option<char>, &str, Option<char>)> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.match_indices(PREFIX).map(move |(start, _)| {
        let rest = &text[start..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        (text[..start].chars().next_back(), &rest[..end], rest[end..].chars().next())
    })
}

/// The names that a source or a script reads or sets.
fn variables(text: &str, is_script: bool) -> impl Iterator<Item = String> {
    let found = names(text).filter(move |&(before, name, behind)| {
        let is_quoted = behind.is_some() && before == behind && matches!(before, Some('"' | '\''));
        let is_read = matches!(before, Some('$' | '{'));
        let is_whole = name.len() > PREFIX.len() && !name.ends_with('_');
        is_whole && if is_script { is_read || behind == Some('=') } else { is_quoted }
    });
    found.map(|(_, name, _)| name.to_owned())
}

/// Those of options that may be configured: they are made of the options' names.
fn configured() -> impl Iterator<Item = String> {
    let source = read(&root().join("crates/cli/src/config/keys.rs"));
    let list = source.split("const KEYS").nth(1).and_then(|rest| rest.split("];").next());
    let keys = list.expect("the list of options").split('"').skip(1).step_by(2);
    let named = |key: &str| format!("{PREFIX}{}", key.to_ascii_uppercase().replace('-', "_"));
    keys.map(named).collect::<Vec<_>>().into_iter()
}

#[test]
fn all_variables_are_in_the_table() {
    let floors = ["crates", "in-switch", "tools"];
    let mut used: BTreeSet<String> = configured().collect();
    assert!(used.len() > 10, "{used:?}");
    let all = floors.iter().flat_map(|floor| files(floor, "")).chain([PathBuf::from("dev")]);
    for path in all {
        let name = path.to_string_lossy();
        let is_source = SOURCES.iter().any(|ending| name.ends_with(ending));
        let bytes = fs::read(root().join(&path)).expect("a file of the tree");
        if is_source || bytes.starts_with(b"#!") || name.starts_with("tools/dev/") {
            used.extend(variables(&String::from_utf8_lossy(&bytes), !is_source));
        }
    }
    let table = read(&root().join("docs/reference/variables.md"));
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    let listed: BTreeSet<String> =
        cells.flat_map(names).map(|(_, name, _)| name.to_owned()).collect();
    let broken: Vec<String> = used
        .symmetric_difference(&listed)
        .map(|name| match used.contains(name) {
            true => format!("{name} has no row"),
            false => format!("{name} has a row, but nothing reads it"),
        })
        .collect();
    assert_none(&broken, "docs/reference/variables.md lists the variables of the environment");
}
