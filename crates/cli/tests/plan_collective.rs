//! `rdmc plan --collective` as it is run.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::common::{Outcome, Place};

fn plan(words: &str) -> Outcome {
    Place::with(0).run_words(&format!("plan {words}"))
}

fn stdout(words: &str) -> String {
    let outcome = plan(words);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{words}");
    outcome.out
}

fn json(words: &str) -> Value {
    serde_json::from_str(&stdout(&format!("{words} --json"))).expect("JSON")
}

#[test]
fn reduction_of_degree_three() {
    // The paper's figure 4: 32 members.
    let table = stdout("--collective reduce --members 32 --degree 3");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "reduce: 32 members, degree 3, 3 steps");
    assert_eq!(lines[1], "step  phase      writes");
    assert!(lines[2].starts_with("   0  reduce      1→0    2→0    3→0    5→4 "), "{table}");
    assert_eq!(lines[3], "   1  reduce      4→0    8→0   12→0   20→16  24→16  28→16");
    assert_eq!(lines[4..], ["   2  reduce     16→0"]);
}

#[test]
fn allreduce_is_a_reduction_and_a_broadcast() {
    let expected = "\
allreduce: 4 members, degree 1, 4 steps (2 reduce, 2 broadcast)
step  phase      writes
   0  reduce     1→0  3→2
   1  reduce     2→0
   2  broadcast  0→1
   3  broadcast  0→2  1→3
";
    assert_eq!(stdout("--collective allreduce --members 4 --degree 1"), expected);
}

#[test]
fn broadcast_from_any_root() {
    let expected = "\
broadcast: 6 members, root 4, 3 steps
4 B by the cost model: 27.0 us
step  phase      writes
   0  broadcast  4→5
   1  broadcast  4→0
   2  broadcast  0→3  4→1  5→2
";
    assert_eq!(stdout("--collective broadcast --members 6 --root 4 --bytes 4"), expected);
}

#[test]
fn one_member_writes_nothing() {
    let alone = "allreduce: 1 member, degree 1, 0 steps (0 reduce, 0 broadcast)\n";
    assert_eq!(stdout("--collective allreduce --members 1 --degree 1"), alone);
}

/// Replays the JSON of an allreduce: the root folds each member once, and each member then gets the result once, from one
/// that has it.
fn assert_reaches_all(members: u64, degree: u64) {
    let words = format!("--collective allreduce --members {members} --degree {degree}");
    let shown = json(&words);
    let field = |value: &Value, name: &str| value[name].as_u64().expect("a number");
    let mut folded: Vec<Vec<u64>> = (0..members).map(|rank| vec![rank]).collect();
    let mut has_result_before = vec![u64::MAX; members as usize];
    has_result_before[0] = 0;
    let mut last_step = 0;
    for write in shown["transfers"].as_array().expect("an array") {
        let [step, source, target] = ["step", "source", "target"].map(|name| field(write, name));
        assert!(step == last_step || step == last_step + 1, "{words}: {write}");
        last_step = step;
        if write["phase"] == "reduce" {
            let contribution = std::mem::take(&mut folded[source as usize]);
            folded[target as usize].extend(contribution);
        } else {
            assert_eq!(write["phase"], "broadcast");
            assert!(has_result_before[source as usize] <= step, "{words}: {write}");
            assert_eq!(has_result_before[target as usize], u64::MAX, "{words}: {write}");
            has_result_before[target as usize] = step + 1;
        }
    }
    assert_eq!(folded[0], (0..members).collect::<Vec<_>>(), "{words}");
    assert!(has_result_before.iter().all(|&step| step != u64::MAX), "{words}");
    assert_eq!((field(&shown, "members"), field(&shown, "degree")), (members, degree));
    assert_eq!(field(&shown, "steps"), last_step + 1);
}

#[test]
fn json_reaches_all() {
    for (members, degree) in [(2, 1), (9, 2), (13, 3), (32, 3), (40, 39), (100, 7)] {
        assert_reaches_all(members, degree);
    }
}

