//! What can go wrong with a data plane.

use std::path::PathBuf;

use mcrdma::Refused;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a data plane does not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    /// The group is none, or there is no room.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The directory for pinned maps.
    #[error("cannot use {} for what the kernel keeps: {source}; it has to be in a BPF file system: mount -t bpf bpf /sys/fs/bpf", directory.display())]
    Directory {
        /// Which.
        directory: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel refused something.
    #[error("the kernel's switch in {}: cannot {step}: {source}", directory.display())]
    Kernel {
        /// What was to be done.
        step: &'static str,
        /// Whose.
        directory: PathBuf,
        /// Why.
        source: Source,
    },
    /// It was built without a clang that compiles the program for the kernel.
    #[error(
        "this build has no switch in the kernel (Debian: clang, libbpf-dev), only the one in userspace"
    )]
    NotBuilt,
    /// A port.
    #[error("port {port}: {source}")]
    Port {
        /// Its name.
        port: String,
        /// Why.
        source: Source,
    },
    /// The kernel keeps no statistics of its programs.
    #[error("the kernel cannot keep statistics of its programs: {source}")]
    Statistics {
        /// Why.
        source: Source,
    },
    /// The program that was built is not what this needs.
    #[error("the program for the kernel has no {missing}; build again")]
    Program {
        /// What it has not.
        missing: &'static str,
    },
}
