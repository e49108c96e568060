//! Pushes to many hosts.

use simulate::ManyHosts;

pub const SOME: ManyHosts = ManyHosts {
    hosts: 100,
    bytes: 64_000,
    block_bytes: 1_000,
    rate_bytes_per_s: 1_000_000,
    login_ns: 300_000_000,
    fanout: 32,
    one_silent_in: 0,
    one_killed_in: 0,
    slow: 0,
    rate_min_percent: 0,
    retries: 0,
};

#[test]
fn tries() {
    let hosts: usize = std::env::var("N").unwrap().parse().unwrap();
    let many = ManyHosts { hosts, ..SOME };
    let t = std::time::Instant::now();
    println!("{:?} {:?}", many.run(), t.elapsed());
}
