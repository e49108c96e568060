//! What groups cost, with loads so small that nothing is measured.

use serde_json::Value;

use crate::command::{bench, json_of};

fn rows(arguments: &str) -> Vec<Value> {
    json_of(&bench(&format!("{arguments} --json")))["rows"].as_array().unwrap().clone()
}

fn count(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("no {name} in {row}"))
}

fn value(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"))
}

/// Each copy is compared with what was sent.
#[test]
fn overlapping_groups_share_their_members() {
    let all = rows("groups --members 6 --bytes 100KiB --block 10KiB");
    assert_eq!(all.len(), 1);
    assert_eq!((count(&all[0], "groups"), &all[0]["contexts"]), (10, &"cold".into()));
}

#[test]
fn overlapping_groups_are_made_again_on_warm_contexts() {
    let all = rows("groups --members 5 --bytes 100KiB --block 10KiB --warm");
    let contexts: Vec<_> = all.iter().map(|row| row["contexts"].as_str().unwrap()).collect();
    assert_eq!(contexts, ["cold", "warm"]);
    for row in all {
        assert_eq!(count(&row, "groups"), 4);
        for name in ["set_up_s", "transfer_s", "close_s", "cpu_s"] {
            assert!(value(&row, name) >= 0.0, "{row}");
        }
    }
}

#[test]
fn groups_of_each_size_are_created_and_closed() {
    let all = rows("groups sizes --members 2,5 --repeats 2 --warm 3");
    let of = |row: &Value| (count(row, "members"), row["contexts"].clone(), count(row, "groups"));
    let (cold, warm) = (Value::from("cold"), Value::from("warm"));
    let expected = [(2, cold.clone(), 2), (2, warm.clone(), 6), (5, cold, 2), (5, warm, 6)];
    assert_eq!(all.iter().map(of).collect::<Vec<_>>(), expected);
    for row in &all {
        for what in ["create", "close"] {
            let value = |name: &str| value(row, &format!("{what}{name}_ms"));
            assert!(value("_fastest") <= value("") && value("") <= value("_slowest"), "{row}");
        }
        assert!(value(row, "create_cpu_ms") >= 0.0, "{row}");
    }
}

#[test]
fn what_idle_groups_hold_is_counted() {
    let all = rows("groups idle --groups 3 --members 3 --watch-ms 1");
    let open: Vec<_> = all.iter().map(|row| count(row, "open_groups")).collect();
    assert_eq!(open, [0, 1, 4, 0]);
    let descriptors: Vec<_> = all.iter().map(|row| count(row, "descriptors")).collect();
    assert!(descriptors[..3].is_sorted() && descriptors[3] <= descriptors[2], "{descriptors:?}");
    for row in &all[1..3] {
        assert!(count(row, "threads") >= 3 && count(row, "resident_KiB") > 0, "{row}");
        let (group, member) =
            (value(row, "resident_KiB_per_group"), value(row, "resident_KiB_per_member"));
        assert!((group / 3.0 - member).abs() < 0.001, "{row}");
    }
    let added = descriptors[2] as f64 - descriptors[1] as f64;
    assert!((value(&all[2], "descriptors_per_group") - added / 3.0).abs() < 0.001, "{all:?}");
    assert!(all[0]["descriptors_per_group"].is_null() && all[3]["threads_per_group"].is_null());
}

#[test]
fn offload_that_is_unavailable_is_an_error_in_each() {
    for arguments in [
        "groups --offload --members 4",
        "groups sizes --offload --members 3",
        "groups idle --offload --members 3 --groups 1",
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("no offload: this fabric does not"), "{arguments}: {errors}");
    }
}
