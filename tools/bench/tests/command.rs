//! The program itself, with loads so small that nothing is measured.

use std::{
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

pub fn bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdmc-bench"))
        .args(arguments.split_whitespace())
        .output()
        .expect("the program starts")
}

pub fn json_of(output: &Output) -> serde_json::Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Members as processes, every algorithm; each checks what it received.
#[test]
fn processes_deliver_by_every_algorithm() {
    let arguments = "local --members 2,5 --bytes 300KiB --blocks 7KiB --repeats 1 --auto --json";
    let json = json_of(&bench(arguments));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 10);
    let is_auto =
        |row: &&serde_json::Value| row["algorithm"].as_str().unwrap().starts_with("auto: ");
    assert_eq!(rows.iter().filter(is_auto).count(), 2);
    assert!(rows.iter().all(|row| row["time_s"].as_f64().unwrap() >= 0.0));
    assert!(json["machine"]["cores"].as_u64().unwrap() > 0);
}

#[test]
fn each_run_is_measured_with_and_without_comparing() {
    let arguments = "local --members 3 --bytes 300KiB --blocks 7KiB --algorithms chain --repeats 1";
    let json = json_of(&bench(&format!("{arguments} --verify false,true --json")));
    let verify: Vec<_> =
        json["rows"].as_array().unwrap().iter().map(|row| &row["verify"]).collect();
    assert_eq!(verify, [false, true]);
}

/// Also in the middle of a transfer.
#[test]
fn members_end_when_their_program_is_killed() {
    let arguments = "overlap --members 3 --repeats 1000";
    let mut program = Command::new(env!("CARGO_BIN_EXE_rdmc-bench"))
        .args(arguments.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut members = Vec::new();
    while members.len() < 3 {
        assert!(Instant::now() < deadline, "there are {members:?} only");
        members = children(program.id());
    }
    program.kill().expect("it is our child");
    program.wait().expect("it ends");
    while let Some(member) = members.iter().find(|&&member| is_member(member)) {
        assert!(Instant::now() < deadline, "process {member} has outlived its program");
        thread::sleep(Duration::from_millis(10));
    }
}

fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|number| number.parse().expect("a process")).collect()
}

fn is_member(process: u32) -> bool {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    words.split(|&byte| byte == 0).any(|word| word == b"member")
}

#[test]
fn members_are_traced_in_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.json");
    let trace = format!("--trace {}", file.display());
    json_of(&bench(&format!("modes --members 3 --less 100 --repeats 1 --json {trace}")));
    let events: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let members: std::collections::BTreeSet<_> = events
        .iter()
        .filter(|event| event["cat"] == "receive")
        .map(|event| event["args"]["member"].as_u64())
        .collect();
    assert_eq!(members, [Some(1), Some(2)].into());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "parts are left behind");
    let refused = bench(&format!("overhead --blocks 10 --repeats 1 {trace}"));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("nothing to trace"));
}

/// The summary of a trace agrees with what was sent.
#[test]
fn traces_are_summed_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let trace = path("trace.json");
    let arguments = "local --members 3 --bytes 1MiB --blocks 100KiB --repeats 1 --json --trace";
    json_of(&bench(&format!("{arguments} {trace}")));
    let list = json_of(&bench(&format!("trace-summary {trace} --list --json")));
    let groups = list["rows"].as_array().unwrap();
    // All 9 algorithms, each after a message that warms up.
    assert_eq!(groups.len(), 9 * 2);
    let json = json_of(&bench(&format!(
        "trace-summary {trace} --group 2 --message 1 --rate 1gbit --json"
    )));
    let rows = |name: &str| json[name].as_array().unwrap().clone();
    let (mut sent, mut came) = (0, 0);
    for link in rows("links") {
        let blocks = link["blocks"].as_u64().unwrap();
        *if link["direction"] == "out" { &mut sent } else { &mut came } += blocks;
        let share = |name: &str| link[name].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&share("busy")), "{link}");
        assert!(share("two_or_more") <= share("busy"), "{link}");
    }
    assert_eq!((sent, came), (2 * 11, 2 * 11));
    assert_eq!(rows("members").len(), 3);
    for wait in rows("rows") {
        let (total, longest) =
            (wait["total_ms"].as_f64().unwrap(), wait["longest_ms"].as_f64().unwrap());
        assert!(wait["times"].as_u64().unwrap() > 0 && longest <= total, "{wait}");
    }
    // 100 KiB at 1 Gbit/s.
    for block in rows("targets") {
        let (ms, times) =
            (block["max_ms"].as_f64().unwrap(), block["max_block_times"].as_f64().unwrap());
        assert!((ms / times / 0.8192 - 1.0).abs() < 0.01, "{block}");
    }
    assert_eq!(rows("transfers").len(), 2 * 11);
}

