//! A process at the other end of a stream whose memory is read, and copies out of it
//! (docs/decisions/one-machine.md).

use std::{
    fmt,
    io::{self, IoSliceMut},
    sync::Arc,
};

use rustix::io::Errno;
use transport::ProcessRange;

use crate::{process::Process, wire::PROOF_BYTES};

/// A process whose memory can be read, and how to tell that it still keeps the memory of what it refers to.
pub(crate) struct Neighbour {
    process: Arc<Process>,
    proof_address: u64,
    proof: [u8; PROOF_BYTES],
}

impl fmt::Debug for Neighbour {
    /// Without what it has to prove.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.process.fmt(formatter)
    }
}

/// The outcome of one copy.
#[derive(Debug)]
pub(crate) enum Copied {
    /// All bytes, while the peer kept them.
    Whole,
    /// The process is gone, or keeps the memory no longer: whatever was copied means nothing.
    Gone,
    /// The peer has named memory that it does not have.
    BadSource,
    /// Local memory cannot be written.
    BadTarget,
    /// The system refuses, for this reason.
    Refused(io::Error),
}

impl Neighbour {
    /// Takes a process that has placed a proof at an address. Errors: it has not, or cannot be read.
    pub(crate) fn new(
        process: Arc<Process>,
        proof_address: u64,
        proof: [u8; PROOF_BYTES],
    ) -> Result<Self, String> {
        let neighbour = Self { process, proof_address, proof };
        match neighbour.read_proof() {
            Ok(true) => Ok(neighbour),
            Ok(false) => Err(format!("process {:?} has other bytes there", neighbour.process)),
            Err(error) => Err(format!("process_vm_readv: {error}")),
        }
    }

    /// Copies from an address in the process. `into` is not empty.
    pub(crate) fn copy(&self, address: u64, into: &mut [u8]) -> Copied {
        let mut proof = [0; PROOF_BYTES];
        let wanted = into.len() + PROOF_BYTES;
        let from = [ProcessRange { address, bytes: into.len() }, self.proof_range()];
        // The proof is read last, from the same address space.
        let copied =
            self.process.read(&from, &mut [IoSliceMut::new(into), IoSliceMut::new(&mut proof)]);
        match copied {
            Ok(bytes) if bytes == wanted && proof == self.proof => Copied::Whole,
            Ok(bytes) if bytes == wanted => Copied::Gone,
            Ok(bytes) => self.blame(address.saturating_add(bytes.min(into.len() - 1) as u64)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::SRCH) => Copied::Gone,
                Some(Errno::FAULT) => self.blame(address),
                _ => Copied::Refused(error),
            },
        }
    }

    /// Returns why a copy has stopped at this address.
    fn blame(&self, address: u64) -> Copied {
        if !self.read_proof().unwrap_or(false) {
            return Copied::Gone;
        }
        let mut byte = [0];
        let from = [ProcessRange { address, bytes: 1 }];
        match self.process.read(&from, &mut [IoSliceMut::new(&mut byte)]) {
            Ok(1) => Copied::BadTarget,
            _ => Copied::BadSource,
        }
    }

    /// Reads the proof. Returns whether it is right.
    fn read_proof(&self) -> io::Result<bool> {
        let mut proof = [0; PROOF_BYTES];
        let from = [self.proof_range()];
        let bytes = self.process.read(&from, &mut [IoSliceMut::new(&mut proof)])?;
        Ok(bytes == PROOF_BYTES && proof == self.proof)
    }

    fn proof_range(&self) -> ProcessRange {
        ProcessRange { address: self.proof_address, bytes: PROOF_BYTES }
    }
}
