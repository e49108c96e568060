//! A process at the other end of a connection whose memory is read, and copies out of it
//! (docs/decisions/one-machine.md).

use std::{
    fmt,
    io::{self, IoSliceMut},
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::{process::ProcessRange, process_handle::Process};

/// The length of a proof.
pub const PROOF_BYTES: usize = 16;

/// Bytes that a reader has drawn, in memory of this process, where the reader finds them: as long as they are there, what
/// this process has referred it to is there, too. Dropping it overwrites them first.
pub struct Proof(Zeroizing<Vec<u8>>);

impl Proof {
    /// Places the bytes.
    pub fn place(proof: [u8; PROOF_BYTES]) -> Self {
        Self(Zeroizing::new(proof.to_vec()))
    }

    /// Returns the address for the reader.
    pub fn address(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    /// Overwrites the bytes. From now on no copy of a reader counts.
    pub fn withdraw(self) {
        drop(self.0);
        // A reader that finds the memory of a block changed finds the proof changed, too.
        fence(Ordering::SeqCst);
    }
}

/// A process whose memory can be read, and how to tell that it still keeps the memory of what it refers to.
pub struct Neighbour {
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
pub enum Copied {
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
    /// Takes a process that has placed a proof at an address. The bytes have to be drawn after the process was opened: others
    /// may be in a program anyway. Errors: it has not, or cannot be read.
    pub fn new(
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

    /// Copies from an address in the process. `into` is not empty. Does not wait for the process, but for its memory
    /// ([`crate::copy_from_process`]).
    pub fn copy(&self, address: u64, into: &mut [u8]) -> Copied {
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