#[test]
fn files_without_a_summary_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.json");
    for (text, expected) in [
        ("[\n\n]\n", "no blocks"),
        ("hello\n", "line 1 is not an event of an rdmc trace"),
        ("[\n{\"ph\":\"M\"}\n]\n", "no blocks"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = bench(&format!("trace-summary {}", file.display()));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(errors.contains(expected), "{text}: {errors}");
    }
    let output = bench("trace-summary missing.json");
    assert!(String::from_utf8_lossy(&output.stderr).contains("missing.json: No such file"));
}

#[test]
fn a_breakdown_has_every_member_and_every_transfer() {
    let json =
        json_of(&bench("breakdown --members 3 --bytes 1MiB --block 100KiB --repeats 2 --json"));
    let members = json["members"].as_array().unwrap();
    assert_eq!(members.len(), 3);
    for member in members {
        let of = |name: &str| member[name].as_f64().unwrap();
        let parts = ["remote_setup_us", "remote_transfers_us", "local_setup_us", "transfers_us"];
        let sum: f64 = parts.iter().chain(&["waiting_us", "copying_us"]).map(|name| of(name)).sum();
        assert!((sum - of("total_us")).abs() < 0.01, "{member}");
        assert!((0.0..1.0).contains(&of("overhead")), "{member}");
    }
    let transfers = json["transfers"].as_array().unwrap();
    assert_eq!(transfers.len(), 2 * 11);
    for transfer in transfers {
        assert!(transfer["end_us"].as_f64() >= transfer["start_us"].as_f64(), "{transfer}");
    }
}

/// Blocks may overtake the announcement of their message.
#[test]
fn a_breakdown_over_libfabric_has_no_gaps() {
    if !has_provider("ofi-tcp") {
        return;
    }
    let arguments = "breakdown --fabric ofi-tcp --bytes 1MiB --block 256KiB --repeats 5 --json";
    let json = json_of(&bench(arguments));
    assert_eq!(json["members"].as_array().unwrap().len(), 4);
}

#[test]
fn groups_of_every_length_are_verified() {
    let json = json_of(&bench("verify --members 3 --bytes 0,1,7KiB,20001 --block 7KiB --json"));
    // All of them relayed by 9 algorithms, and the 3 small ones also written to all receivers.
    assert_eq!(json["rows"].as_array().unwrap().len(), 9 * 4 + 3);
}

/// All other members name the member; one that stops is found by its silence.
#[test]
fn faults_of_a_member_are_reported_by_the_others() {
    for fault in ["kill", "stop"] {
        // Long enough that it is still under way when the victim's callbacks have seen half of it.
        let json =
            json_of(&bench(&format!("lose --members 5 --fault {fault} --bytes 32MiB --json")));
        assert_eq!(json["rows"].as_array().unwrap().len(), 2, "{fault}");
    }
}

#[test]
fn the_cost_per_block_is_measured() {
    let json = json_of(&bench("overhead --members 4 --blocks 500 --repeats 1 --json"));
    assert!(json["rows"][0]["ns_per_block_and_member"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_simulated_group_takes_exactly_its_steps() {
    for arguments in [
        "--members 64 --blocks 20",
        "--members 100 --blocks 7 --algorithm chain",
        "--members 1 --blocks 3",
    ] {
        let json = json_of(&bench(&format!("sim {arguments} --json")));
        assert_eq!(json["rows"][0]["block_times"].as_f64(), json["rows"][0]["steps"].as_f64());
    }
}

/// A late relay costs nothing where the network relays, and much where its program does.
#[test]
fn offload_is_compared_with_relaying() {
    let arguments = "offload --members 5 --blocks 60 --delays 16 --probabilities 0.1 --repeats 3";
    let json = json_of(&bench(&format!("{arguments} --json")));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let of_steps = |what: &str| row[what].as_f64().unwrap();
        let is_late = of_steps("delay_block_times") > 0.0;
        assert_eq!(of_steps("network_of_steps"), 1.0, "{row}");
        assert_eq!(of_steps("program_of_steps") > 1.2, is_late, "{row}");
    }
}

fn has_provider(name: &str) -> bool {
    let found = rdmc::discovery::discover();
    let has = found.is_ok_and(|all| all.devices.iter().any(|one| one.fabric.name() == name));
    if !has {
        eprintln!("SKIPPED: needs libfabric with the provider {name}");
    }
    has
}

/// Programs and network, alternating, over the fabric that offloads in software.
#[test]
fn offload_is_measured_over_a_real_fabric() {
    if !has_provider("sockets") {
        return;
    }
    let arguments = "offload --fabric sockets --members 4 --blocks 10 --block 1KiB --delays-ms 2 \
                     --probabilities 0.5 --repeats 1 --json";
    let json = json_of(&bench(arguments));
    let rows = json["rows"].as_array().unwrap();
    // Two completion modes and two algorithms, each without delays and with.
    assert_eq!(rows.len(), 2 * 2 * 2);
    for row in rows {
        let value = |what: &str| row[what].as_f64().unwrap();
        assert!(value("relayed_by_program_ms") > 0.0 && value("relayed_by_network_ms") > 0.0);
        if value("delay_ms") == 0.0 {
            assert_eq!((value("program_of_undelayed"), value("network_of_undelayed")), (1.0, 1.0));
        }
    }
}

#[test]
fn offloaded_groups_are_verified() {
    if !has_provider("sockets") {
        return;
    }
    let arguments = "verify --fabric sockets --offload --members 3 --bytes 0,1,20001 --block 7KiB";
    let json = json_of(&bench(&format!("{arguments} --json")));
    assert_eq!(json["rows"].as_array().unwrap().len(), 9 * 3 + 2);
}

/// Otherwise it would be a figure of relaying by programs.
#[test]
fn offload_that_is_unavailable_is_an_error() {
    for arguments in ["verify --offload --members 3", "offload --fabric tcp"] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("no offload: this fabric does not"), "{arguments}: {errors}");
    }
}

