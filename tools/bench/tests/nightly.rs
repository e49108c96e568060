//! `./dev nightly`: how it judges its steps, and that each of them is an existing command.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn nightly(arguments: &[&str]) -> Output {
    Command::new(root().join("tools/nightly/run")).args(arguments).output().expect("bash runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Names and commands, as `--list` has them.
fn steps(options: &[&str]) -> Vec<(String, Vec<String>)> {
    let output = nightly(&[&["--list", "--logs", "logs"], options].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let step = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().expect("a name"), words.collect())
    };
    text(&output.stdout).lines().map(step).collect()
}

/// A table whose commands are scripts with some output.
struct Table {
    directory: tempfile::TempDir,
    lines: String,
}

impl Table {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), lines: "# name\n".into() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn step(&mut self, name: &str, count: &str, script: &str) {
        let path = self.path(&format!("{name}.sh"));
        fs::write(&path, script).unwrap();
        self.lines += &format!("{name} {count} 1 many few bash {path} {{}} {{logs}}\n");
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let (steps, logs) = (self.path("steps"), self.path("logs"));
        fs::write(&steps, &self.lines).unwrap();
        let output = nightly(&[&["--table", &steps, "--logs", &logs], arguments].concat());
        (output.status.code(), text(&output.stdout))
    }
}

/// The line of a step in the table at the end.
fn row<'a>(output: &'a str, name: &str) -> &'a str {
    let (_, table) = output.rsplit_once("\nstep ").expect("a table");
    table.lines().find(|line| line.starts_with(&format!("{name} "))).expect("a line of the table")
}

#[test]
fn what_has_passed_with_the_same_sources_is_left_out_of_a_night_that_continues() {
    let mut table = Table::new();
    let count = |name: &str| format!("echo >>{}; echo '5 runs, all passed'", table.path(name));
    let (good, bad) = (count("good"), count("bad"));
    table.step("passes", "runs", &good);
    table.step("fails", "runs", &format!("{bad}; exit 1"));
    let runs = |table: &Table| {
        ["good", "bad"].map(|name| fs::read_to_string(table.path(name)).unwrap().lines().count())
    };
    assert_eq!(table.run(&["--tree", "one"]).0, Some(1));
    let (code, output) = table.run(&["--tree", "one", "--continue"]);
    assert_eq!(code, Some(1), "{output}");
    assert!(row(&output, "passes").ends_with("  passed before"), "{output}");
    assert!(row(&output, "fails").contains("FAILED"), "{output}");
    assert_eq!(runs(&table), [1, 2]);
    // Other sources; a night from the beginning; what was short.
    table.run(&["--tree", "another", "--continue"]);
    table.run(&["--tree", "another"]);
    table.run(&["--tree", "third", "--short"]);
    table.run(&["--tree", "third", "--continue"]);
    assert_eq!(runs(&table), [5, 6]);
    let (code, _) = table.run(&["--tree", "", "--continue"]);
    assert_eq!((code, runs(&table)), (Some(2), [5, 6]), "of unknown sources");
}

#[test]
fn a_step_that_fails_after_it_passed_has_not_passed_before() {
    let mut table = Table::new();
    let broken = table.path("broken");
    table.step("breaks", "runs", &format!("test -e {broken} && exit 1; echo '5 runs, all passed'"));
    assert_eq!(table.run(&["--tree", "one"]).0, Some(0));
    fs::write(&broken, "").unwrap();
    assert_eq!(table.run(&["--tree", "one"]).0, Some(1));
    let (code, output) = table.run(&["--tree", "one", "--continue"]);
    assert_eq!(code, Some(1), "{output}");
    assert!(row(&output, "breaks").contains("FAILED"), "{output}");
}

