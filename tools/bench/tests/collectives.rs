//! `rdmc-bench collectives` with loads so small that nothing is measured, and the tables that collectives.py derives.

use std::{
    io::Write,
    os::unix::fs::symlink,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

fn collectives(arguments: &str, path: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmc-bench"));
    command.arg("collectives").args(arguments.split_whitespace());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().expect("the program starts")
}

fn json_of(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What tools/bench/collectives.py derives.
fn derived(raw: &Value) -> Value {
    let mut script = Command::new("python3")
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/collectives.py"), "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    script.stdin.take().unwrap().write_all(raw.to_string().as_bytes()).unwrap();
    json_of(&script.wait_with_output().unwrap())
}

fn rows<'a>(json: &'a Value, table: &str) -> &'a [Value] {
    json[table].as_array().expect("rows")
}

/// Members as processes; each checks its results.
#[test]
fn teams_and_send_receive_take_part() {
    let arguments = "--parts peers --only rdmc,two-sided --fabric tcp --members 2,5 --bytes 4,64KiB \
                     --turns 2 --budget-ms 1 --json";
    let json = derived(&json_of(&collectives(arguments, None)));
    // Teams over TCP, by sockets and by shared memory, and send/receive.
    assert_eq!(rows(&json, "rows").len(), 3 * 2 * 3);
    for row in rows(&json, "rows") {
        assert!(
            row["4_B"].as_f64().unwrap() > 0.0 && row["64_KiB"].as_f64().unwrap() > 0.0,
            "{row}"
        );
    }
    let all = rows(&json, "all");
    assert_eq!(all.len(), 3 * 2 * 2 * 2);
    for row in all {
        let us = |name: &str| row[name].as_f64().unwrap();
        assert!(us("min_us") <= us("average_us") && us("average_us") <= us("max_us"), "{row}");
        assert!(us("p50_us") <= us("p99_us") && us("leaf_us") > 0.0, "{row}");
        assert!(row["repeats"].as_u64().unwrap() >= 2 * 3, "{row}");
    }
    assert!(json["missing"].is_null() && json["ratios"].is_null(), "{json}");
}

/// Ratios are those of the default against the fastest settings of the fastest peer over the same network.
#[test]
fn rdmc_is_compared_with_the_fastest_settings_of_its_peers() {
    let row = |network: &str, program: &str, settings: &str, bytes: u64, us: f64| {
        json!({"operation": "broadcast", "members": 2, "network": network, "program": program, "settings": settings,
               "bytes": bytes, "average_us": us / 2.0, "leaf_us": us})
    };
    let measured = json!([
        row("tcp", "rdmc", "default", 4, 12.0),
        row("tcp", "rdmc", "default", 1 << 20, 90.0),
        row("tcp", "send/receive", "binomial", 4, 1.0),
        row("tcp", "MPICH 5", "default", 4, 20.0),
        row("tcp", "MPICH 5", "tree", 4, 8.0),
        row("tcp", "MPICH 5", "ring", 1 << 20, 100.0),
        row("shared memory", "MPICH 5", "default", 4, 1.0),
    ]);
    let missing = json!([{"members": 2, "network": "tcp", "program": "Gloo", "settings": "bcube", "reason": "hung"}]);
    let raw = json!({"benchmark": "", "what": "", "machine": {}, "notes": [], "rows": measured, "missing": missing});
    let json = derived(&raw);
    let ratios = rows(&json, "ratios");
    assert_eq!(ratios.len(), 1);
    assert_eq!((&ratios[0]["4_B"], &ratios[0]["1_MiB"]), (&json!(1.5), &json!(0.9)));
    let fastest = &rows(&json, "fastest_settings")[0];
    assert_eq!((&fastest["4_B"], &fastest["1_MiB"]), (&json!("tree"), &json!("ring")));
    let best = rows(&json, "rows")
        .iter()
        .find(|row| row["settings"] == "best" && row["operation"] == "broadcast, deepest leaf");
    assert_eq!(best.unwrap()["4_B"], json!(8.0));
    assert_eq!(json["missing"], missing);
}

/// The simulated teams show what the paper has found, whatever this machine does.
#[test]
fn figures_have_the_papers_conclusions_in_the_simulated_network() {
    let mut raw =
        json_of(&collectives("--parts figures,time --short --fabric tcp --many 32 --json", None));
    let json = derived(&raw);
    let simulated = |row: &&Value| row["source"] == "simulated";
    for row in rows(&json, "fig11").iter().filter(simulated) {
        let best = match row["bytes"].as_u64().unwrap() {
            0..=1024 => 3,
            2048.. => 1,
            // The degrees are nearly equal there.
            _ => continue,
        };
        assert_eq!(row["best"], best, "{row}");
    }
    for row in rows(&json, "fig12").iter().filter(simulated) {
        let gain = row["gain_of_best"].as_f64().unwrap();
        assert!(gain > 0.0 || row["bytes"].as_u64().unwrap() > 1024, "{row}");
    }
    for row in rows(&json, "model_errors").iter().filter(simulated) {
        assert!(row["mean_size"].as_f64().unwrap() < 0.15, "{row}");
    }
    for (figure, count) in
        [("fig6_7", 2), ("fig8", 8), ("fig9_10", 1), ("fig13_14", 1), ("fig11", 6)]
    {
        assert_eq!(rows(&json, figure).len(), count * 10, "{figure}");
    }
    let layers = rows(&json, "layers");
    assert_eq!(layers.len(), 5);
    assert!(layers.iter().all(|row| row["time_us"].as_f64().unwrap() > 0.0));
    let team = &layers[3];
    assert!(team["writes"].as_f64().unwrap() > 0.0, "{team}");
    the_model_is_fitted(&mut raw);
}

