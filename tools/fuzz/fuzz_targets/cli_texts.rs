//! Lists of hosts, invitations, and other text that the command parses. The command
//! has no library, so its sources are part of this program.
#![no_main]

#[path = "../../../crates/cli/src/fuzzing.rs"]
mod fuzzing;
#[allow(dead_code, reason = "the command uses the rest")]
#[path = "../../../crates/cli/src/hosts.rs"]
mod hosts;
#[path = "../../../crates/cli/src/hosts_file.rs"]
mod hosts_file;
#[allow(dead_code, reason = "the command uses the rest")]
#[path = "../../../crates/cli/src/invitation.rs"]
mod invitation;
#[allow(dead_code, reason = "the command uses the rest")]
#[path = "../../../crates/cli/src/network/network.rs"]
mod network;
#[allow(dead_code, reason = "the command uses the rest")]
#[path = "../../../crates/cli/src/launch/order.rs"]
mod order;
#[allow(dead_code, reason = "the command uses the rest")]
#[path = "../../../crates/cli/src/slurm/srun.rs"]
mod srun;
#[path = "../../../crates/cli/src/slurm/topology.rs"]
mod topology;

/// As in the command.
mod launch {
    pub use crate::order::{Order, Report};
}
mod slurm {
    pub use crate::{srun::failed_nodes, topology::racks};
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzzing::texts(bytes);
});
