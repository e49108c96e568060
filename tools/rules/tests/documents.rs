//! What documents say of this repository: links, names of files, commands and items that exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::rules::{assert_none, documents, files, read, root, sources};

/// The anchors of a page: its headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| {
        let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
        heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    without_code(text)
        .lines()
        .filter_map(|line| line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' '))
        .map(anchor)
        .collect()
}

/// A page without its blocks of code.
fn without_code(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// Pages of the book link only to others of it, which it is whole without.
#[test]
fn links_in_documents_lead_somewhere() {
    let pages: BTreeMap<PathBuf, String> = documents().into_iter().collect();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        let text = without_code(text);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { path.clone() } else { beside(path, file) };
            let is_there = root().join(&linked).exists();
            let is_in_book = !path.starts_with("docs") || linked.starts_with("docs");
            let has_anchor = anchor.is_empty()
                || pages.get(&linked).is_some_and(|page| anchors(page).contains(anchor));
            if !(is_there && is_in_book && has_anchor) {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert_none(&broken, "links to what does not exist, or out of the book");
}

/// The path that a link of a page means.
fn beside(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => assert!(path.pop(), "{}: {link}", page.display()),
            name => path.push(name),
        }
    }
    path
}

#[test]
fn every_page_is_in_the_book() {
    let summary = read(&root().join("docs/SUMMARY.md"));
    let is_missing = |path: &PathBuf| {
        let page = path.strip_prefix("docs").expect("a page of docs").display().to_string();
        page != "SUMMARY.md" && !summary.contains(&format!("]({page})"))
    };
    let missing = files("docs", ".md").into_iter().filter(is_missing);
    let missing: Vec<String> = missing.map(|path| path.display().to_string()).collect();
    assert_none(&missing, "docs/SUMMARY.md lists every page");
}

/// The names that a crate's sources define.
#[derive(Default)]
struct Items {
    /// Items, and what is exported of others.
    items: BTreeSet<String>,
    /// The first words of lines behind visibility: fields, variants and functions among others.
    members: BTreeSet<String>,
}

