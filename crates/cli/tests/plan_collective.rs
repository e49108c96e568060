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
4 B by the cost model: 60.0 us
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
    let expected = "{\"schema\":1,\"collective\":\"broadcast\",\"members\":2,\"root\":1,\"title\":\"broadcast: 2 members, root 1, 1 step\",\
                    \"way\":\"trees\",\"bytes\":4,\"seconds\":0.000020004,\"best_seconds\":0.000020004,\
                    \"worst_seconds\":0.000020004,\"steps\":1,\"transfers\":[{\"step\":0,\"phase\":\"broadcast\",\
                    \"source\":1,\"target\":0}]}\n";
    assert_eq!(stdout("--collective broadcast --members 2 --root 1 --bytes 4 --json"), expected);
}

/// Both sides of the library's thresholds.
#[test]
fn plan_goes_the_librarys_way() {
    let way = |operation: &str, members: u32, bytes: &str| {
        let words = format!("--collective {operation} --members {members} --bytes {bytes}");
        let json = json(&words);
        let explained = self::json(&format!("{words} --explain"));
        assert_eq!(
            [&explained["choice"]["way"], &explained["choice"]["degree"]],
            [&json["way"], &json["degree"]]
        );
        assert_eq!(explained["choice"]["steps"], json["steps"], "{words}");
        assert_eq!(explained["choice"]["worst_seconds"], json["worst_seconds"], "{words}");
        let last = json["transfers"].as_array().unwrap().last().map(|write| &write["step"]);
        let last = last.map_or(0, |step| step.as_u64().unwrap() + 1);
        assert_eq!(json["steps"], last, "{words}");
        let degree = json["degree"].as_u64().map_or(String::new(), |degree| format!(" {degree}"));
        format!("{}{degree}", json["way"].as_str().unwrap())
    };
    for (members, bytes, expected) in [
        (1, "1GiB", "exchange"),
        (2, "0", "exchange"),
        (2, "1GiB", "halving"),
        (3, "1KiB", "exchange"),
        (64, "16KiB", "exchange"),
        (64, "64KiB", "halving"),
        (64, "256KiB", "halving"),
    ] {
        assert_eq!(way("allreduce", members, bytes), expected, "{members} {bytes}");
    }
    for (members, bytes, expected) in [
        (1, "1GiB", "trees"),
        (2, "1KiB", "trees"),
        (64, "0", "trees"),
        (64, "128KiB", "circulant"),
        (2, "1GiB", "circulant"),
    ] {
        assert_eq!(way("broadcast", members, bytes), expected, "{members} {bytes}");
    }
    assert_eq!(way("reduce", 64, "1KiB"), "trees 3");
    assert_eq!(way("reduce", 64, "16MiB"), "ring");
    assert_eq!(way("reduce_scatter", 1, "4"), "exchange");
    assert_eq!(way("reduce_scatter", 5, "1MiB"), "halving");
    assert_eq!(way("scatter", 1, "4"), "trees");
    assert_eq!(way("scatter", 64, "4"), "trees");
    assert_eq!(way("gather", 8, "1MiB"), "direct");
    assert_eq!(way("gather", 64, "1MiB"), "circulant");
    let shared = "--costs Tt=0.0002,Tw=15,Mc=8";
    assert_eq!(way("allreduce", 16, &format!("4 {shared}")), "trees 3");
}

