//! Hosts in virtual time: the state machines of both ends of a push, with real engines.

use serde_json::json;
use simulate::{ManyHosts, ManyReport};

use super::args::Args;
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    report::{Report, number},
};

/// A thousandth of that of 100,000 files, as the blocks are of those of a file of 64 MB.
const LISTING_BYTES: u64 = 12_000;
/// Slow hosts, and those that are killed or never connect: one in so many.
const SLOW: usize = 10;
const ONE_IN: usize = 100;

pub(super) fn measure(args: &Args, report: &mut Report, interrupt: &Interrupt) -> Outcome<()> {
    report.table(
        "simulated",
        "Simulated: 64 MB over links of 8 Gbit/s, logins of 0.3 s in a tree of 32",
    );
    let usual = |hosts| ManyHosts { retries: 1, ..ManyHosts::new(hosts) };
    for &hosts in args.simulated.iter().filter(|&&hosts| hosts > 0) {
        interrupt.check()?;
        row(report, "file", usual(hosts))?;
        if hosts <= 1000 {
            row(report, "directory", ManyHosts { listing_bytes: LISTING_BYTES, ..usual(hosts) })?;
            let long = ManyHosts { retries: 1, ..ManyHosts::long(hosts) };
            row(report, "long", long)?;
            row(report, "long, 1 % killed", ManyHosts { one_killed_in: ONE_IN, ..long })?;
            row(report, "long, 1 % silent", ManyHosts { one_silent_in: ONE_IN, ..long })?;
            let slow = ManyHosts { slow: SLOW, ..long };
            row(report, "long, 10 slow", slow)?;
            row(report, "long, 10 slow, --min-rate", ManyHosts { rate_min_percent: 50, ..slow })?;
        }
    }
    report.note(
        "simulated: the decisions of root and receivers and the library's engine at each, over a network and disks in virtual time; bytes of \
         the object, of a directory's listing (12 MB) and rates are divided by 1,000. long: 140 GB in 1,400 blocks, divided by 100,000. begun: when the first groups were \
         started; others: when the last host had published its copy that is not slow and was not killed or silent, all: when the last host had. sent, received: messages of control connections at the \
         root and their bytes, without TLS; data is not among them. killed: in the middle of the transfer. slow: ports of a tenth of the rate.",
    );
    Ok(())
}

fn row(report: &mut Report, what: &str, many: ManyHosts) -> Outcome<()> {
    let found =
        many.run().map_err(|error| format!("{} simulated hosts, {what}: {error}", many.hosts))?;
    let ManyReport { hosts, published, traffic, rounds, .. } = found;
    report.row([
        ("hosts", json!(hosts)),
        ("what", json!(what)),
        ("published", json!(published)),
        ("begun_s", number(found.begun_s)),
        ("median_s", number(found.median_s)),
        ("others_s", number(found.others_s)),
        ("all_s", number(found.last_s)),
        ("rounds", json!(rounds)),
        ("sent", json!(traffic.sent)),
        ("sent_bytes", json!(traffic.sent_bytes)),
        ("received", json!(traffic.received)),
        ("received_bytes", json!(traffic.received_bytes)),
        ("longest_bytes", json!(traffic.longest_bytes)),
    ]);
    Ok(())
}
