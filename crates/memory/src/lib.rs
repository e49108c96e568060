//! Memory that blocks are sent from and received into.
//!
//! A [`Region`] is memory, or a part of a file; its bytes are accessed through leases of ranges,
//! which are checked when they are taken ([`ReadLease`], [`WriteLease`], [`FutureRead`] and
//! [`ArrivingRead`] of memory, [`StoredRead`] and [`StoredWrite`] of files). A [`Reservation`] protects
//! data that is still to be relayed from being overwritten. [`PeerMemory`] is memory that peers write by
//! one-sided writes; processes of this machine can map it ([`PeerMemory::share`]). [`copy_from_process`] copies
//! memory from another process of this machine, [`Neighbour`] only while that consents, and [`peer_credentials`]
//! identifies the process that made a connection to a Unix socket. All `unsafe` code that transports share is in this crate.

mod arriving;
mod bytes;
mod lease;
mod ledger;
mod lend;
mod neighbour;
mod pages;
mod peer_memory;
mod pool;
mod process;
mod process_handle;
mod region;
mod reservation;
mod storage;
mod stored;
mod zeros;

pub use arriving::{Arriving, ArrivingRead};
pub use bytes::{Attachment, Memory};
pub use lease::{FutureRead, ReadLease, WriteLease};
pub use ledger::LeaseError;
pub use lend::lend;
pub use neighbour::{Copied, Neighbour, PROOF_BYTES, Proof};
pub use pages::FileAccess;
pub use peer_memory::PeerMemory;
pub use pool::RegionPool;
pub use process::{PeerCredentials, ProcessRange, copy_from_process, peer_credentials};
pub use process_handle::{Process, check_unprivileged};
pub use region::{Region, RegionError};
pub use reservation::Reservation;
pub use storage::Storage;
pub use stored::{StoredRead, StoredWrite};