#[test]
fn exchanges_and_rings_are_shown() {
    let expected = "\
allreduce: 4 members, exchange, 2 steps
4 B by the cost model: 40.0 us
step  phase      writes
   0  exchange   0→1  1→0  2→3  3→2
   1  exchange   0→2  1→3  2→0  3→1
";
    assert_eq!(stdout("--collective allreduce --members 4 --bytes 4"), expected);
    let expected = "\
allreduce: 5 members, halving, chunks of at most 25.6 KiB, 6 steps (3 reduce-scatter, 3 all-gather)
128 KiB by the cost model: 328.7 us
step  phase           writes
   0  reduce-scatter  0→3 c3-4  1→4 c4-0  2→0 c0-1  3→1 c1-2  4→2 c2-3
   1  reduce-scatter  0→2 c2    1→3 c3    2→4 c4    3→0 c0    4→1 c1
   2  reduce-scatter  0→1 c1    1→2 c2    2→3 c3    3→4 c4    4→0 c0
   3  all-gather      0→4 c0    1→0 c1    2→1 c2    3→2 c3    4→3 c4
   4  all-gather      0→3 c0    1→4 c1    2→0 c2    3→1 c3    4→2 c4
   5  all-gather      0→2 c0-1  1→3 c1-2  2→4 c2-3  3→0 c3-4  4→1 c4-0
";
    assert_eq!(stdout("--collective allreduce --members 5 --bytes 128KiB"), expected);
    let expected = "\
allreduce: 3 members, halving, chunks of at most 128 KiB, 4 steps (2 reduce-scatter, 2 all-gather)
384 KiB by the cost model: 713.5 us (560.0 us to 866.9 us)
step  phase           writes
   0  reduce-scatter  0→2 c2    1→0 c0    2→1 c1
   1  reduce-scatter  0→1 c1    1→2 c2    2→0 c0
   2  all-gather      0→2 c0    1→0 c1    2→1 c2
   3  all-gather      0→1 c0    1→2 c1    2→0 c2
";
    assert_eq!(
        stdout("--collective allreduce --members 3 --bytes 384KiB --costs Tt=0.001,To=0.001"),
        expected
    );
    let expected = "\
reduce: 3 members, ring, 4 blocks of at most 64 KiB, 5 steps
256 KiB by the cost model: 398.0 us (348.4 us to 447.7 us)
step  phase      writes
   0  reduce     1→2 b0
   1  reduce     1→2 b1  2→0 b0
   2  reduce     1→2 b2  2→0 b1
   3  reduce     1→2 b3  2→0 b2
   4  reduce     2→0 b3
";
    assert_eq!(stdout("--collective reduce --members 3 --bytes 256KiB"), expected);
}

#[test]
fn parts_are_shown() {
    let expected = "\
reduce_scatter: 5 members, degree 2, 5 steps (2 reduce, 3 scatter)
4 B by the cost model: 106.1 us (104.1 us to 108.1 us)
step  phase      writes
   0  reduce     1→0  2→0  4→3
   1  reduce     3→0
   2  scatter    0→3 c3-4
   3  scatter    0→2 c2
   4  scatter    0→1 c1    3→4 c4
";
    assert_eq!(stdout("--collective reduce_scatter --members 5 --bytes 4 --degree 2"), expected);
    let expected = "\
reduce_scatter: 3 members, halving, chunks of at most 128 KiB, 2 steps
128 KiB by the cost model: 312.5 us (262.8 us to 362.1 us)
step  phase           writes
   0  reduce-scatter  0→2 c2    1→0 c0    2→1 c1
   1  reduce-scatter  0→1 c1    1→2 c2    2→0 c0
";
    assert_eq!(stdout("--collective reduce_scatter --members 3 --bytes 128KiB"), expected);
    let expected = "\
scatter: 6 members, root 4, 3 steps
4 B by the cost model: 60.0 us
step  phase      writes
   0  scatter    4→1 c1-3
   1  scatter    1→3 c3    4→0 c0
   2  scatter    1→2 c2    4→5 c5
";
    assert_eq!(stdout("--collective scatter --members 6 --root 4 --bytes 4"), expected);
    let expected = "\
gather: 3 members, root 1, direct, parts of 1 MiB, 2 steps
1 MiB by the cost model: 1727.7 us (1717.7 us to 1737.7 us)
step  phase      writes
   0  gather     0→1 c0
   1  gather     2→1 c2
";
    assert_eq!(stdout("--collective gather --members 3 --root 1 --bytes 1MiB"), expected);
}

/// As `rdmc plan --algorithm circulant` has them.
#[test]
fn blocks_of_a_broadcast_are_those_of_the_schedule() {
    let broadcast = json("--collective broadcast --members 6 --root 4 --bytes 1.25MiB");
    assert_eq!(
        (&broadcast["way"], &broadcast["block_bytes"]),
        (&json!("circulant"), &json!(65_536))
    );
    let schedule = json("--members 6 --root 4 --blocks 20 --algorithm circulant");
    assert_eq!(broadcast["steps"], schedule["steps"]);
    let list = |plan: &Value| -> Vec<[Value; 4]> {
        let transfers = plan["transfers"].as_array().unwrap().iter();
        let fields = ["step", "source", "target", "block"];
        transfers.map(|transfer| fields.map(|field| transfer[field].clone())).collect()
    };
    assert_eq!(list(&broadcast), list(&schedule));
    assert_eq!(list(&schedule).len(), 5 * 20);
}