#[test]
fn a_simulated_run_is_replayed_by_its_seed() {
    let run = |seed: u32| {
        let arguments =
            format!("sim --members 20 --blocks 20 --jitter 0.5 --latency 0.1 --seed {seed} --json");
        json_of(&bench(&arguments))["rows"][0]["block_times"].clone()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// With root: over shaped links between network namespaces. Without: an error, and `None`.
pub fn rows_in_lab(arguments: &str) -> Option<Vec<serde_json::Value>> {
    let output = bench(&format!("{arguments} --json"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("need root") || errors.contains("iproute2") || errors.contains("netns") {
        println!("skipped: {errors}");
        assert!(!output.status.success());
        return None;
    }
    Some(json_of(&output)["rows"].as_array().unwrap().clone())
}

/// Counted, not timed: uplinks carry what schedules determine, and acknowledgements.
#[test]
fn rack_algorithms_cross_each_uplink_once() {
    let arguments =
        "racks --repeats 1 --members 8 --racks 2 --rate 200mbit --bytes 1MiB --layouts scattered";
    let Some(rows) = rows_in_lab(arguments) else { return };
    assert_eq!(rows.len(), 6);
    for row in rows {
        let value = |name: &str| row[name].as_f64().unwrap();
        let (crossed, scheduled) = (value("busiest_uplink"), value("scheduled"));
        assert!((crossed / scheduled - 1.0).abs() < 0.2, "{row}");
        match row["algorithm"].as_str().unwrap() {
            "chain" => assert!(scheduled > 3.5, "{row}"),
            "binomial-pipeline" => assert!(scheduled > 1.2, "{row}"),
            _ => assert_eq!(scheduled, 1.0, "{row}"),
        }
    }
}

#[test]
fn slow_links_and_members_are_measured() {
    let arguments = "robust --repeats 1 --networks links --members 4 --rate 400mbit --bytes 1MiB";
    let Some(rows) = rows_in_lab(arguments) else { return };
    let disturbances: Vec<_> =
        rows.iter().map(|row| row["disturbance"].as_str().unwrap()).collect();
    let each = [
        "none",
        "link 2-3 at 1/2",
        "member 3 at 1/2",
        "process 3 late once by 16 blocks",
        "process 3 late once by 128 blocks",
    ];
    assert_eq!(disturbances, [each, each].concat());
    assert!(rows[0]["slack_steps"].as_f64().unwrap() > 0.0);
}

/// The same for measurements of `rdmc push`, whose program other tests have built.
fn rows_of_pushes(arguments: &str) -> Option<Vec<serde_json::Value>> {
    let rdmc = std::path::Path::new(env!("CARGO_BIN_EXE_rdmc-bench")).with_file_name("rdmc");
    if !rdmc.is_file() {
        println!("SKIPPED: needs rdmc: cargo build -p rdmc-cli");
        return None;
    }
    rows_in_lab(arguments)
}

#[test]
fn pushes_survive_faults() {
    let arguments =
        "chaos --rounds 2 --members 4 --bytes 1MiB --faults kill --failure-deadline 4 --seed 3";
    let Some(rows) = rows_of_pushes(arguments) else { return };
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["fault"], &rows[0]["rounds"]), (&"kill".into(), &2.into()));
}

#[test]
fn fetches_survive_kills() {
    let arguments = "chaos-fetch --rounds 4 --members 4 --bytes 1MiB --seed 5";
    let Some(rows) = rows_of_pushes(arguments) else { return };
    let killed: Vec<&str> = rows.iter().map(|row| row["killed"].as_str().unwrap()).collect();
    assert_eq!(killed, ["host", "one-server", "server", "two-hosts"]);
    assert!(rows.iter().all(|row| row["rounds"] == 1 && row["fetches"].as_u64() >= Some(2)));
}

#[test]
fn pushes_survive_floods() {
    let arguments = "flood --receivers 2 --bytes 1MiB --repeats 1 --kinds silent,garbage";
    let Some(rows) = rows_of_pushes(arguments) else { return };
    let strangers: Vec<_> = rows.iter().map(|row| row["strangers"].as_str().unwrap()).collect();
    assert_eq!(strangers, ["none", "silent", "garbage"]);
    assert!(rows.iter().all(|row| row["of_undisturbed"].as_f64().unwrap() > 0.0));
    assert!(rows[1]["connections_per_s"].as_f64().unwrap() > 0.0, "nobody came");
}

/// In virtual time, where the paper's calculations can be met exactly.
#[test]
fn the_pipeline_is_as_robust_as_in_the_paper() {
    let arguments = "robust --networks virtual --members 8 --blocks 120 --repeats 1 --json";
    let json = json_of(&bench(arguments));
    let row = |disturbance: &str, algorithm: &str| {
        let rows = json["rows"].as_array().unwrap();
        let mut found = rows.iter().filter(|row| {
            row["algorithm"] == algorithm && row["disturbance"].as_str() == Some(disturbance)
        });
        found.next().unwrap_or_else(|| panic!("{disturbance} {algorithm}")).clone()
    };
    let value = |row: &serde_json::Value, name: &str| row[name].as_f64().unwrap();
    let none = row("none", "binomial-pipeline");
    // 2(1 - (l-1)/(n-2)) for 8 members.
    assert!((value(&none, "slack_steps") - 4.0 / 3.0).abs() < 1e-3, "{none}");
    for algorithm in ["binomial-pipeline", "chain"] {
        let link = row("one link at 1/2", algorithm);
        let (left, bound) = (value(&link, "of_undisturbed"), value(&link, "expected"));
        assert!(left > 0.97 * bound, "{link}");
    }
    let late = row("one program late once by 2.5 blocks", "chain");
    assert!(value(&late, "of_undisturbed") >= value(&late, "expected") - 1e-3, "{late}");
}

#[test]
fn shaped_links_need_root_and_carry_messages() {
    let arguments = "shaped --repeats 1 --members 2,6 --rate 200 --bytes 1MiB --blocks 64KiB --algorithms \
                     chain,nested-pipelines";
    let Some(rows) = rows_in_lab(arguments) else { return };
    assert_eq!(rows.len(), 2 * 2);
    for row in rows {
        let of_rate = row["of_rate"].as_f64().unwrap();
        assert!(of_rate > 0.0 && of_rate < 1.5, "the links are not shaped: {row}");
        assert!(row["mean_s"].as_f64().unwrap() > 0.0 && row["deviation_s"].is_null(), "{row}");
        assert!(row["of_one_copy"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn block_sizes_are_compared() {
    let arguments = "block-sizes --repeats 1 --members 3 --rate 200mbit --bytes 16KiB,256KiB --blocks \
                     16KiB,64KiB,1MiB";
    let Some(rows) = rows_in_lab(arguments) else { return };
    let blocks: Vec<_> = rows.iter().map(|row| row["blocks"].as_u64().unwrap()).collect();
    assert_eq!(blocks, [1, 16, 4]);
}

#[test]
fn reports_are_printed_as_markdown() {
    let output = bench("sim --members 4 --blocks 3 --markdown");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().any(|line| line.starts_with("|---|") || line.starts_with("|--:|")),
        "{text}"
    );
}

#[test]
fn invalid_arguments_are_refused() {
    for arguments in [
        "local --blocks 0",
        "local --members 1",
        "overlap --rate 500",
        "overlapping --members 2 --senders half",
        "sim --algorithm fast",
        "offload --members 1",
        "offload --delays-ms 1",
        "offload --fabric sockets --delays 4",
        "shaped --rate 0",
        "racks --racks 1",
        "racks --rate fast",
        "robust --members 3",
        "overlapping --oversubscription 0",
        "wide-area --loss 51",
        "block-sizes --blocks 0",
        "store --members 3",
        "sim --json --markdown",
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
    }
}

/// A small part of a figure: the same whenever it is simulated.
#[test]
fn multicast_in_the_switch_is_simulated() {
    let run = || json_of(&bench("in-switch fig4 --part 3 --json"));
    let json = run();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 14 * 3);
    assert!(rows.iter().all(|row| row["latency_us"].as_f64().unwrap() > 2.0));
    assert_eq!(json, run());
}