/// Exact times give their parameters back, and no parameter is negative.
fn the_model_is_fitted(raw: &mut Value) {
    const ACKNOWLEDGE_US: f64 = 1.5;
    for row in raw["times"].as_array_mut().unwrap() {
        let bytes = row["bytes"].as_f64().unwrap();
        if row["source"] == "measured" {
            // Longer messages are faster, which no parameter can say.
            row["time_us"] = json!(50.0 - bytes / 200.0);
        } else if let (Some(us), Some(block)) =
            (row["model_us"].as_f64(), row["block_bytes"].as_f64())
        {
            let blocks = (bytes / (block - 1.0)).ceil() * row["rounds"].as_f64().unwrap();
            row["time_us"] = json!(us + ACKNOWLEDGE_US * blocks);
        }
    }
    let json = derived(raw);
    for row in rows(&json, "parameters") {
        let ns = |column: &str| row[column].as_f64().unwrap();
        let is_of = |name: &str| row["parameter"].as_str().unwrap().starts_with(name);
        let expected = if is_of("Ta") { ACKNOWLEDGE_US * 1e3 } else { ns("paper") };
        assert!((ns("fitted_to_the_simulation") / expected - 1.0).abs() < 0.01, "{row}");
        assert!(ns("fitted_here") >= 0.0 && (!is_of("Tt") || ns("fitted_here") == 0.0), "{row}");
    }
    for row in rows(&json, "model_errors").iter().filter(|row| row["source"] == "simulated") {
        assert!(row["greatest_size"].as_f64().unwrap() < 2e-3, "{row}");
    }
}

/// Over shm, if libfabric has it here, by processes.
#[test]
fn layers_over_a_fabric_are_measured() {
    let json = json_of(&collectives("--parts time --short --fabric shm --json", None));
    assert!(json["layers"].is_null(), "TCP was not asked for: {json}");
    let all = rows(&json, "layers_over_fabrics");
    assert!(all.iter().all(|row| row["least_us"].as_f64().unwrap() > 0.0), "{all:?}");
    // What does not work here is in a note each, with the reason.
    let notes = json["notes"].as_array().unwrap();
    let missing = notes.iter().filter(|note| note.as_str().unwrap().starts_with("shm, ")).count();
    assert_eq!(all.len() + missing, 10, "{json}");
    let has = |layer: &str| all.iter().any(|row| row["layer"].as_str().unwrap().starts_with(layer));
    assert!(has("memory"), "{json}");
    if !has("transport-fabric: a write, reported") {
        eprintln!("SKIPPED: libfabric has no shm here: {notes:?}");
        return;
    }
    assert!(has("team: an allreduce, by reports") && has("rdmc: an allreduce"), "{json}");
}

#[test]
fn missing_peers_are_listed_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    symlink("/usr/bin/setpriv", directory.path().join("setpriv")).unwrap();
    let path = directory.path().to_str().unwrap();
    let arguments =
        "--parts peers --only openmpi4,mpich5,gloo --members 2 --bytes 4 --turns 1 --json";
    let json = json_of(&collectives(arguments, Some(path)));
    let missing = rows(&json, "missing");
    for (program, reason) in [
        (
            "Open MPI 4",
            "mpirun.openmpi is not installed; Debian packages: openmpi-bin libopenmpi-dev",
        ),
        ("MPICH 5", "python3 is not installed; Debian packages: python3-venv"),
        ("Gloo", "g++ is not installed; Debian packages: g++ libgloo-dev"),
    ] {
        let of_program: Vec<&Value> =
            missing.iter().filter(|row| row["program"] == program).collect();
        assert!(!of_program.is_empty(), "{program}");
        assert!(of_program.iter().all(|row| row["reason"] == reason), "{of_program:?}");
    }
    assert!(rows(&json, "rows").is_empty());
}

#[test]
fn invalid_arguments_are_refused() {
    for arguments in [
        "--bytes 6",
        "--bytes 32MiB",
        "--members 1",
        "--only nobody",
        "--parts fast",
        "--short --turns 2",
    ] {
        assert_eq!(collectives(arguments, None).status.code(), Some(2), "{arguments}");
    }
}
