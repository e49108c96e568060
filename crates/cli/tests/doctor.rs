//! `rdmc doctor` on whatever machine this is.

use std::process::{Command, Output};

use serde_json::Value;

fn doctor(arguments: &[&str]) -> Output {
    let output =
        Command::new(env!("CARGO_BIN_EXE_rdmc")).arg("doctor").args(arguments).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    output
}

#[test]
fn the_report_in_json_has_all_its_parts() {
    let output = doctor(&["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    let machine = report["machine"].as_object().unwrap();
    let parts = [
        "rdmc",
        "switches",
        "system",
        "packages",
        "kernel",
        "cpus",
        "memory_bytes",
        "nics",
        "rdma_ports",
        "rdma_files",
        "libfabric",
        "fabrics",
        "gpu",
        "limits",
        "tcp",
        "huge_pages",
        "shared_memory_bytes",
    ];
    let mut names: Vec<&str> = machine.keys().map(String::as_str).collect();
    names.sort_unstable();
    let mut expected = parts.to_vec();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let switches = machine["switches"].as_array().unwrap();
    assert_eq!(switches.iter().any(|plane| plane == "userspace"), cfg!(feature = "switch"));
    let gpu = &machine["gpu"];
    assert!(gpu["cuda"].is_string() != gpu["trouble"].is_string(), "{gpu}");
    let open_files = &machine["limits"]["open_files"];
    assert!(open_files.is_u64() || open_files == "unlimited", "{open_files}");
    // Every host can fall back on TCP.
    assert_eq!(machine["fabrics"].as_array().unwrap().last().unwrap(), "tcp");
    assert_eq!(report["fabric"]["automatic"], machine["fabrics"][0]);
    assert!(!report["fabric"]["reason"].as_str().unwrap().is_empty());
    let findings = report["findings"].as_array().unwrap();
    for finding in findings {
        assert!(matches!(finding["severity"].as_str(), Some("problem" | "warning")), "{finding}");
        assert!(finding["check"].is_string() && finding["what"].is_string(), "{finding}");
        assert!(!finding["fix"].as_array().unwrap().is_empty(), "{finding}");
    }
    let stops = findings.iter().any(|finding| finding["severity"] == "problem");
    assert_eq!(output.status.code(), Some(i32::from(stops)));
}

#[test]
fn the_report_for_people_says_what_would_be_chosen() {
    let text = String::from_utf8(doctor(&[]).stdout).unwrap();
    for row in [
        "rdmc switch",
        "system",
        "CPUs, memory",
        "libfabric",
        "CUDA",
        "locked memory",
        "--fabric auto",
    ] {
        assert!(text.lines().any(|line| line.starts_with(row)), "{row}: {text}");
    }
}

#[test]
fn help_says_what_the_exit_codes_mean() {
    let text = String::from_utf8(doctor(&["--help"]).stdout).unwrap();
    assert!(text.contains("Exit codes") && text.contains("--json"), "{text}");
}