impl Items {
    fn add(&mut self, source: &str) {
        const KINDS: [&str; 9] =
            ["fn", "struct", "enum", "trait", "mod", "type", "const", "static", "macro_rules"];
        let exported = source.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
        self.items.extend(exported.flat_map(words).map(str::to_owned));
        for line in source.lines() {
            let words: Vec<&str> = words(line).collect();
            let kind = words.iter().position(|word| KINDS.contains(word));
            if let Some(name) = kind.and_then(|kind| words.get(kind + 1)) {
                self.items.insert((*name).to_owned());
                self.members.insert((*name).to_owned());
            }
            let first = words.iter().find(|word| !["pub", "crate"].contains(word));
            self.members.extend(first.map(|name| (*name).to_owned()));
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(move |c: char| !is_part(c)).filter(|word| !word.is_empty())
}

/// `name::Item`, by the folder of the crate that is called so, and `Type::member`. The namespace of C++ has the name of the
/// library, and so do targets of events.
#[test]
fn items_that_documents_name_exist() {
    let mut crates: BTreeMap<String, Items> = BTreeMap::new();
    for (path, text) in sources() {
        let folder = path.iter().nth(1).expect("a crate").to_string_lossy().replace('-', "_");
        crates.entry(folder).or_default().add(&text);
    }
    let library = crates.entry("rdmc".into()).or_default();
    for header in files("crates/c/include", ".hpp") {
        library.items.extend(words(&read(&root().join(header))).map(str::to_owned));
    }
    library.items.insert("timeline".into());
    let mut broken = Vec::new();
    for (path, text) in documents() {
        let text = without_code(&text);
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        for name in text.split(|c: char| !is_part(c)) {
            let parts: Vec<&str> = words(name).collect();
            let [first, .., last] = parts[..] else { continue };
            let is_type = first.starts_with(|c: char| c.is_ascii_uppercase());
            let is_known = match crates.get(first) {
                Some(its) => its.items.contains(last),
                None if is_type && !["Box", "Duration"].contains(&first) => crates
                    .values()
                    .any(|its| its.items.contains(first) && its.members.contains(last)),
                None => true,
            };
            if name.contains("::") && !is_known {
                broken.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert_none(&broken, "items that are named and do not exist");
}

/// Paths of this repository as sources and documents write them, such as `docs/x.md`.
#[test]
fn files_that_are_named_exist() {
    let all = documents().into_iter().chain(sources());
    let mut broken = Vec::new();
    for (path, text) in all {
        let part_of_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        for word in text.split(|c: char| !part_of_path(c)).map(|word| word.trim_end_matches('.')) {
            let ours = ["docs/", "crates/", "in-switch/", "tools/"]
                .iter()
                .any(|place| word.starts_with(place));
            let is_file =
                [".md", ".rs", ".toml", ".svg"].iter().any(|ending| word.ends_with(ending));
            if ours
                && is_file
                && !word.contains("*")
                && word != "docs/x.md"
                && !root().join(word).exists()
            {
                broken.push(format!("{}: {word}", path.display()));
            }
        }
    }
    // Documents shorten paths of source files to `x.rs` or `folder/x.rs`.
    let known: Vec<String> =
        sources().iter().map(|(path, _)| format!("/{}", path.display())).collect();
    for (path, text) in documents() {
        for name in text.split('`').filter(|name| name.ends_with(".rs")) {
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            let tail = format!("/{name}");
            if is_name && !known.iter().any(|known| known.ends_with(&tail)) {
                broken.push(format!("{}: {name}", path.display()));
            }
        }
    }
    broken.dedup();
    assert_none(&broken, "files that are named and do not exist");
}

/// The table of measurements in `tools/dev/results`: page, file, arguments of `./dev bench`.
fn measurements() -> Vec<(String, String)> {
    let script = read(&root().join("tools/dev/results"));
    let table =
        script.split("results_table() {").nth(1).and_then(|rest| rest.split("\nEND\n").next());
    let lines = table.expect("there is a table").lines().skip(2);
    let measurement = |line: &str| {
        let mut words = line.splitn(3, ' ').map(str::to_owned);
        words.next().zip(words.nth(1)).expect("page, file and arguments")
    };
    lines.map(measurement).collect()
}

#[test]
fn results_are_made_as_their_pages_say() {
    let all = measurements();
    let overview = read(&root().join("docs/results/README.md"));
    let mut broken = Vec::new();
    for (page, arguments) in &all {
        let text = read(&root().join(format!("docs/results/{page}.md")));
        let text = text.replace('\\', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.contains(&format!("./dev bench {arguments}")) {
            broken.push(format!("docs/results/{page}.md does not have: ./dev bench {arguments}"));
        }
        if !overview.contains(&format!("]({page}.md)")) {
            broken.push(format!("docs/results/README.md has no link to {page}.md"));
        }
    }
    for path in files("docs/results", ".md") {
        let page = path.file_stem().unwrap_or_default().to_string_lossy();
        if page != "README" && !all.iter().any(|(known, _)| *known == page) {
            broken.push(format!("{}: tools/dev/results has no line for it", path.display()));
        }
    }
    assert_none(
        &broken,
        "`./dev bench results` and the pages in docs/results have the same commands",
    );
}

#[test]
fn commands_in_documents_exist() {
    let help = read(&root().join("dev"));
    let known: BTreeSet<&str> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|word| !word.is_empty())
        .collect();
    let mut broken = Vec::new();
    for (path, text) in documents() {
        for rest in text.split("./dev ").skip(1) {
            let command = rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
            if !known.contains(command) {
                broken.push(format!("{}: ./dev {command}", path.display()));
            }
        }
    }
    assert_none(&broken, "commands that ./dev does not have");
    let (ci, test) = (read(&root().join(".ci/run")), read(&root().join("tools/dev/test")));
    assert!(ci.ends_with("\nexec ./dev test\n"), ".ci/run does not call ./dev test");
    for call in [
        " tools/dev/lint || status=$?",
        " ./dev test-rdma >",
        " wait \"$machine\" || status=$?",
        " ./dev test-rdma hosts >",
    ] {
        assert!(test.contains(call), "./dev test does not call{call}");
    }
}