#[test]
fn degree_is_kept_where_the_library_would_go_another_way() {
    let given = json("--collective reduce --members 16 --bytes 4 --degree 15 --costs Tt=0.01");
    assert_eq!((&given["degree"], &given["steps"]), (&json!(15), &json!(1)));
    assert_eq!(
        (&given["best_seconds"], &given["worst_seconds"]),
        (&json!(37.002e-6), &json!(58.282e-6))
    );
    let table = stdout("--collective allreduce --members 16 --bytes 4 --degree 3 --costs Tt=0.01");
    let expected = "\
allreduce: 16 members, degree 3, 6 steps (2 reduce, 4 broadcast)
4 B by the cost model: 65.0 us (62.0 us to 68.1 us)
";
    assert!(table.starts_with(expected), "{table}");
}

#[test]
fn ways_are_compared() {
    let explained = json("--collective reduce --members 8 --bytes 4 --explain --costs Tt=0.01");
    let line = |way: &str| {
        let us = 71.8e-6;
        json!({"way": way, "steps": 7, "seconds": us, "best_seconds": us, "worst_seconds": us, "block_bytes": 1024})
    };
    let tree = |degree, steps, [mean, best, worst]: [f64; 3]| json!({"way": "trees", "degree": degree, "steps": steps, "seconds": mean, "best_seconds": best, "worst_seconds": worst});
    let two = tree(2, 2, [23.502e-6, 21.982e-6, 25.022e-6]);
    let expected = json!({
        "schema": 1,
        "collective": "reduce",
        "members": 8,
        "bytes": 4,
        "costs": "Tt=0.01,Tc=0.0027,Ts=2,Tn=1.52,Td=0.6,Tm=1.3,Ta=0,To=0,Tw=0,Mc=1",
        "choice": two,
        "fastest": two,
        "ways": [
            two,
            tree(3, 2, [23.502e-6, 21.982e-6, 25.022e-6]),
            tree(7, 1, [25.562e-6, 21.002e-6, 30.122e-6]),
            tree(1, 3, [26.962e-6; 3]),
            line("ring"),
            line("chain"),
        ],
    });
    assert_eq!(explained, expected);
    // Parameters change what the library does.
    let given = json("--collective reduce --members 8 --bytes 4 --explain --costs Ts=0,Tn=0");
    assert_eq!((&given["choice"]["degree"], &given["fastest"]["degree"]), (&json!(7), &json!(7)));
    assert!(given["costs"].as_str().unwrap().contains("Ts=0,Tn=0"), "{given}");
    let names = |words: &str| -> Vec<String> {
        let explained = json(&format!("--collective {words} --explain"));
        let all = explained["ways"].as_array().unwrap().iter();
        all.map(|way| way["way"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        names("allreduce --members 4 --bytes 4"),
        ["exchange", "trees", "trees", "halving", "ring", "chain"]
    );
    assert_eq!(
        names("allreduce --members 6 --bytes 1GiB"),
        ["ring", "halving", "chain", "exchange", "trees", "trees"]
    );
    assert_eq!(names("broadcast --members 64 --bytes 0"), ["trees"], "there are no blocks");
    assert_eq!(names("reduce --members 3 --bytes 4"), ["trees", "trees", "ring", "chain"]);
    let table = stdout("--collective allreduce --members 64 --bytes 1GiB --explain");
    let rows = table.lines().skip(3).take_while(|line| !line.is_empty());
    assert_eq!(rows.count(), 7, "{table}");
    let expected =
        "halving         -     4 MiB     12  1801.91 ms  1691.18 ms  1912.64 ms  taken, fastest";
    assert!(table.lines().any(|line| line == expected), "{table}");
}

/// What is taken is first, and nearly the fastest.
#[test]
fn what_is_taken_is_first() {
    for operation in ["broadcast", "reduce", "allreduce", "reduce_scatter", "scatter", "gather"] {
        for members in [2, 12, 16, 24, 64, 1_000, 1_024] {
            for bytes in ["4", "1KiB", "20KB", "64KiB", "128KiB", "1MiB", "16MiB"] {
                let words = format!("--collective {operation} --members {members} --bytes {bytes}");
                let shown = json(&format!("{words} --explain"));
                assert_eq!(shown["choice"], shown["ways"][0], "{words}");
                let seconds = |of: &str| shown[of]["seconds"].as_f64().unwrap();
                assert!(seconds("choice") <= 1.15 * seconds("fastest"), "{words}: {shown}");
            }
        }
    }
}

/// What pictures are drawn from.
#[test]
fn json_has_every_write_and_a_title() {
    let writes = |words: &str| {
        let plan = json(&format!("--collective {words}"));
        assert!(plan["title"].as_str().unwrap().contains("step"), "{plan}");
        let writes = plan["transfers"].as_array().unwrap();
        let folds = writes
            .iter()
            .filter(|write| write["phase"] != "broadcast" && write["phase"] != "all-gather");
        (folds.count(), writes.len())
    };
    assert_eq!(writes("allreduce --members 16 --degree 3"), (15, 15 + 15));
    assert_eq!(writes("broadcast --members 16 --root 5"), (0, 15));
    assert_eq!(writes("reduce --members 16 --degree 15"), (15, 15));
    assert_eq!(writes("allreduce --members 8 --bytes 4"), (3 * 8, 3 * 8));
    assert_eq!(writes("allreduce --members 4 --bytes 1MiB"), (2 * 4, 2 * 2 * 4));
    assert_eq!(writes("broadcast --members 5 --bytes 1MiB"), (0, 16 * 4));
    assert_eq!(writes("reduce --members 5 --bytes 1MiB"), (16 * 4, 16 * 4));
}

#[test]
fn arguments_that_make_no_sense() {
    let of_four = "--members 4 --collective";
    for (words, message) in [
        ("allreduce", "allreduce needs --degree, or --bytes"),
        ("reduce --explain", "--bytes <SIZE>"),
        ("broadcast --degree 3", "rdmc: a broadcast has no --degree"),
        ("gather --degree 3", "rdmc: a gather has no --degree"),
        ("reduce_scatter --degree 3 --root 2", "leave out --root 2"),
        ("broadcast --root 4", "rdmc: root 4 is not a rank: with 4 members, ranks are 0 to 3"),
        ("allreduce --degree 3 --root 2", "at rank 0, in the order of ranks; leave out --root 2"),
        ("allreduce --degree 0", "0 is not in 1..=65535"),
        ("allreduce --bytes 4 --explain --degree 3", "cannot be used with '--degree <K>'"),
        ("allreduce --degree 3 --blocks 2", "cannot be used with '--blocks <K>'"),
        ("allreduce --degree 3 --algorithm chain", "cannot be used with '--algorithm <NAME>'"),
        ("allreduce --degree 3 --racks 2,2", "cannot be used with '--racks <SIZES>'"),
        ("allreduce --bytes 4 --explain --rate 1gbit", "cannot be used with '--rate <RATE>'"),
        ("allreduce --bytes 4 --explain --local", "cannot be used with '--local'"),
        ("allreduce --degree 3 --costs Tt=1", "--bytes <SIZE>"),
        ("allreduce --bytes 4 --costs Tx=1", "\"Tx=1\" is none of Tt, Tc,"),
        ("allreduce --bytes 4 --costs Tt=-1", "\"-1\" is not a time for Tt"),
        ("allgather", "[possible values: broadcast, reduce, allreduce, reduce_scatter, scatter, gather]"),
    ]
    .map(|(words, message)| (format!("{of_four} {words}"), message))
    .into_iter()
    .chain([
        ("--collective allreduce --degree 3".to_owned(), "--members <N>"),
        ("--collective broadcast --members 65537".to_owned(), "a team has at most 65536 members"),
        (
            "--collective broadcast --members 65536 --bytes 1GiB".to_owned(),
            "67107840 writes, and rdmc plan shows at most 50000000; use fewer --members or --bytes, or --explain",
        ),
        ("--members 4 --degree 3".to_owned(), "--collective <NAME>"),
        ("--members 4 --blocks 3 --degree 3".to_owned(), "cannot be used with '--degree <K>'"),
        ("--members 4 --blocks 3 --bytes 4".to_owned(), "<--explain|--collective <NAME>>"),
        ("--members 4 --explain --bytes 4 --costs Tt=1".to_owned(), "--collective <NAME>"),
    ]) {
        let outcome = plan(&words);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""), "{words}");
        assert!(outcome.err.contains(message), "{words}: {}", outcome.err);
    }
}

#[cfg(feature = "switch")]
#[test]
fn switches_do_not_copy_for_teams() {
    for words in ["--collective reduce", "--degree 3", "--costs Tt=1"] {
        let outcome = plan(&format!("--in-switch racks:4x2 {words}"));
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""), "{words}");
        assert!(outcome.err.contains("'--in-switch <TOPOLOGY>' cannot be used with"), "{words}");
    }
}

/// The page's commands, each with what stands below it.
#[test]
fn the_page_shows_what_comes_out() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals");
    let page = fs::read_to_string(docs.join("schedules.md")).unwrap();
    let commands: Vec<(&str, &str)> = page
        .split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix("\n$ rdmc ")?.split_once('\n'))
        .filter(|(words, _)| words.contains("--collective"))
        .collect();
    assert_eq!(commands.len(), 3);
    let place = Place::with(0);
    for (words, shown) in &commands {
        assert_eq!(place.run_words(words).out, *shown, "{words}");
    }
}
