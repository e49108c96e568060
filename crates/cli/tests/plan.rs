//! `rdmc plan` as it is run.

use std::{
    collections::HashMap,
    io::Read,
    process::{Command, Output, Stdio},
};

fn rdmc(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmc"));
    command.args(arguments.split_whitespace());
    command
}

fn run(arguments: &str) -> Output {
    rdmc(arguments).output().expect("rdmc runs")
}

fn stdout(arguments: &str) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments}: {output:?}");
    assert!(output.stderr.is_empty(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Exit code and standard error of a command that prints nothing on standard output.
fn failure(arguments: &str) -> (Option<i32>, String) {
    let output = run(arguments);
    assert!(output.stdout.is_empty(), "{arguments}: {output:?}");
    (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
}

#[test]
fn eight_members_and_three_blocks() {
    // DSN figure 3, middle and right.
    let expected = "\
binomial-pipeline: 8 members, 3 blocks, 5 steps (lower bound 5)
step  transfers
   0  0→1 b0
   1  0→2 b1  1→3 b0
   2  0→4 b2  1→5 b0  2→6 b1  3→7 b0
   3  0→1 b2  2→3 b1  3→2 b0  4→5 b2  5→4 b0  6→7 b1  7→6 b0
   4  0→2 b2  1→3 b2  3→1 b1  4→6 b2  5→7 b2  6→4 b1  7→5 b1
";
    assert_eq!(stdout("plan --members 8 --blocks 3"), expected);
}

#[test]
fn copies_of_switches_are_distinguished_from_steps() {
    let table = stdout("plan --members 4 --blocks 2 --algorithm in-switch");
    let expected = "\
in-switch: 4 members, 2 blocks, 6 steps (lower bound 3); where switches copy, 2 block times at the root
step  transfers
   0  0→1 b0
";
    assert!(table.starts_with(expected), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout("plan --members 4 --blocks 2 --algorithm in-switch --json"))
            .unwrap();
    assert_eq!((&json["steps"], &json["block_times_with_copies"]), (&6.into(), &2.into()));
    let explained = stdout("plan --members 4 --explain --bytes 1MiB --algorithm in-switch");
    assert!(
        explained.contains("Steps of in-switch are block times on the root's link"),
        "{explained}"
    );
}

#[test]
fn columns_stay_aligned() {
    let expected = "\
chain: 3 members, 11 blocks, 12 steps (lower bound 12)
step  transfers
   0  2→0 b0
   1  0→1 b0   2→0 b1
";
    let table = stdout("plan --members 3 --blocks 11 --algorithm chain --root 2");
    assert!(table.starts_with(expected), "{table}");
    assert!(table.contains("\n  10  0→1 b9   2→0 b10\n  11  0→1 b10\n"), "{table}");
}

#[test]
fn idle_steps_have_their_line() {
    let table = stdout("plan --members 10 --blocks 3 --algorithm nested-pipelines --racks 4,4,2");
    assert!(table.contains("\n   8  -\n"), "{table}");
    assert_eq!(table.lines().count(), 2 + 12, "{table}");
}

#[test]
fn an_empty_schedule_is_a_headline() {
    let alone = "binomial-pipeline: 1 member, 1 block, 0 steps (lower bound 0)\n";
    assert_eq!(stdout("plan --members 1 --blocks 1"), alone);
    assert_eq!(stdout("plan --members 2 --blocks 0").lines().count(), 1);
}

/// Replays the JSON: every member gets each block once, from a member that had it before the step.
fn assert_delivers(arguments: &str, root: u64) {
    let json: serde_json::Value = serde_json::from_str(&stdout(arguments)).expect("JSON");
    let field = |value: &serde_json::Value, name: &str| value[name].as_u64().expect("a number");
    let (members, blocks, steps) =
        (field(&json, "members"), field(&json, "blocks"), field(&json, "steps"));
    let mut got: HashMap<(u64, u64), u64> = HashMap::new();
    let mut before = 0;
    for transfer in json["transfers"].as_array().expect("an array") {
        let (step, source) = (field(transfer, "step"), field(transfer, "source"));
        let (target, block) = (field(transfer, "target"), field(transfer, "block"));
        assert!(before <= step && step < steps, "{arguments}: {transfer}");
        assert!(
            source == root || got.get(&(source, block)).is_some_and(|&at| at < step),
            "{arguments}: {transfer}"
        );
        assert!(
            target != root && got.insert((target, block), step).is_none(),
            "{arguments}: {transfer}"
        );
        before = step;
    }
    assert_eq!(got.len() as u64, (members - 1) * blocks, "{arguments}");
    assert_eq!(steps, before + 1, "{arguments}");
}

#[test]
fn transfers_in_json_deliver_every_block() {
    for algorithm in [
        "sequential",
        "chain",
        "binomial-tree",
        "binomial-pipeline",
        "circulant",
        "chain-of-racks",
        "nested-pipelines",
        "racks-chain",
        "racks-pipeline",
    ] {
        let rest = format!("--algorithm {algorithm} --racks 1,5,2,4 --json");
        assert_delivers(&format!("plan --members 12 --blocks 9 --root 0 {rest}"), 0);
        assert_delivers(&format!("plan --members 12 --blocks 1 --root 7 {rest}"), 7);
    }
}

#[test]
fn json_has_the_fields_in_order() {
    let expected = "{\"schema\":1,\"members\":2,\"blocks\":1,\"algorithm\":\"binomial-pipeline\",\"root\":0,\
                    \"title\":\"binomial-pipeline: 2 members, 1 block, 1 step (lower bound 1)\",\"steps\":1,\
                    \"transfers\":[{\"step\":0,\"source\":0,\"target\":1,\"block\":0}]}\n";
    assert_eq!(stdout("plan --members 2 --blocks 1 --json"), expected);
}

#[test]
fn invalid_arguments_are_refused() {
    let cases = [
        ("plan --members 0 --blocks 3", "0 is not in 1..=1048576"),
        ("plan --members 1048577 --blocks 3", "1048577 is not in 1..=1048576"),
        ("plan --members 4 --blocks -1", "unexpected argument '-1'"),
        ("plan --members 4 --blocks 4294967296", "4294967296 is not in 0..=4294967295"),
        (
            "plan --members 4 --blocks 3 --root 4",
            "rdmc: root 4 is not a rank: with 4 members, ranks are 0 to 3",
        ),
        ("plan --members 4 --blocks 3 --racks 2,3", "rdmc: --racks has 5 members and the group 4"),
        ("plan --members 4 --blocks 3 --racks 2,x", "invalid value 'x' for '--racks"),
        ("plan --members 4 --blocks 3 --algorithm chain-of-racks", "add for example --racks 2,2"),
        ("plan --members 1000000 --blocks 51", "at most 50000000; use fewer"),
        ("plan --blocks 3", "--members <N>"),
    ];
    for (arguments, message) in cases {
        let (code, stderr) = failure(arguments);
        assert_eq!(code, Some(2), "{arguments}: {stderr}");
        assert!(stderr.contains(message), "{arguments}: {stderr}");
    }
}

#[test]
fn an_unknown_algorithm_lists_the_valid_ones() {
    let (code, stderr) = failure("plan --members 4 --blocks 3 --algorithm ring");
    assert_eq!(code, Some(2));
    for name in [
        "sequential",
        "chain",
        "binomial-tree",
        "binomial-pipeline",
        "circulant",
        "chain-of-racks",
        "nested-pipelines",
        "racks-chain",
        "racks-pipeline",
    ] {
        assert!(stderr.contains(name), "{stderr}");
    }
}

/// As in `rdmc plan … | head`: the reader closes the pipe after a few lines.
#[test]
fn a_closed_output_pipe_is_no_error() {
    for format in ["", "--json"] {
        let mut child = rdmc(&format!("plan --members 1000 --blocks 5000 {format}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rdmc runs");
        let mut some = [0; 100];
        child.stdout.take().expect("a pipe").read_exact(&mut some).expect("some output");
        let output = child.wait_with_output().expect("rdmc ends");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn what_auto_picks_is_explained() {
    let text = stdout("plan --explain --members 16 --bytes 8MiB --rate 250mbit");
    assert!(
        text.starts_with(
            "8 MiB to 16 members, links of 250mbit: binomial-pipeline, blocks of 16 KiB\n"
        ),
        "{text}"
    );
    for other in ["chain", "binomial-tree", "sequential"] {
        assert!(text.contains(other), "{text}");
    }
    let json = stdout("plan --explain --members 16 --bytes 8MiB --rate 250mbit --json");
    let explained: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(explained["choice"]["block_bytes"], 16 << 10);
    assert_eq!(explained["choice"], explained["algorithms"][0]);
    assert_eq!(explained["choice"]["steps"], explained["choice"]["lower_bound_steps"]);
    // The slowest link makes the smallest blocks; a chain that is asked for is kept.
    let bursts = "plan --explain --members 16 --bytes 8MiB --rate 250mbit --burst 64KiB --json";
    let explained: serde_json::Value = serde_json::from_str(&stdout(bursts)).unwrap();
    assert_eq!(explained["choice"]["algorithm"], "chain");

    let chain = "plan --explain --members 4 --bytes 1GiB --rate 100gbit --algorithm chain --json";
    let explained: serde_json::Value = serde_json::from_str(&stdout(chain)).unwrap();
    assert_eq!(explained["choice"]["algorithm"], "chain");
    assert_eq!(explained["algorithms"].as_array().unwrap().len(), 1);
    assert!(explained["choice"]["block_bytes"].as_u64() > Some(256 << 10));
}

#[test]
fn racks_are_explained() {
    let explained = |arguments: &str| -> serde_json::Value {
        let rest = "--rate 1gbit --bytes 1GiB --json";
        serde_json::from_str(&stdout(&format!("plan --explain {arguments} {rest}"))).unwrap()
    };
    let racks = explained("--racks 4,4,4,4");
    assert_eq!((&racks["members"], &racks["oversubscription"]), (&16.into(), &4.0.into()));
    assert_eq!(racks["choice"]["algorithm"], "racks-pipeline");
    assert!(racks["choice"]["of_rate"].as_f64() > Some(0.95), "{racks}");
    assert_eq!(racks["algorithms"].as_array().unwrap().len(), 6);
    let free = explained("--racks 4,4,4,4 --oversubscription 1");
    assert_eq!(free["choice"], explained("--members 16")["choice"]);
    let asked = explained("--racks 8,8,5 --algorithm racks-chain");
    assert_eq!(asked["choice"]["algorithm"], "racks-chain");
}

/// The number of members is that of the racks.
#[test]
fn racks_have_the_members() {
    let plan = "plan --racks 8,8,5 --blocks 40 --algorithm racks-pipeline --json";
    let plan: serde_json::Value = serde_json::from_str(&stdout(plan)).unwrap();
    assert_eq!((&plan["members"], &plan["steps"]), (&21.into(), &52.into()));
    let rack = |rank: &serde_json::Value| rank.as_u64().unwrap() / 8;
    let transfers = plan["transfers"].as_array().unwrap();
    let crosses = |one: &&serde_json::Value| rack(&one["source"]) != rack(&one["target"]);
    assert_eq!((transfers.len(), transfers.iter().filter(crosses).count()), (20 * 40, 2 * 40));
    let (code, error) = failure("plan --racks 0 --blocks 3");
    assert!(code == Some(2) && error.contains("--racks has 0 members"), "{error}");
}

#[test]
fn an_explanation_needs_a_length() {
    for (arguments, expected) in [
        ("plan --explain --members 4", "--bytes"),
        ("plan --explain --members 4 --bytes 1MiB --blocks 3", "--blocks"),
        ("plan --explain --members 4 --bytes 1MiB --algorithm nested-pipelines", "racks"),
        ("plan --explain --members 4 --bytes 1MiB --rate fast", "250mbit"),
        ("plan --explain --racks 2,2 --bytes 1MiB --oversubscription 0", "1 to 1000"),
        ("plan --members 4 --blocks 3 --rate 1gbit", "--explain"),
    ] {
        let (code, error) = failure(arguments);
        assert_eq!(code, Some(2), "{arguments}: {error}");
        assert!(error.contains(expected), "{arguments}: {error}");
    }
}

#[test]
fn hosts_that_fetch_are_done_a_copys_time_after_they_came() {
    // docs/decisions/fetch.md
    let headline = |arguments: &str| {
        let plan = stdout(&format!("plan --fetch {arguments}"));
        plan.lines().next().expect("a headline").to_owned()
    };
    assert_eq!(
        headline("every=10 --members 1001 --blocks 1000 --share 1000"),
        "fetch: 1000 hosts, 1000 blocks; done after 1.000 times one copy, at worst 1.000; 1.00 copies leave the server"
    );
    assert_eq!(
        headline("together --members 41 --blocks 8192 --share 8192"),
        "fetch: 40 hosts, 8192 blocks; done after 1.002 times one copy, at worst 1.005; 1.00 copies leave the server"
    );
    let left = headline("poisson=4 --members 1001 --blocks 1000");
    let stayed = headline("poisson=4 --members 1001 --blocks 1000 --share 1000");
    assert!(left.ends_with("at worst 1.001; 243.53 copies leave the server"), "{left}");
    assert!(stayed.ends_with("at worst 1.001; 4.00 copies leave the server"), "{stayed}");
    let table = stdout("plan --fetch together --members 3 --blocks 4");
    assert!(
        table.ends_with("   1     0     4         0.75  0\n   2     0     5         0.00  1, 0\n"),
        "{table}"
    );
    let json = stdout("plan --fetch together --members 3 --blocks 4 --json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["root_sent_blocks"], 5);
    assert_eq!(json["hosts"][1]["senders"], serde_json::json!([1, 0]));
    let (code, words) = failure("plan --fetch together --members 1 --blocks 4");
    assert_eq!(code, Some(2));
    assert!(words.contains("2 to 10000 --members"), "{words}");
}