#[test]
fn json_has_the_fields_in_order() {
    let expected = "{\"schema\":1,\"collective\":\"broadcast\",\"members\":2,\"root\":1,\"bytes\":4,\"best_seconds\":9.002e-6,\
                    \"worst_seconds\":9.002e-6,\"steps\":1,\"transfers\":[{\"step\":0,\"phase\":\"broadcast\",\
                    \"source\":1,\"target\":0}]}\n";
    assert_eq!(stdout("--collective broadcast --members 2 --root 1 --bytes 4 --json"), expected);
}

#[test]
fn model_chooses_the_degree_for_a_length() {
    let degree = |bytes: &str, more: &str| {
        json(&format!("--collective allreduce --members 16 --bytes {bytes} {more}"))["degree"]
            .clone()
    };
    assert_eq!((degree("4", ""), degree("4KiB", "")), (json!(3), json!(1)));
    // Without any cost but that of steps, one step is best.
    assert_eq!(degree("4KiB", "--parameters Tt=0,Ts=0,Tn=0"), 15);
    let table = stdout("--collective allreduce --members 16 --bytes 4");
    let expected = "\
allreduce: 16 members, degree 3, 6 steps (2 reduce, 4 broadcast)
4 B by the cost model: 62.0 us in the best case, 68.1 us in the worst
";
    assert!(table.starts_with(expected), "{table}");
    // A degree that is given is kept, and timed.
    let given = json("--collective reduce --members 16 --bytes 4 --degree 15");
    assert_eq!((&given["degree"], &given["steps"]), (&json!(15), &json!(1)));
    assert_eq!(
        (&given["best_seconds"], &given["worst_seconds"]),
        (&json!(37.002e-6), &json!(58.282e-6))
    );
}

#[test]
fn degrees_are_compared() {
    let explained = json("--collective reduce --members 8 --bytes 4 --explain");
    let expected = json!({
        "schema": 1,
        "collective": "reduce",
        "members": 8,
        "bytes": 4,
        "parameters": "Tt=0.01,Tc=0.0027,Ts=2,Tn=1.52,Td=0.6,Tm=1.3,Ta=0,To=0",
        "choice": {"degree": 3, "steps": 2, "best_seconds": 21.982e-6, "worst_seconds": 25.022e-6},
        "degrees": [
            {"degree": 1, "steps": 3, "best_seconds": 26.962e-6, "worst_seconds": 26.962e-6},
            {"degree": 3, "steps": 2, "best_seconds": 21.982e-6, "worst_seconds": 25.022e-6},
            {"degree": 7, "steps": 1, "best_seconds": 21.002e-6, "worst_seconds": 30.122e-6},
        ],
    });
    assert_eq!(explained, expected);
    let given = json("--collective reduce --members 8 --bytes 4 --explain --parameters Ts=0,Tn=0");
    assert_eq!(given["choice"]["degree"], 7);
    assert!(given["parameters"].as_str().unwrap().contains("Ts=0,Tn=0"), "{given}");
}

#[test]
fn picture_has_every_write() {
    let place = Place::with(0);
    let draw = |words: &str| {
        let outcome = place.run_words(&format!("plan --collective {words} --svg plan.svg"));
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), ""), "{}", outcome.err);
        fs::read_to_string(place.path("plan.svg")).expect("a file")
    };
    let picture = draw("allreduce --members 16 --degree 3");
    assert_eq!(picture.matches("marker-end").count(), 15 + 15);
    assert!(["\nfolded", "\ncopied", "\nhas the result"].iter().all(|name| picture.contains(name)));
    // The ring of each member, and one in the legend.
    assert_eq!(picture.matches("<circle").count(), 16 + 1);
    let picture = draw("broadcast --members 16 --root 5");
    assert_eq!(picture.matches("marker-end").count(), 15);
    assert!(picture.contains("\n5 (root)") && picture.contains("\nhas the message"));
    assert!(!picture.contains("\nfolded"));
    let picture = draw("reduce --members 16 --degree 15");
    assert_eq!(picture.matches("<circle").count(), 1 + 1);

    let outcome = place.run_words("plan --collective broadcast --members 65 --svg large.svg");
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""));
    assert!(outcome.err.contains("at most 64 members"), "{}", outcome.err);
    assert!(!place.path("large.svg").exists());
}

