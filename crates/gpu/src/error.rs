//! Errors.

use std::time::Duration;

use rdmc::LeaseError;

/// An error of a call that uses a GPU.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver's library cannot be opened.
    #[error(
        "no NVIDIA driver: {library} cannot be opened: {cause}; install the driver (nvidia-smi says whether it works), or use memory of the host"
    )]
    NoDriver {
        /// Its name or path.
        library: String,
        /// The loader's words.
        cause: String,
    },
    /// The library lacks a function.
    #[error("{library} has no {symbol}: install an NVIDIA driver for CUDA 11 or later")]
    NoSymbol {
        /// Its name or path.
        library: String,
        /// The name of the call.
        symbol: String,
    },
    /// A call of the driver has failed.
    #[error("CUDA error {code} ({text}) in {call}{}", remedy(*code))]
    Cuda {
        /// The `CUresult`.
        code: i32,
        /// What the driver calls it.
        text: String,
        /// The call, and what it was to do.
        call: String,
    },
    /// No device has this number.
    #[error(
        "there is no CUDA device {ordinal}: {devices} are visible (see CUDA_VISIBLE_DEVICES and nvidia-smi)"
    )]
    NoDevice {
        /// The number that was asked for.
        ordinal: u32,
        /// How many devices this process sees.
        devices: u32,
    },
    /// An address is not memory of the device.
    #[error("{bytes} bytes at {address:#x}: {what}")]
    Memory {
        /// Where it begins.
        address: u64,
        /// Its length in bytes.
        bytes: u64,
        /// What it is instead, and a remedy.
        what: String,
    },
    /// Host or device memory does not have the length that the call needs, or a setting is out of range.
    #[error("{0}")]
    Call(String),
    /// Memory of the host is in use, or cannot be used.
    #[error("the host's memory: {0}")]
    Lease(#[from] LeaseError),
    /// The device has not completed its work in time. Memory that it may still use is not freed.
    #[error("{what} took longer than {} ms", timeout.as_millis())]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        timeout: Duration,
    },
    /// The group or team has failed, or has refused the call.
    #[error(transparent)]
    Rdmc(#[from] rdmc::Error),
}

impl Error {
    /// Returns the reason for other members, each of which gets about 60 bytes of it.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Cuda { code, call, .. } => format!("CUDA error {code} in {call}"),
            Self::Timeout { timeout, .. } => format!("a GPU needs over {} ms", timeout.as_millis()),
            other => other.to_string(),
        }
    }
}

/// What to do about errors of the driver whose text does not say it.
fn remedy(code: i32) -> &'static str {
    match code {
        2 => "; free memory, or stage through fewer or shorter buffers",
        3 => {
            "; CUDA cannot be used in a process that was forked after it was used: start processes by spawn"
        }
        100 => "; look at CUDA_VISIBLE_DEVICES and nvidia-smi",
        802 => "; machines with NVSwitch need nvidia-fabricmanager to run",
        803 => {
            "; the kernel's module and the library have different versions: restart the machine after an update"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_driver_say_what_to_do() {
        let error = |code| Error::Cuda {
            code,
            text: "out of memory".into(),
            call: "cuMemHostAlloc of 5 bytes".into(),
        };
        let text = error(2).to_string();
        assert!(
            text.starts_with("CUDA error 2 (out of memory) in cuMemHostAlloc of 5 bytes; free")
        );
        assert!(error(700).to_string().ends_with("of 5 bytes"));
        assert_eq!(error(2).reason(), "CUDA error 2 in cuMemHostAlloc of 5 bytes");
    }
}
