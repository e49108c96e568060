//! What is measured.

use clap::ValueEnum;
use plan::size;

use crate::report::Output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Members that packets are copied to, each behind a port of its own
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,3,7",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub members: Vec<u32>,
    /// Payload of a packet, at most 4 KiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "1KiB,4KiB",
          value_parser = payload)]
    pub bytes: Vec<u64>,
    /// What is measured; the logic needs neither root nor a network
    #[arg(long, value_delimiter = ',', default_value = "kernel,userspace,sockets,logic")]
    pub planes: Vec<Plane>,
    /// How long packets are sent for
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Packets that the sender sends in a second [default: as many as it can]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub packets_per_s: Option<u64>,
    /// How often each is measured, alternating; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    #[command(flatten)]
    pub output: Output,
}

/// What copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Plane {
    /// The program in the kernel (eBPF)
    Kernel,
    /// Packet sockets and the logic, on a thread for each processor
    Userspace,
    /// Packet sockets alone: copies are sent as by the userspace switch, by a thread that does nothing else
    Sockets,
    /// The logic on memory, without sockets
    Logic,
}

impl Plane {
    /// Why it cannot be measured here.
    pub fn missing(self) -> Option<&'static str> {
        let is_root = rustix::process::geteuid().is_root();
        match self {
            Self::Logic => None,
            _ if !is_root => Some("needs root (network namespaces, packet sockets)"),
            Self::Kernel if !data_plane::HAS_KERNEL_PLANE => {
                Some("this build has no switch in the kernel (Debian: clang, libbpf-dev)")
            }
            _ => None,
        }
    }
}

fn payload(text: &str) -> Result<u64, String> {
    let bytes = size::parse_nonzero(text)?;
    if bytes <= 4096 { Ok(bytes) } else { Err("a packet carries at most 4 KiB".into()) }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("\"{text}\" is not a number"))?;
    if (0.01..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("use 0.01 to 3600".into()) }
}
