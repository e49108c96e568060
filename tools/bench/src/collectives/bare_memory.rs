//! Broadcast and allreduce of 4 bytes by nothing but loads and stores: the least that members on one machine can take.

use super::{
    barrier::{Word, Words},
    cell::{Cell, Operation},
    group::Collectives,
};
use crate::outcome::Outcome;

/// The only length.
pub const BYTES: u64 = 4;

/// A member that stores its value and the number of the operation as one word, and polls the words of others. Members
/// pass a barrier between two operations: a word is replaced only after all have seen it.
pub struct BareMember {
    words: Words,
    operations: u32,
    value: [u8; BYTES as usize],
}

impl BareMember {
    pub fn new(words: Words) -> Self {
        Self { words, operations: 0, value: [0; BYTES as usize] }
    }

    fn publish(&self) -> Outcome<()> {
        let word = u64::from(self.operations) << 32 | u64::from(u32::from_le_bytes(self.value));
        self.words.publish(Word::Value, word)
    }

    /// The value of a member in this operation.
    fn value_of(&self, member: usize) -> Outcome<[u8; BYTES as usize]> {
        let is_it = |word| word >> 32 == u64::from(self.operations);
        Ok((self.words.wait(member, Word::Value, is_it)? as u32).to_le_bytes())
    }
}

impl Collectives for BareMember {
    fn put(&mut self, contents: &[u8]) -> Outcome<()> {
        self.value = contents.try_into()?;
        Ok(())
    }

    fn get(&mut self, bytes: usize) -> Outcome<Vec<u8>> {
        Ok(self.value[..bytes].to_vec())
    }

    fn run(&mut self, cell: Cell) -> Outcome<()> {
        self.operations += 1;
        match cell.operation {
            Operation::Broadcast => {
                if self.words.rank() == 0 {
                    self.publish()?;
                }
                self.value = self.value_of(0)?;
            }
            Operation::AllReduce => {
                self.publish()?;
                let mut sum = 0.0;
                for member in 0..self.words.members() {
                    sum += f32::from_le_bytes(self.value_of(member)?);
                }
                self.value = sum.to_le_bytes();
            }
        }
        Ok(())
    }

    /// All that it has begun is done.
    fn barrier(&mut self) -> Outcome<()> {
        Ok(())
    }
}
