//! Commands that measure over sizes of groups, lengths and loads, with so little that nothing is measured.

use crate::command::{bench, json_of, rows_in_lab};

#[test]
fn completion_modes_are_compared() {
    let json = json_of(&bench("modes --members 2,3 --less 50 --repeats 1 --json"));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 9);
    for mode in ["event", "hybrid", "polling"] {
        assert_eq!(rows.iter().filter(|row| row["completion"] == mode).count(), 2 * 3);
    }
}

#[test]
fn groups_of_the_same_members_share_links() {
    let arguments = "overlapping --repeats 1 --members 2,4 --rate 400mbit --bytes 512KiB";
    let Some(rows) = rows_in_lab(arguments) else { return };
    let senders: Vec<_> = rows.iter().map(|row| row["senders"].as_u64().unwrap()).collect();
    // Full bisection and oversubscribed.
    assert_eq!(senders, [2, 1, 2, 1, 4, 2, 1, 4, 2, 1]);
    for row in rows {
        let fairness = row["fairness"].as_f64().unwrap();
        let least = 1.0 / row["senders"].as_f64().unwrap();
        assert!(fairness >= least - 1e-3 && fairness <= 1.0 + 1e-9, "{row}");
    }
}

/// Every object is checked at each of its targets.
#[test]
fn a_store_replicates_objects_by_every_algorithm() {
    let arguments =
        "store --members 6 --rate 400mbit --objects 8 --in-flight 1,3 --median 200KB --mean 300KB";
    let Some(rows) = rows_in_lab(arguments) else { return };
    assert_eq!(rows.len(), 2 * 3);
    for row in &rows {
        let value = |name: &str| row[name].as_f64().unwrap();
        assert!(0.0 < value("median_s") && value("median_s") <= value("max_s"), "{row}");
        assert!((value("delivered_mbit_per_s") / value("mbit_per_s") - 3.0).abs() < 0.01, "{row}");
    }
    let of_the_pipeline = |row: usize| rows[row]["of_the_pipelines_mean"].as_f64();
    assert_eq!([2, 5].map(of_the_pipeline), [Some(1.0); 2]);
}

#[test]
fn small_messages_are_relayed_and_written() {
    for arguments in [
        "small --members 2,3 --bytes 1B,20KiB --messages 50 --repeats 1 --json",
        "small-virtual --members 2,40 --bytes 1B,20KiB --messages 50 --json",
    ] {
        let json = json_of(&bench(arguments));
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 2 * 2, "{arguments}");
        assert!(rows.iter().all(|row| row["latency_us"].as_f64().unwrap() > 0.0), "{rows:?}");
    }
}

/// Every copy is compared.
#[test]
fn memory_comes_from_three_places() {
    let json = json_of(&bench("buffers --members 3 --bytes 100KB,1B --repeats 2 --json"));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3);
    assert!(rows.iter().all(|row| row["time_us"].as_f64().unwrap() > 0.0));
}

#[test]
fn a_group_shares_links_with_other_connections() {
    let arguments = "foreign --members 4 --rate 200mbit --bytes 1MiB --blocks 64KiB --repeats 1";
    let Some(rows) = rows_in_lab(arguments) else { return };
    // Two algorithms without other connections; beside one and beside four also these alone.
    assert_eq!(rows.len(), 2 + 3 + 3);
    for row in rows {
        assert_eq!(row["flow_of_rate"].is_null(), row["flows"] == "none", "{row}");
        assert_eq!(row["time_s"].is_null(), row["algorithm"] == "-", "{row}");
    }
}

/// Each rack's link is crossed as often as the schedule says, and packets are lost as told: not at all, or some.
#[test]
fn two_racks_are_joined_by_a_long_link() {
    let arguments = "wide-area --members 4 --round-trip-ms 4 --loss 0,1 --congestion cubic --streams 2 --bytes 4MiB \
                     --longest-s 100 --plain-s 0.2 --algorithms chain,racks-pipeline --blocks 64KiB";
    let Some(rows) = rows_in_lab(arguments) else { return };
    assert_eq!(rows.len(), 2 * 3);
    for row in rows {
        assert_eq!(row["time_s"].is_null(), row["algorithm"] == "plain TCP", "{row}");
        if let Some(crossed) = row["crossed"].as_f64() {
            // What is sent again, and acknowledgements, are a few percent.
            assert!((1.0..1.2).contains(&crossed), "{row}");
            assert_eq!(row["lost"].as_f64().unwrap() > 0.0, row["loss_percent"] == 1.0, "{row}");
            // No link carries more than its rate, but for 2 ms of idle time and a header's rounding.
            assert!(row["of_limit"].as_f64().unwrap() < 1.05, "{row}");
        }
    }
}
