//! What all programs of this crate that are measured can do.

use super::cell::Cell;
use crate::outcome::Outcome;

/// The operations of one member, on memory of its own.
pub trait Collectives {
    /// Replaces the first bytes of the memory.
    fn put(&mut self, contents: &[u8]) -> Outcome<()>;

    /// The first bytes of the memory.
    fn get(&mut self, bytes: usize) -> Outcome<Vec<u8>>;

    /// Runs an operation on the first bytes of the memory.
    fn run(&mut self, cell: Cell) -> Outcome<()>;

    fn barrier(&mut self) -> Outcome<()>;
}
