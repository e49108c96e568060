//! Links between hosts and switches under test.

use std::time::{Duration, Instant};

use packet_socket::{Batch, Interface, Offload};

const PATIENCE: Duration = Duration::from_secs(20);
/// For local experiments (IEEE 802).
const PROBE_TYPE: [u8; 2] = [0x88, 0xb6];

/// Makes a veth pair whose ends send nothing by themselves and carry frames in both directions.
pub fn veth(one: &str, other: &str, mtu_bytes: u32) {
    lab::ip(&format!("link add {one} type veth peer name {other}")).unwrap();
    for end in [one, other] {
        lab::quiet(end, mtu_bytes).unwrap();
    }
    let [one, other] = [one, other].map(|end| Interface::open(end, true).unwrap());
    wait(&one, &other);
    wait(&other, &one);
}

/// An interface that is up drops what it is given until the kernel has noticed that its peer is up, too.
/// Returns when the last probe has come, so that none comes later.
fn wait(from: &Interface, to: &Interface) {
    let mut batch = Batch::new();
    let deadline = Instant::now() + PATIENCE;
    for number in 0_u32.. {
        assert!(Instant::now() < deadline, "a link carries no frames");
        let mut probe = [[0xff; 6], [2, 0, 0, 0, 9, 9]].concat();
        probe.extend(PROBE_TYPE);
        probe.extend(number.to_be_bytes());
        probe.resize(60, 0);
        from.send(Offload::NONE, &probe).unwrap();
        to.receive(&mut batch, Duration::from_millis(10)).unwrap();
        if batch.frames().any(|(_, frame)| frame == probe) {
            return;
        }
    }
}
