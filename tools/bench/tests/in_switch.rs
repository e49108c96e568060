//! The figures of multicast in the switch, simulated for a part of the time.

use serde_json::Value;

use super::command::{bench, json_of};

const CELL: &str =
    "fig8 --dcqcn hpcc --layouts nine-per-edge --groups 1 --warm-up-ms 1 --duration-ms 2";

fn value(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or(f64::NAN)
}

/// Settings are compared by all their combinations, and the same seeds give the same figures.
#[test]
fn a_storage_system_is_simulated_with_each_setting_for_several_seeds() {
    let arguments =
        format!("in-switch {CELL} --sizes alibaba-storage --loads 0.2,0.4 --seeds 2 --json");
    let json = json_of(&bench(&arguments));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3);
    for row in rows {
        assert!(value(row, "read_us") > 5.0 && value(row, "read_half_us") > 0.0, "{row}");
        assert!(value(row, "store_down") > 0.0 && value(row, "edge_up") < 1.0, "{row}");
    }
    let saved = json["saved"].as_array().unwrap();
    assert_eq!(saved.len(), 2);
    assert!(saved.iter().all(|row| value(row, "read_half") >= 0.0), "{saved:?}");
    assert_eq!(json, json_of(&bench(&arguments)));
}

#[test]
fn parameter_servers_are_simulated_with_each_variant_of_dcqcn() {
    let json = json_of(&bench("in-switch fig9 --part 1 --seeds 1 --dcqcn none,hpcc --json"));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 3 * 3);
    assert!(
        rows.iter().all(|row| value(row, "iteration_ms") > value(row, "gather_ms")),
        "{rows:?}"
    );
    // A single seed has no interval.
    assert!(rows.iter().all(|row| row["iteration_half_ms"].is_null()), "{rows:?}");
    assert_eq!(json["saved"].as_array().unwrap().len(), 2 * 2 * 3);
}

#[test]
fn packets_of_the_far_the_near_and_both_members_are_lost() {
    let json = json_of(&bench("in-switch fig7 --part 2 --json"));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * 4 * 3);
    for lossy in ["far", "near", "both"] {
        let own = rows.iter().filter(|row| row["lossy"] == lossy);
        assert!(own.map(|row| value(row, "lost")).sum::<f64>() > 0.0, "{lossy}");
    }
}

#[test]
fn settings_of_another_figure_are_refused() {
    for (arguments, reason) in [
        ("fig4 --dcqcn paper,hpcc", "fig8"),
        ("fig5 --seeds 2", "take one seed"),
        ("fig9 --loads 0.2", "fig8"),
        ("fig7 --warm-up-ms 1", "fig8"),
    ] {
        let output = bench(&format!("in-switch {arguments}"));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(reason), "{arguments}: {errors}");
    }
    assert_eq!(bench("in-switch fig8 --groups 33").status.code(), Some(2));
}
