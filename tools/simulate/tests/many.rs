//! Pushes to many hosts.

use simulate::{ManyHosts, ManyReport};

const HOSTS: usize = 200;

fn run(many: ManyHosts) -> ManyReport {
    many.run().unwrap_or_else(|violation| panic!("{many:?}: {violation}"))
}

/// What the root sends to each host does not grow with their number.
#[test]
fn control_connections_carry_little_of_other_hosts() {
    let few = run(ManyHosts::new(HOSTS));
    let many = run(ManyHosts::new(400));
    assert_eq!((few.published, many.published), (200, 400));
    let each = |report: &ManyReport| report.traffic.sent_bytes / report.hosts as u64;
    assert!(each(&many) < each(&few) + 40, "{} and {}", each(&few), each(&many));
    assert!(many.traffic.longest_bytes < 300, "{:?}", many.traffic);
    assert_eq!(many.rounds, 1);
}

#[test]
fn a_listing_is_relayed_as_the_tree_is() {
    let listing_bytes = 100_000;
    let report = run(ManyHosts { listing_bytes, ..ManyHosts::new(HOSTS) });
    assert_eq!(report.published, 200);
    assert!(report.traffic.sent_bytes < 2 * listing_bytes, "{:?}", report.traffic);
}

/// Those that never connect are waited for once, for two seconds after the last that has.
#[test]
fn silent_hosts_delay_the_others_little() {
    let alone = run(ManyHosts::new(198));
    let report = run(ManyHosts { one_silent_in: 100, ..ManyHosts::new(HOSTS) });
    assert_eq!(report.published, 198);
    let delay_s = report.others_s - alone.others_s;
    assert!((1.5..2.5).contains(&delay_s), "{delay_s}");
}

#[test]
fn hosts_that_are_killed_meanwhile_cost_the_others_no_second_copy() {
    let report = run(ManyHosts { one_killed_in: 100, retries: 1, ..ManyHosts::new(HOSTS) });
    assert!(report.published >= 198, "{report:?}");
    assert!(report.rounds <= 4, "{report:?}");
}

/// 140 GB: hosts that are killed, never connect or have slow links cost the others a fifteenth at most.
#[test]
fn long_pushes_are_delayed_little_by_hosts_that_fail_or_are_slow() {
    let usual = ManyHosts { retries: 1, ..ManyHosts::long(30) };
    let alone = run(usual);
    for with in [
        ManyHosts { one_killed_in: 15, ..usual },
        ManyHosts { one_silent_in: 15, ..usual },
        ManyHosts { slow: 1, rate_min_percent: 50, ..usual },
        ManyHosts { slow: 3, rate_min_percent: 50, ..usual },
    ] {
        let report = run(with);
        let ratio = report.others_s / alone.others_s;
        assert!(ratio < 1.067, "{ratio}: {report:?}");
    }
}
