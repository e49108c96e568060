//! What can go wrong with a data plane.

use std::path::PathBuf;

use mcrdma::Refused;

/// Why a data plane does not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    /// The group is none, or there is no room.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// This build has no program for the kernel.
    #[error(
        "this program was built without the switch in the kernel; build it where clang and libbpf's \
         headers are (Debian: clang, libbpf-dev), or use the switch in userspace"
    )]
    NotBuilt,
    /// The kernel has none, or does not let this process.
    #[error(
        "no switch in this kernel: {why}; it takes Linux 5.17, CAP_BPF and CAP_NET_ADMIN; the switch in userspace takes CAP_NET_RAW alone"
    )]
    NotPossible {
        /// Why not.
        why: String,
    },
    /// The directory for pinned maps.
    #[error("cannot use {} for what the kernel keeps: {source}; it has to be in a BPF file system: mount -t bpf bpf /sys/fs/bpf", directory.display())]
    Directory {
        /// Which.
        directory: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel refused something.
    #[error("the kernel's switch in {}: cannot {step}: {why}", directory.display())]
    Kernel {
        /// What was to be done.
        step: &'static str,
        /// Whose.
        directory: PathBuf,
        /// Why.
        why: String,
    },
    /// A port.
    #[error("port {port}: {why}")]
    Port {
        /// Its name.
        port: String,
        /// Why.
        why: String,
    },
    /// The kernel keeps no statistics of its programs.
    #[error("the kernel cannot keep statistics of its programs: {why}")]
    Statistics {
        /// Why.
        why: String,
    },
    /// The program that was built is not what this needs.
    #[error("the program for the kernel has no {missing}; build again")]
    Program {
        /// What it has not.
        missing: &'static str,
    },
}
