//! `rdmc-bench scale` with small groups, where SimGrid is installed.

use std::process::Command;

use serde_json::Value;

/// Runs it; `None` where SimGrid is missing.
fn scale(arguments: &str) -> Option<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_rdmc-bench"))
        .arg("scale")
        .args(arguments.split_whitespace())
        .arg("--json")
        .output()
        .expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("SimGrid is not installed") {
        eprintln!("SKIPPED: rdmc-bench scale: {}", errors.trim());
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn rows(json: &Value) -> &[Value] {
    json["rows"].as_array().expect("rows")
}

/// Without latency a schedule takes its steps, over any network that is wide enough; members that
/// get a message at once are not slower than their link.
#[test]
fn schedules_take_their_steps_and_mpi_no_less_than_the_link() {
    let arguments = "--members 5,8 --bytes 2MiB --block 64KiB --latency-ns 0 --engine 8 \
                     --algorithms sequential,chain,binomial-tree,binomial-pipeline,circulant \
                     --selectors mpich";
    let Some(json) = scale(arguments) else { return };
    assert_eq!(rows(&json).len(), 2 * 2 * (5 + 1));
    for row in rows(&json) {
        let of_the_rate = row["of_the_rate"].as_f64().unwrap();
        assert!(of_the_rate > 0.0 && of_the_rate < 1.001, "{row}");
        if row["steps"].is_u64() {
            let of_the_limit = row["of_the_limit"].as_f64().unwrap();
            assert!((of_the_limit - 1.0).abs() < 0.02, "{row}");
        }
    }
    let engine = &json["engine"][0];
    assert!((engine["engine_to_simgrid"].as_f64().unwrap() - 1.0).abs() < 0.02, "{engine}");
    assert!(rows(&json).iter().any(|row| row["algorithm"] == "MPI_Bcast as mpich"));
}

/// The effect in docs/results/scale.md of several flows at one member's link. With one the engine agrees,
/// with latency, too.
#[test]
fn blocks_that_share_a_link_slow_the_pipeline_down() {
    let arguments = "--members 8 --algorithms binomial-pipeline --selectors none \
                     --platform fat-tree --receives";
    let of_the_limit = |receives| {
        let json = scale(&format!("{arguments} {receives}"))?;
        rows(&json)[0]["of_the_limit"].as_f64()
    };
    let Some(one_by_one) = of_the_limit("1 --engine 8") else { return };
    assert!(one_by_one > 0.98, "{one_by_one}");
    let shared = of_the_limit("2 --engine 2").expect("as before");
    assert!(shared < 0.9, "{shared}");
}

#[test]
fn a_message_longer_than_mpis_counters_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_rdmc-bench"))
        .args(["scale", "--bytes", "2GiB"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--bytes must be below 2 GiB"));
}
