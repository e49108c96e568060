//! `rdmc-bench gpu` with the stand-in for the driver; and without a driver.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_rdmc-bench");
    Command::new(program).arg("gpu").args(arguments).output().expect("the program starts")
}

fn stand_in() -> String {
    let program = std::env::current_exe().expect("a test is a file");
    program.with_file_name("libtesting_gpu.so").display().to_string()
}

#[test]
fn every_way_is_measured_and_says_that_no_gpu_was_there() {
    let sizes = ["--sizes", "3MiB,9MB", "--streams", "1,3", "--block", "64KiB", "--repeats", "1"];
    let output = bench(&[&sizes[..], &["--stand-in", &stand_in(), "--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (copies, arrivals) =
        (json["rows"].as_array().unwrap(), json["arrival"].as_array().unwrap());
    // Two streams of pinned memory, one of pageable.
    assert_eq!((copies.len(), arrivals.len()), (2 * 3, 2 * 3 * 2));
    for row in copies.iter().chain(arrivals) {
        assert_eq!(row["driver"], "STAND-IN, no GPU");
    }
    for row in arrivals {
        assert!(row["on_device_s"].as_f64() >= row["arrived_s"].as_f64(), "{row}");
    }
}

#[test]
fn what_is_not_measured_in_time_is_counted() {
    let sizes = ["--sizes", "1MiB", "--streams", "1", "--limit-s", "0", "--json"];
    let output = bench(&[&sizes[..], &["--stand-in", &stand_in()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let note = json["notes"][1].as_str().unwrap();
    assert!(note.starts_with("6 rows were not measured"), "{note}");
}

#[test]
fn a_missing_driver_is_an_error() {
    let output = bench(&["--stand-in", "/nowhere/libcuda.so.1"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("no NVIDIA driver: /nowhere/libcuda.so.1"), "{text}");
}
