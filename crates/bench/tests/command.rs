//! The program itself, with loads so small that nothing is measured.

use std::{
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

fn bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdmc-bench"))
        .args(arguments.split_whitespace())
        .output()
        .expect("the program starts")
}

fn json_of(output: &Output) -> serde_json::Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Members as processes, every algorithm; each checks what it received.
#[test]
fn processes_deliver_by_every_algorithm() {
    let json =
        json_of(&bench("local --members 2,5 --bytes 300KiB --blocks 7KiB --repeats 1 --json"));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * (1 + 7));
    assert!(rows.iter().all(|row| row["time_s"].as_f64().unwrap() >= 0.0));
    assert!(json["machine"]["cores"].as_u64().unwrap() > 0);
}

/// Not even in the middle of a transfer.
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

#[test]
fn groups_of_every_length_are_verified() {
    let json = json_of(&bench("verify --members 3 --bytes 0,1,7KiB,20001 --block 7KiB --json"));
    // All of them relayed by 7 algorithms, and the 3 small ones written to everybody as well.
    assert_eq!(json["rows"].as_array().unwrap().len(), 7 * 4 + 3);
}

/// All survivors name the member; one that stops is found by its silence.
#[test]
fn harm_to_a_member_is_learned_by_the_others() {
    for harm in ["kill", "stop"] {
        // Long enough that it is still under way when the victim's callbacks have seen half of it.
        let json = json_of(&bench(&format!("lose --members 5 --harm {harm} --bytes 32MiB --json")));
        assert_eq!(json["rows"].as_array().unwrap().len(), 2, "{harm}");
    }
}

#[test]
fn completion_modes_are_compared() {
    let json = json_of(&bench("modes --members 2 --less 100 --repeats 1 --json"));
    let modes: Vec<_> =
        json["rows"].as_array().unwrap().iter().map(|row| &row["completion"]).collect();
    assert_eq!(modes.len(), 9);
    assert!(["event", "hybrid", "polling"].iter().all(|mode| modes.iter().any(|m| *m == mode)));
}

/// Each copy is compared with what was sent.
#[test]
fn overlapping_groups_share_their_members() {
    let json = json_of(&bench("groups --members 6 --bytes 100KiB --block 10KiB --json"));
    assert_eq!(json["rows"][0]["groups"].as_u64(), Some(10));
}

#[test]
fn the_cost_per_block_is_told() {
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

fn has_sockets() -> bool {
    let found = rdmc::discovery::discover();
    let has = found.is_ok_and(|all| all.devices.iter().any(|one| one.fabric.name() == "sockets"));
    if !has {
        eprintln!("SKIPPED: no libfabric with the provider sockets");
    }
    has
}

/// Programs and network by turns, over the fabric that offloads in software.
#[test]
fn offload_is_measured_over_a_real_fabric() {
    if !has_sockets() {
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
    if !has_sockets() {
        return;
    }
    let arguments = "verify --fabric sockets --offload --members 3 --bytes 0,1,20001 --block 7KiB";
    let json = json_of(&bench(&format!("{arguments} --json")));
    assert_eq!(json["rows"].as_array().unwrap().len(), 7 * 3 + 2);
}

/// A figure of something else would be worse than none.
#[test]
fn without_offload_there_is_no_figure_of_it() {
    for arguments in
        ["verify --offload --members 3", "offload --fabric tcp", "groups --offload --members 4"]
    {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("no offload: this fabric cannot"), "{arguments}: {errors}");
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

/// With root: over shaped links between network namespaces, which are gone afterwards. Without: a
/// clear refusal.
#[test]
fn shaped_links_need_root_and_carry_messages() {
    let arguments = "shaped --members 3 --rate 200 --bytes 1MiB --blocks 64KiB --repeats 1 --json";
    let output = bench(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("need root") || errors.contains("iproute2") || errors.contains("netns") {
        println!("skipped: {errors}");
        assert!(!output.status.success());
        return;
    }
    let json = json_of(&output);
    for row in json["rows"].as_array().unwrap() {
        let of_rate = row["of_rate"].as_f64().unwrap();
        assert!((0.01..1.5).contains(&of_rate), "the links are not shaped: {row}");
    }
}

#[test]
fn nonsense_is_refused() {
    for arguments in [
        "local --blocks 0",
        "local --members 1",
        "sim --algorithm fast",
        "offload --members 1",
        "offload --delays-ms 1",
        "offload --fabric sockets --delays 4",
        "shaped --rate 0",
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
    }
}

#[test]
fn a_missing_command_is_explained() {
    let output = bench("memory --rdmc /nonexistent/rdmc --size 1KiB");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cargo build"));
}
