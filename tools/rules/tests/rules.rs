//! Rules of this repository that a compiler does not check. Each failure lists every place.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const LINES_MAX: usize = 800;

/// Crates of this workspace that each crate may use in what it ships. Tests may use more.
const MAY_USE: &[(&str, &[&str])] = &[
    ("schedule", &[]),
    ("relay", &["schedule"]),
    ("plan", &["relay", "schedule"]),
    ("collective", &["schedule"]),
    ("memory", &[]),
    ("transport", &["memory"]),
    ("transport-contract", &["transport"]),
    ("transport-shm", &["transport"]),
    ("transport-sim", &["transport"]),
    ("transport-tcp", &["transport", "transport-shm"]),
    ("transport-fabric", &["transport", "transport-tcp"]),
    (
        "transport-switch",
        &[
            "transport",
            "transport-tcp",
            "endpoint",
            "mcrdma",
            "packet-socket",
            "roce",
            "routes",
            "verbs",
        ],
    ),
    ("session", &[]),
    ("engine", &["relay", "schedule", "transport"]),
    ("team", &["collective", "engine", "transport"]),
    ("trace", &[]),
    ("roce", &[]),
    ("mcrdma", &["roce"]),
    ("mcrdma-sim", &["mcrdma", "roce"]),
    ("packet-socket", &[]),
    ("verbs", &["memory"]),
    ("data-plane", &["mcrdma", "packet-socket", "roce"]),
    ("routes", &["mcrdma", "roce"]),
    ("control", &["mcrdma", "roce", "session"]),
    ("agent", &["control", "data-plane", "mcrdma", "roce", "routes", "session"]),
    ("host", &["control", "mcrdma", "roce", "session"]),
    ("endpoint", &["mcrdma", "packet-socket", "roce"]),
    (
        "simulate",
        &[
            "collective",
            "engine",
            "files",
            "rdmc",
            "team",
            "transport",
            "transport-sim",
            "transport-tcp",
            "tree",
        ],
    ),
    (
        "rdmc",
        &[
            "collective",
            "session",
            "engine",
            "plan",
            "schedule",
            "relay",
            "team",
            "transport",
            "transport-shm",
            "transport-tcp",
            "transport-fabric",
            "transport-switch",
            "mcrdma",
            "roce",
        ],
    ),
    ("c", &["gpu", "rdmc"]),
    ("python", &["gpu", "rdmc"]),
    ("gpu", &["rdmc", "session"]),
    ("tree", &[]),
    ("remote", &[]),
    ("files", &["plan", "rdmc", "schedule", "session", "tree"]),
    ("measure", &["files", "plan", "rdmc", "session"]),
    (
        "cli",
        &[
            "agent",
            "collective",
            "control",
            "data-plane",
            "files",
            "gpu",
            "host",
            "mcrdma",
            "measure",
            "plan",
            "rdmc",
            "remote",
            "schedule",
            "session",
            "trace",
        ],
    ),
    ("lab", &["packet-socket", "plan"]),
    ("microbenchmarks", &[]),
    ("rules", &[]),
    ("testing", &[]),
    ("testing-gpu", &[]),
    ("testing-switch", &["data-plane", "endpoint", "lab", "mcrdma", "rdmc", "roce"]),
    (
        "bench",
        &[
            "collective",
            "engine",
            "gpu",
            "rdmc",
            "schedule",
            "transport",
            "transport-fabric",
            "transport-shm",
            "transport-sim",
            "transport-tcp",
            "files",
            "lab",
            "simulate",
            "mcrdma",
            "mcrdma-sim",
            "team",
            "trace",
            "packet-socket",
            "plan",
            "roce",
            "data-plane",
        ],
    ),
];