#[test]
fn arguments_that_make_no_sense() {
    let of_four = "--members 4 --collective";
    for (words, message) in [
        ("allreduce", "allreduce needs --degree, or --bytes"),
        ("reduce --explain", "--bytes <SIZE>"),
        ("broadcast --degree 3", "rdmc: a broadcast has no --degree"),
        ("broadcast --bytes 4 --explain", "degrees, which a broadcast does not have"),
        ("broadcast --root 4", "rdmc: root 4 is not a rank: with 4 members, ranks are 0 to 3"),
        ("allreduce --degree 3 --root 2", "at rank 0, in the order of ranks; leave out --root 2"),
        ("allreduce --degree 0", "0 is not in 1..=65535"),
        ("allreduce --bytes 4 --explain --degree 3", "cannot be used with '--degree <K>'"),
        ("allreduce --bytes 4 --explain --svg plan.svg", "cannot be used with '--svg <FILE>'"),
        ("allreduce --degree 3 --blocks 2", "cannot be used with '--blocks <K>'"),
        ("allreduce --degree 3 --algorithm chain", "cannot be used with '--algorithm <NAME>'"),
        ("allreduce --degree 3 --racks 2,2", "cannot be used with '--racks <SIZES>'"),
        ("allreduce --bytes 4 --explain --rate 1gbit", "cannot be used with '--rate <RATE>'"),
        ("allreduce --bytes 4 --explain --local", "cannot be used with '--local'"),
        ("allreduce --degree 3 --parameters Tt=1", "--bytes <SIZE>"),
        ("allreduce --bytes 4 --parameters Tx=1", "\"Tx=1\" is none of Tt, Tc,"),
        ("allreduce --bytes 4 --parameters Tt=-1", "\"-1\" is not a time for Tt"),
        ("allgather", "[possible values: broadcast, reduce, allreduce]"),
    ]
    .map(|(words, message)| (format!("{of_four} {words}"), message))
    .into_iter()
    .chain([
        ("--collective allreduce --degree 3".to_owned(), "--members <N>"),
        ("--collective broadcast --members 65537".to_owned(), "a team has at most 65536 members"),
        ("--members 4 --degree 3".to_owned(), "--collective <NAME>"),
        ("--members 4 --blocks 3 --degree 3".to_owned(), "cannot be used with '--degree <K>'"),
        ("--members 4 --blocks 3 --bytes 4".to_owned(), "<--explain|--collective <NAME>>"),
        ("--members 4 --explain --bytes 4 --parameters Tt=1".to_owned(), "--collective <NAME>"),
    ]) {
        let outcome = plan(&words);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""), "{words}");
        assert!(outcome.err.contains(message), "{words}: {}", outcome.err);
    }
}

#[cfg(feature = "switch")]
#[test]
fn switches_do_not_copy_for_teams() {
    for words in ["--collective reduce", "--degree 3", "--parameters Tt=1"] {
        let outcome = plan(&format!("--in-switch racks:4x2 {words}"));
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""), "{words}");
        assert!(outcome.err.contains("'--in-switch <TOPOLOGY>' cannot be used with"), "{words}");
    }
}

/// The page's commands, each with what stands below it, and its picture.
#[test]
fn the_page_shows_what_comes_out() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(docs.join("schedules.md")).unwrap();
    let commands: Vec<(&str, &str)> = page
        .split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix("\n$ rdmc ")?.split_once('\n'))
        .filter(|(words, _)| words.contains("--collective"))
        .collect();
    assert_eq!(commands.len(), 2);
    let place = Place::with(0);
    for (words, shown) in &commands {
        assert_eq!(place.run_words(words).out, *shown, "{words}");
    }
    let drawn = place.run_words(&format!("{} --svg plan.svg", commands[0].0));
    assert_eq!(drawn.code, Some(0), "{}", drawn.err);
    let picture = |path| fs::read_to_string(path).unwrap();
    assert!(picture(place.path("plan.svg")) == picture(docs.join("images/allreduce-16.svg")));
}
