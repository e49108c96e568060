//! The data planes of a switch that copies, for 0.1 s: packets are counted, times are not compared.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdmc-bench"))
        .args(arguments.split_whitespace())
        .output()
        .expect("the program starts")
}

/// The rows, and standard error with what was skipped.
fn rows(arguments: &str) -> (Vec<Value>, String) {
    let output = bench(&format!("switch --seconds 0.1 --repeats 1 {arguments} --json"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    (json["rows"].as_array().expect("rows").clone(), errors)
}

/// As few packets as ports can keep: every one of them becomes a copy for every member.
#[test]
fn every_copy_is_forwarded() {
    let (rows, errors) =
        rows("--planes kernel,userspace --members 1,3 --bytes 100 --packets-per-s 1000");
    for skipped in errors.lines().filter(|line| line.starts_with("SKIPPED")) {
        println!("{skipped}");
    }
    let is_skipped = |plane: &str| errors.contains(&format!("SKIPPED: {plane}:"));
    for plane in ["kernel", "userspace"].into_iter().filter(|plane| !is_skipped(plane)) {
        let own: Vec<&Value> = rows.iter().filter(|row| row["plane"] == plane).collect();
        assert_eq!(own.len(), 2, "{rows:?}");
        for row in own {
            let value = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
            let replicas = value("sent_per_s") * value("members");
            assert!((value("replicas_per_s") / replicas - 1.0).abs() < 0.02, "{row}");
            assert_eq!((value("taken"), value("copies_failed")), (1.0, 0.0), "{row}");
            assert_eq!(value("copies_lost"), 0.0, "{row}");
            assert_eq!(value("ns_per_copy") > 0.0, plane == "kernel", "{row}");
        }
    }
}

#[test]
fn sockets_alone_send_as_many_frames_as_come_out() {
    let (rows, errors) = rows("--planes sockets --members 1,3 --bytes 100");
    if errors.contains("SKIPPED: sockets:") {
        println!("{errors}");
        return;
    }
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        assert!(row["replicas_per_s"].as_u64() > Some(0), "{row}");
        assert!(row["ns_per_copy"].as_u64() > Some(0), "{row}");
        assert_eq!(row["copies_lost"], 0, "{row}");
        assert!(row["sent_per_s"].is_null() && row["taken"].is_null(), "{row}");
    }
}

#[test]
fn the_logic_needs_no_network() {
    let (rows, errors) = rows("--planes logic --members 2,64 --bytes 1,4KiB");
    assert_eq!((rows.len(), errors.as_str()), (4, ""));
    assert!(rows.iter().all(|row| row["ns_per_copy"].as_u64().unwrap_or(0) > 0), "{rows:?}");
}

#[test]
fn packets_over_the_payload_limit_are_refused() {
    let output = bench("switch --bytes 5000");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && errors.contains("at most 4 KiB"), "{errors}");
}
