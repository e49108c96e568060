//! `rdmc-bench python` with loads so small that nothing is measured.

use std::process::{Command, Output};

use serde_json::Value;

const SMALL: &str = "--members 2,3 --bytes 100004 --count 3 --each 64KiB --overhead-bytes 0 --turns 2 --repeats 1 --json";

fn python(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmc-bench"));
    command.arg("python").args(arguments.split_whitespace());
    command.output().expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A row for each operation, each work and each number of members, by each of these programs over so many networks.
fn expect_rows(output: &Output, programs: &[(&str, usize)]) {
    assert!(output.status.success(), "{}", errors(output));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    for (program, networks) in programs {
        let own: Vec<_> = rows.iter().filter(|row| row["program"] == *program).collect();
        assert_eq!(own.len(), 2 * 2 * 2 * networks, "{program}: {json}");
        for row in own {
            let ms = |name: &str| row[name].as_f64().expect("a time");
            assert!(0.0 < ms("fastest_ms") && ms("fastest_ms") <= ms("ms"), "{row}");
            assert!(ms("ms") <= ms("slowest_ms"), "{row}");
        }
    }
}

/// Members compare all that they receive.
#[test]
fn members_in_rust_take_part_without_python() {
    expect_rows(&python(&format!("{SMALL} --ways rust --python missing")), &[("rdmc in Rust", 1)]);
}

#[test]
fn members_in_python_take_part_where_their_packages_are() {
    let output = python(&format!("{SMALL} --ways gloo,mpi,mpi-shared --python /usr/bin/python3"));
    if let Some(skipped) =
        String::from_utf8_lossy(&output.stdout).lines().find(|line| line.contains("Left out"))
    {
        eprintln!("SKIPPED: {skipped}");
        return;
    }
    expect_rows(&output, &[("torch.distributed, gloo", 1), ("mpi4py, Open MPI", 2)]);
}

#[test]
fn a_python_without_rdmc_is_an_error_that_says_so() {
    let output = python("--python /usr/bin/false");
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("/usr/bin/false cannot import rdmc"), "{}", errors(&output));
    let output = python(&format!("{SMALL} --ways rust --bytes 1KB,10"));
    assert!(errors(&output).contains("10 bytes are no floats"), "{}", errors(&output));
    let output = python("--python /missing/python");
    assert!(errors(&output).contains("cannot start /missing/python"), "{}", errors(&output));
}
