//! The paper's testbed (figure 3).

use mcrdma::plan::{Device, Node, Topology};

/// Its hosts, two in each rack. The figure's layout is not in the text. This is the one in which A1,
/// D1 and A2 are in different racks (section VII-B), and the way from A1 to A2 is longer than that
/// from A1 to B1 (section VII-D).
const HOSTS: [&str; 8] = ["A1", "B1", "C1", "D1", "A2", "B2", "C2", "D2"];

/// Eight hosts behind four switches that copy, and one above them that does not.
pub fn testbed() -> Topology {
    Topology::racks(4, 2, Device::Plain)
}

/// The hosts of these names.
pub fn hosts<const N: usize>(topology: &Topology, names: [&str; N]) -> [Node; N] {
    let all: Vec<Node> =
        (0..topology.len()).filter(|&node| topology.device(node) == Device::Host).collect();
    names.map(|name| {
        let at = HOSTS.iter().position(|known| *known == name);
        all[at.expect("experiments name hosts of the testbed")]
    })
}
