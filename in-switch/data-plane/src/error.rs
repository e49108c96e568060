//! Errors of a data plane.

use std::path::PathBuf;

use mcrdma::Refused;

/// Why an operation on a data plane failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    /// The group is invalid, or exceeds a limit.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// This build has no program for the kernel.
    #[error(
        "this program was built without the switch in the kernel; build it where clang and libbpf's \
         headers are (Debian: clang, libbpf-dev), or use the switch in userspace"
    )]
    NotBuilt,
    /// The kernel does not support it, or this process lacks capabilities.
    #[error(
        "no switch in this kernel: {why}; it needs Linux 5.17, CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; the switch in userspace \
         needs only CAP_NET_RAW"
    )]
    NotPossible {
        /// Why not.
        why: String,
    },
    /// The directory for pinned maps.
    #[error("cannot pin maps in {}: {source}; it has to be in a BPF file system: mount -t bpf bpf /sys/fs/bpf", directory.display())]
    Directory {
        /// The directory that was given.
        directory: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The kernel refused something.
    #[error("the kernel's switch in {}: cannot {step}: {why}", directory.display())]
    Kernel {
        /// What was to be done.
        step: &'static str,
        /// The directory of its pinned maps.
        directory: PathBuf,
        /// The reason, for messages.
        why: String,
    },
    /// A port.
    #[error("port {port}: {why}")]
    Port {
        /// Its name.
        port: String,
        /// The reason, for messages.
        why: String,
    },
    /// The kernel keeps no statistics of its programs.
    #[error("the kernel cannot keep statistics of its programs: {why}")]
    Statistics {
        /// The reason, for messages.
        why: String,
    },
    /// The compiled program does not have what this build expects.
    #[error("the program for the kernel has no {missing}; build again")]
    Program {
        /// What is missing.
        missing: &'static str,
    },
}
