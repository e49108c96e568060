//! The output of `scontrol show topology`: one switch per line.

use std::collections::HashMap;

use crate::hosts::{HOSTS_MAX, expand, split};

/// The rack of each node, counted from 1: its leaf switch (level 0). Lines of another form are ignored, as
/// are all lines if Slurm knows no switch.
pub fn racks(text: &str) -> HashMap<String, u32> {
    let mut racks = HashMap::new();
    let leaves = text.lines().filter(|line| value(line, "Level") == Some("0"));
    for (line, rack) in leaves.zip(1..) {
        let list = value(line, "Nodes").unwrap_or_default();
        for entry in split(list).unwrap_or_default() {
            let names = expand(entry, HOSTS_MAX.saturating_sub(racks.len())).unwrap_or_default();
            racks.extend(names.into_iter().map(|name| (name, rack)));
        }
    }
    racks
}

/// The value of a key, as in `Level=0 Nodes=n[1-2]`.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by Slurm 22.05.
    const TREE: &str = "\
SwitchName=left Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=right Level=0 LinkSpeed=1 Nodes=n[3-4],gpu
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4],gpu Switches=left,right
";

    #[test]
    fn leaf_switches_are_racks() {
        let racks = racks(TREE);
        let of = |name| racks.get(name).copied();
        assert_eq!(
            [of("n1"), of("n2"), of("n3"), of("n4"), of("gpu")].map(Option::unwrap),
            [1, 1, 2, 2, 2]
        );
        assert_eq!(of("n5"), None);
    }

    #[test]
    fn without_a_topology_there_are_no_racks() {
        for text in ["", "No topology information available\n", "SwitchName=x Level=0 Nodes=n[1"] {
            assert!(racks(text).is_empty(), "{text}");
        }
    }
}
