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

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzzing::texts(bytes);
});