#[test]
fn a_step_is_judged_by_what_it_ran_and_all_steps_run() {
    let mut table = Table::new();
    let tests = "test result: ok. 3 passed; 0 failed";
    table.step("breaks", "tests", &format!("echo '{tests}'; exit 3"));
    table.step("is-empty", "tests", "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'");
    table.step("prints-nothing", "runs", "exit 0");
    table.step("skips", "tests", "echo 'dev: SKIPPED: needs nightly Rust'");
    table.step(
        "skips-all",
        "tests",
        "echo 'test result: ok. 1 passed'; echo 'SKIPPED: needs root'",
    );
    table.step("skips-some", "tests", &format!("echo '{tests}'; echo 'SKIPPED: needs root'"));
    table.step("passes", "tests", &format!("echo '{tests}'; echo '{tests}' >&2"));
    let (code, output) = table.run(&[]);
    assert_eq!(code, Some(1), "{output}");
    for (name, count, verdict) in [
        ("breaks", "3", "FAILED with status 3"),
        ("is-empty", "0", "FAILED: it ran nothing"),
        ("prints-nothing", "0", "FAILED: it ran nothing"),
        ("skips", "0", "SKIPPED: needs nightly Rust"),
        ("skips-all", "0", "SKIPPED: needs root"),
        ("skips-some", "2", "passed, but SKIPPED: needs root"),
        ("passes", "6", "passed"),
    ] {
        let row = row(&output, name);
        assert_eq!(row.split_whitespace().nth(1), Some(count), "{row}");
        assert!(row.ends_with(verdict), "{row}");
    }
    assert!(output.ends_with("3 failed\n"), "{output}");
    assert!(fs::read_to_string(table.path("logs/passes.log")).unwrap().contains(tests));
    let (code, output) = table.run(&["passes", "skips"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("0 failed") && !output.contains("breaks"), "{output}");
}

#[test]
fn a_turn_is_one_step_and_then_the_next() {
    let mut table = Table::new();
    for name in ["first", "second"] {
        table.step(name, "tests", "echo 'test result: ok. 3 passed'");
    }
    for name in ["first", "second", "first"] {
        let (code, output) = table.run(&["--turn"]);
        assert_eq!(code, Some(0), "{output}");
        let (_, rows) = output.rsplit_once("verdict\n").expect("a table");
        assert_eq!(rows.lines().count(), 2, "{output}");
        assert!(rows.starts_with(name), "{output}");
    }
}

/// Of each kind, in the form that the programs print.
#[test]
fn what_ran_is_counted_by_kind() {
    let report = "first: what\\n2 cores\\n\\na  b\\n1  2\\n3  4\\n\\na note\\n";
    let machine = "step   time  ran  bridge  verdict\\r\\none  5 s  8  23 MiB  passed\\r\\n\
                   two  5 s  7  1 MiB  FAILED with status 1\\r\\n";
    let mut table = Table::new();
    for (name, said) in [
        ("inputs", "stat::number_of_executed_units: 42\\n"),
        ("packages", "package rdmc: checked\\npackage rdmc-relay: checked\\n"),
        ("audits", "bans ok, licenses ok, sources ok\\nadvisories ok\\n"),
        ("runs", "42 runs, 17 steps\\n7 runs per second\\n"),
        (
            "fetches",
            "9 of 9 rounds\\nchaos-fetch: 42 fetches of 32 MiB by hosts of a lab, in 9 rounds\\n",
        ),
        ("pushes", "7 of 9 rounds\\r9 of 9 rounds\\nchaos: 42 pushes of 64 MiB\\n"),
        ("rows", report),
        ("files", "dev: results: wrote a.json\\ndev: results: wrote b.json\\n"),
        ("verdicts", machine),
        (
            "packets",
            "test a ... no wrong byte in 40 packets, some lost\\nno wrong byte in 2 packets\\n",
        ),
    ] {
        table.step(name, name, &format!("printf '{said}'"));
    }
    let (code, output) = table.run(&[]);
    assert_eq!(code, Some(0), "{output}");
    let counts = [
        ("packages", 2),
        ("audits", 2),
        ("inputs", 42),
        ("runs", 42),
        ("fetches", 42),
        ("pushes", 42),
        ("rows", 2),
        ("files", 2),
    ];
    for (name, count) in counts.into_iter().chain([("verdicts", 8), ("packets", 42)]) {
        let row = row(&output, name);
        assert_eq!(row.split_whitespace().nth(1), Some(&*count.to_string()), "{row}");
    }
}

#[test]
fn the_amount_of_each_step_can_be_chosen() {
    let mut table = Table::new();
    table.step("one", "rows", "printf '\\n%s\\n%s\\n' head \"$1\"");
    for (options, amount) in [(&[][..], "many"), (&["--short"], "few")] {
        table.run(options);
        let log = fs::read_to_string(table.path("logs/one.log")).unwrap();
        assert!(log.contains(amount), "{options:?}: {log}");
    }
    let fuzzed = |options: &[&str]| steps(&[options, &["fuzz-tcp_frames"]].concat())[0].1.join(" ");
    assert!(fuzzed(&[]).ends_with("--seconds 20"));
    assert!(fuzzed(&["--minutes", "3"]).ends_with("--seconds 180"));
    for wrong in [&["nothing"][..], &["--minutes", "0"], &["--minutes"], &["--wrong"]] {
        assert_eq!(nightly(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn every_step_is_an_existing_command() {
    for options in [&[][..], &["--short"]] {
        for (name, words) in steps(options) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            check_command(&name, &words);
        }
    }
}

fn check_command(name: &str, words: &[&str]) {
    assert!(!words.join(" ").contains(['{', '}']), "{name}: {words:?}");
    match words {
        ["./dev", "sanitize", step] => {
            assert!(
                read("tools/dev/sanitize").contains(&format!("\nsanitize_{step}() {{")),
                "{name}"
            );
        }
        // The next test compares their names.
        ["./dev", "fuzz", _, "--seconds", seconds] => assert!(seconds.parse::<u32>().is_ok()),
        ["./dev", "bench", "results", "--output", directory, pages @ ..] => {
            assert!(directory.ends_with("/logs/results"), "{name}: not over what is committed");
            let table = read("tools/dev/results");
            let known = |page: &&str| table.contains(&format!("\n{page} {page} "));
            assert!(!pages.is_empty() && pages.iter().all(known), "{name}: {pages:?}");
        }
        ["./dev", "bench", command @ ..] => {
            let bench = Command::new(env!("CARGO_BIN_EXE_rdmc-bench"))
                .args(command)
                .arg("--help")
                .output()
                .unwrap();
            assert!(bench.status.success(), "{name}: {}", text(&bench.stderr));
        }
        ["./dev", "test-rdma", "full"] | ["./dev", "packages" | "audit"] => {}
        ["env", "CARGO_PROFILE_RELEASE_OPT_LEVEL=1", "./dev", "package", "test"] => {
            assert!(read("tools/package/run").contains("exec tools/package/test"), "{name}");
        }
        ["env", "CARGO_PROFILE_RELEASE_OPT_LEVEL=1", "./dev", "wheel", "test"] => {
            assert!(read("tools/dev/wheel").contains("exec tools/dev/wheel-test"), "{name}");
        }
        ["./dev", "slurm", what] => {
            assert!(read("tools/slurm/run").contains(&format!("\n    {what}) ")), "{name}");
        }
        ["./dev", "test-rdma", step] => {
            assert!(
                read("tools/rdma-vm/guest/steps.list").contains(&format!("\n{step} ")),
                "{name}"
            );
        }
        ["cargo", "test", "--locked", "--test", test, "--", "--ignored", "--nocapture", filter] => {
            let directory = test.strip_suffix("-integration").expect("tests of a crate of ours");
            let floors = ["crates", "in-switch", "tools"].into_iter();
            let tests = floors.map(|floor| root().join(floor).join(directory).join("tests"));
            let files = tests.filter_map(|tests| fs::read_dir(tests).ok()).flatten();
            let is_ignored = format!("#[ignore = \"takes minutes; for every night\"]\nfn {filter}");
            let has_it = |file: fs::DirEntry| {
                fs::read_to_string(file.path()).is_ok_and(|source| source.contains(&is_ignored))
            };
            assert!(files.flatten().any(has_it), "{name}: no such test");
        }
        // Tests of these packages have their options.
        ["./dev", "sim", ..] | ["./dev", "demo", "--size", _] => {}
        _ => panic!("{name}: add a check of this command: {words:?}"),
    }
}

/// The suffixes of steps that begin with this, such as `kill` of `chaos-kill`.
fn parts(steps: &[(String, Vec<String>)], prefix: &str) -> BTreeSet<String> {
    steps.iter().filter_map(|(name, _)| Some(name.strip_prefix(prefix)?.to_owned())).collect()
}

#[test]
fn every_runnable_check_is_a_step() {
    let all = steps(&[]);
    let fuzz = read("tools/fuzz/Cargo.toml");
    let targets = fuzz.split("[[bin]]\nname = \"").skip(1).filter_map(|bin| bin.split('"').next());
    assert_eq!(parts(&all, "fuzz-"), targets.map(str::to_owned).collect());
    let script = read("tools/dev/sanitize");
    let sanitizers =
        script.split("steps=(").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
    let sanitizers = sanitizers.split(' ').map(str::to_owned).collect();
    assert_eq!(parts(&all, "sanitize-"), sanitizers);
    let help = Command::new(env!("CARGO_BIN_EXE_rdmc-bench")).args(["chaos", "-h"]).output();
    let help = text(&help.unwrap().stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let faults = help.split("[possible values: kill,").nth(1).and_then(|it| it.split(']').next());
    let faults = format!("kill, {}", faults.expect("kinds of faults"));
    // Fetches have a command of their own.
    let faults = faults.split(", ").map(|fault| fault.trim().to_owned()).chain(["fetch".into()]);
    assert_eq!(parts(&all, "chaos-"), faults.collect());
}

/// The table in CONTRIBUTING.md has a line for each step, or for all whose names begin so.
#[test]
fn the_list_is_the_one_in_the_documents() {
    let document = read("CONTRIBUTING.md");
    let section = document.split("## What runs where").nth(1).expect("a section on what runs");
    let documented: BTreeSet<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(name, _)| name)
        .collect();
    let is_of = |step: &str, name: &str| {
        step == name || step.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
    };
    let all = steps(&[]);
    for (step, _) in &all {
        assert!(documented.iter().any(|name| is_of(step, name)), "{step} is not documented");
    }
    for name in documented {
        assert!(all.iter().any(|(step, _)| is_of(step, name)), "there is no step {name}");
    }
}