/// Where the crates are: what replicates, what switches that copy add, what developers use.
const FLOORS: [&str; 3] = ["crates", "in-switch", "tools"];
/// Workspaces of their own.
const APART: [&str; 1] = ["tools/fuzz"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a directory that end like this, by their path from the repository's root.
pub(crate) fn files(directory: &str, ending: &str) -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    let mut directories = vec![root.join(directory)];
    while let Some(directory) = directories.pop() {
        let entries =
            fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                directories.push(path);
            } else if name.ends_with(ending) {
                found.push(path.strip_prefix(&root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// All files of crates that end like this.
fn crate_files(ending: &str) -> Vec<PathBuf> {
    FLOORS.iter().flat_map(|floor| files(floor, ending)).collect()
}

pub(crate) fn sources() -> Vec<(PathBuf, String)> {
    crate_files(".rs").into_iter().map(|path| (path.clone(), read(&root().join(path)))).collect()
}

pub(crate) fn documents() -> Vec<(PathBuf, String)> {
    let top = fs::read_dir(root()).unwrap().filter_map(|entry| {
        let name = PathBuf::from(entry.unwrap().file_name());
        name.extension().is_some_and(|ending| ending == "md").then_some(name)
    });
    top.chain(files("docs", ".md")).map(|path| (path.clone(), read(&root().join(path)))).collect()
}

/// The manifests of all packages of this workspace.
fn manifests() -> Vec<PathBuf> {
    let mut manifests = crate_files("Cargo.toml");
    manifests.retain(|path| !APART.iter().any(|apart| path.starts_with(apart)));
    manifests
}

/// The keys of a table of a Cargo.toml, such as `[dependencies]`.
fn keys(manifest: &str, table: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut keys = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == format!("[{table}]");
        } else if inside && !line.starts_with('#') && line.contains('=') {
            let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
            keys.insert(key.to_owned());
        }
    }
    keys
}

pub(crate) fn assert_none(broken: &[String], rule: &str) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn no_file_is_too_long() {
    let broken: Vec<String> = sources()
        .iter()
        .filter_map(|(path, text)| {
            let lines = text.lines().count();
            let is_long = lines > LINES_MAX;
            is_long.then(|| format!("{}: {lines} lines, at most {LINES_MAX}", path.display()))
        })
        .collect();
    assert_none(&broken, "split long files, so that each has one reason to change");
}

/// Types whose methods are in several files, each file for one kind of events.
const IN_SEVERAL_FILES: [(&str, &str); 3] = [
    ("crates/relay", "Relay"),
    ("crates/transport-sim", "State"),
    ("tools/simulate/src/push", "World"),
];

#[test]
fn methods_are_in_the_file_of_their_type() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let words = |line: &str| -> Vec<String> {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let made: BTreeSet<String> = text
            .lines()
            .map(words)
            .filter_map(|words| {
                let is_item = |word: &String| ["struct", "enum", "union"].contains(&word.as_str());
                words.get(words.iter().position(is_item)? + 1).cloned()
            })
            .collect();
        for line in text.lines().filter(|line| line.ends_with('{') && !line.contains(" for ")) {
            let Some(of) = line.strip_prefix("impl") else { continue };
            let of = of.strip_prefix('<').and_then(|it| it.split_once("> ")).map_or(of, |it| it.1);
            let name = &words(of)[0];
            let is_known =
                IN_SEVERAL_FILES.iter().any(|(at, of)| path.starts_with(at) && of == name);
            if !made.contains(name) && !is_known {
                broken.push(format!("{}: {line}", path.display()));
            }
        }
    }
    assert_none(&broken, "give the part a type of its own, or move the methods to the type");
}

#[test]
fn unsafe_code_stays_in_transports_and_bindings() {
    let word = ["uns", "afe"].concat();
    let allowed = [
        "crates/c/",
        "crates/gpu",
        "crates/memory",
        "crates/python",
        "crates/transport-contract",
        "crates/transport-fabric",
        "in-switch/packet-socket",
        "in-switch/verbs",
        "tools/testing-gpu",
    ];
    let broken: Vec<String> = sources()
        .iter()
        .filter(|(path, _)| {
            !allowed.iter().any(|allowed| path.to_string_lossy().starts_with(allowed))
        })
        .flat_map(|(path, text)| {
            let code = |line: &&str| !line.trim_start().starts_with("//");
            let lines = text.lines().zip(1..).filter(|(line, _)| code(line));
            let uses = |line: &str| {
                line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
            };
            lines
                .filter(|(line, _)| uses(line))
                .map(|(line, number)| format!("{}:{number}: {line}", path.display()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_none(
        &broken,
        "memory is shared with the network, the kernel and other languages in transports and bindings only",
    );
}

#[test]
fn no_unfinished_work_is_marked_in_sources() {
    let marks = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["XX", "X:"],
        ["todo", "!("],
        ["unimplemented", "!("],
        ["dbg", "!("],
    ]
    .map(|halves| halves.concat());
    let broken: Vec<String> = sources()
        .iter()
        .flat_map(|(path, text)| {
            let marked = |line: &str| marks.iter().any(|mark| line.contains(mark.as_str()));
            text.lines()
                .zip(1..)
                .filter(|(line, _)| marked(line))
                .map(|(line, number)| format!("{}:{number}: {}", path.display(), line.trim()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_none(&broken, "do it, or write an issue");
}

#[test]
fn documentation_is_more_than_a_question() {
    let questions = ["Which", "Whose", "Why", "Where", "What", "Who", "How", "When"];
    let is_question = |line: &str| {
        let doc = line.trim_start().strip_prefix("/// ").and_then(|doc| doc.strip_suffix('.'));
        doc.is_some_and(|doc| questions.contains(&doc))
    };
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().enumerate().filter(|(_, line)| is_question(line));
        broken.extend(lines.map(|(at, _)| format!("{}:{}", path.display(), at + 1)));
    }
    assert_none(&broken, "a doc comment of one word documents nothing: say what the item is");
}

#[test]
fn crates_use_only_what_is_below_them() {
    let allowed: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let mut broken = Vec::new();
    for manifest in manifests() {
        let path = root().join(&manifest).with_file_name("");
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(below) = allowed.get(name.as_str()) else {
            broken.push(format!("{name}: say in this test which crates it may use"));
            continue;
        };
        let used = keys(&read(&path.join("Cargo.toml")), "dependencies");
        let own = used.iter().filter(|used| allowed.contains_key(used.as_str()));
        broken.extend(
            own.filter(|used| !below.contains(&used.as_str()))
                .map(|used| format!("{name} uses {used}")),
        );
    }
    assert_none(
        &broken,
        "data flows one way, and so do dependencies (docs/internals/architecture.md)",
    );
}

/// What a program links that uses the library with default features.
#[test]
fn the_library_links_switch_support_only_by_feature() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "--offline", "--locked", "-p", "rdmc", "-e", "normal", "--prefix", "none"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "cargo tree: {error}");
    let tree = String::from_utf8_lossy(&tree.stdout).into_owned();
    let linked: BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(linked.contains("rdmc-session") && linked.contains("rdmc-engine"), "{linked:?}");
    let in_switch: Vec<String> = files("in-switch", "Cargo.toml")
        .iter()
        .filter_map(|path| {
            let text = read(&root().join(path));
            text.lines().find_map(|line| {
                Some(line.strip_prefix("name = \"")?.strip_suffix('"')?.to_owned())
            })
        })
        .collect();
    let is_for_switches = |name: &&str| {
        in_switch.iter().any(|other| other == name)
            || name.starts_with("netlink")
            || ["aya", "tonic", "hyper", "tokio"].contains(name)
    };
    let broken: Vec<String> =
        linked.iter().copied().filter(is_for_switches).map(str::to_owned).collect();
    assert_none(&broken, "groups that switches copy are the feature `switch` of `rdmc`");
}

/// Crates list their test programs, so a file beside them that no program has as a module would not run.
#[test]
fn every_test_file_is_run() {
    let mut broken = Vec::new();
    for manifest in manifests() {
        let tests = root().join(&manifest).with_file_name("tests");
        let text = read(&root().join(&manifest));
        let Ok(main) = fs::read_to_string(tests.join("main.rs")) else { continue };
        assert!(
            text.contains("autotests = false"),
            "{}: each file is a program",
            manifest.display()
        );
        let names = fs::read_dir(&tests).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        let modules = names.filter_map(|name| Some(name.strip_suffix(".rs")?.to_owned()));
        let is_run = |name: &String| {
            main.lines().any(|line| line == format!("mod {name};"))
                || text.contains(&format!("path = \"tests/{name}.rs\""))
        };
        let idle = modules.filter(|name| !is_run(name));
        broken.extend(idle.map(|name| format!("{}/{name}.rs", tests.display())));
    }
    assert_none(&broken, "no test program has these files: name them in main.rs beside them");
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = read(&root().join("Cargo.toml"));
    let own: BTreeSet<&str> = MAY_USE.iter().map(|&(name, _)| name).collect();
    let used: BTreeSet<String> = keys(&manifest, "workspace.dependencies")
        .into_iter()
        .filter(|name| !own.contains(name.as_str()))
        .collect();
    let explained: BTreeSet<String> = read(&root().join("docs/dependencies.md"))
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect();
    let broken: Vec<String> = used
        .symmetric_difference(&explained)
        .map(|name| match used.contains(name) {
            true => format!("{name} has no line"),
            false => format!("{name} is explained, but not used"),
        })
        .collect();
    assert_none(
        &broken,
        "docs/dependencies.md gives the reason of each dependency of the workspace",
    );
}

#[test]
fn versions_are_chosen_once_and_used() {
    let known = keys(&read(&root().join("Cargo.toml")), "workspace.dependencies");
    let mut used = BTreeSet::new();
    let mut broken = Vec::new();
    for path in manifests() {
        let manifest = read(&root().join(&path));
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let keys = keys(&manifest, table);
            let stray = keys.difference(&known);
            broken.extend(
                stray.map(|name| format!("{}: {name} has its own version", path.display())),
            );
            used.extend(keys);
        }
    }
    broken.extend(known.difference(&used).map(|name| format!("Cargo.toml: no crate uses {name}")));
    assert_none(&broken, "versions of dependencies are in the workspace's Cargo.toml");
}

/// The test programs of all packages.
fn test_programs() -> Vec<String> {
    let mut programs = Vec::new();
    for manifest in manifests() {
        let text = read(&root().join(&manifest));
        if text.contains("autotests = false") {
            let named = text.split("[[test]]\nname = \"").skip(1);
            programs.extend(named.filter_map(|rest| Some(rest.split('"').next()?.to_owned())));
            continue;
        }
        let Ok(entries) = fs::read_dir(root().join(&manifest).with_file_name("tests")) else {
            continue;
        };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let is_program = path.extension().is_some_and(|ending| ending == "rs")
                || path.join("main.rs").is_file();
            if is_program {
                programs.push(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
            }
        }
    }
    programs
}

/// So that `cargo test --test NAME` selects one, with the features that the whole workspace has.
#[test]
fn test_programs_have_names_of_their_own_and_are_called_by_them() {
    let programs = test_programs();
    let known: BTreeSet<&str> = programs.iter().map(String::as_str).collect();
    assert_eq!(known.len(), programs.len(), "two test programs have one name: {programs:?}");
    let mut broken = Vec::new();
    let mut check = |place: &str, name: &str| {
        if !known.contains(name) {
            broken.push(format!("{place}: there is no test program {name}"));
        }
    };
    // The virtual machine's steps.
    let steps = "tools/rdma-vm/guest/steps.list";
    for line in read(&root().join(steps)).lines().filter(|line| !line.starts_with('#')) {
        match line.split_whitespace().nth(4) {
            Some("-" | "rdmc" | "rdmc-bench") | None => {}
            Some(program) => check(steps, program),
        }
    }
    // Commands, in scripts and documents.
    let scripts = ["tools/dev/test", "tools/dev/sanitize", "tools/nightly/steps"];
    let scripts = scripts.map(|path| (PathBuf::from(path), read(&root().join(path))));
    for (path, text) in documents().into_iter().chain(scripts) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let named = words.windows(2).filter(|pair| pair[0].trim_matches('`') == "--test");
        for name in named.map(|pair| pair[1].trim_matches(['`', ';', ')', ',', '.'])) {
            check(&path.display().to_string(), name);
        }
    }
    assert_none(&broken, "test programs that are run and do not exist");
}
