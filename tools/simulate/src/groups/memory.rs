//! Checks of memory: its contents, and access to it.
//!
//! A receiver's memory is poisoned before it is provided: every byte is the complement of the byte
//! that it has to become. When it is returned it belongs to the application alone, which overwrites
//! it; the end of the run checks that nothing else has written to it since.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use transport::Region;

/// What an application writes into memory that was returned.
const OWN: u8 = 0x5A;

/// Memory of one application.
#[derive(Debug, Default)]
pub struct Memory {
    group: u64,
    given: BTreeMap<u64, Given>,
    /// Offsets of the blocks that were reported, and their total length.
    reported: BTreeMap<u64, (BTreeSet<usize>, usize)>,
    returned: Vec<Given>,
}

#[derive(Debug)]
struct Given {
    region: Region,
    /// Length of the message; the region may be longer.
    bytes: usize,
    /// Whether the region contains the message because it was sent from here.
    is_source: bool,
    shared: Option<Arc<[u8]>>,
}

/// Returns byte `index` of a message. Blocks of any length differ.
fn byte_of(group: u64, message: u64, index: usize) -> u8 {
    let mixed =
        (index as u64 ^ (message << 20) ^ (group << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

/// Returns a whole message.
fn contents(group: u64, message: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| byte_of(group, message, index)).collect()
}

impl Memory {
    /// Makes the memory of an application in this group.
    pub fn new(group: u64) -> Self {
        Self { group, ..Self::default() }
    }

    /// Returns a message to send.
    pub fn source(&mut self, message: u64, bytes: usize, shared: bool) -> Region {
        let contents = contents(self.group, message, bytes);
        let shared = shared.then(|| Arc::<[u8]>::from(contents.as_slice()));
        let region = match &shared {
            Some(shared) => Region::from_shared(Arc::clone(shared)),
            None => Region::from_vec(contents),
        };
        let given = Given { region: region.clone(), bytes, is_source: true, shared };
        self.given.insert(message, given);
        region
    }

    /// Returns memory to receive into, longer than the message by `extra`.
    pub fn target(&mut self, message: u64, bytes: usize, extra: usize) -> Region {
        let mut poison = contents(self.group, message, bytes + extra);
        poison.iter_mut().for_each(|byte| *byte = !*byte);
        let region = Region::from_vec(poison);
        let given = Given { region: region.clone(), bytes, is_source: false, shared: None };
        self.given.insert(message, given);
        region
    }

    /// Notes that memory that was provided was not taken.
    pub fn forget(&mut self, message: u64) {
        self.given.remove(&message);
    }

    /// Returns the messages whose memory the library holds.
    pub fn given(&self) -> Vec<u64> {
        self.given.keys().copied().collect()
    }

    /// Checks a block that is reported.
    ///
    /// Errors: its contents are wrong, or it cannot be read.
    pub fn check_block(
        &self,
        message: u64,
        range: Range<usize>,
        whole: Whole,
    ) -> Result<(), String> {
        let given =
            self.given.get(&message).ok_or_else(|| format!("message {message} has no memory"))?;
        if range.end > given.bytes {
            return Err(format!("block {range:?} is not in message {message}"));
        }
        self.check_contents(message, given, range, whole)
    }

    /// As [`Memory::check_block`], for a block that was reported separately.
    ///
    /// Errors: also if it was reported before.
    pub fn note_block(
        &mut self,
        message: u64,
        range: Range<usize>,
        whole: Whole,
    ) -> Result<(), String> {
        let (starts, bytes) = self.reported.entry(message).or_default();
        *bytes += range.len();
        if !starts.insert(range.start) {
            return Err(format!("block {range:?} of message {message} is reported again"));
        }
        self.check_block(message, range, whole)
    }

    /// Checks that the library lets nobody write what is still being sent or passed on: a message that was
    /// sent from here, and the first and the last reported block of one that is received.
    ///
    /// Errors: it can be written.
    pub fn check_kept(&self) -> Result<(), String> {
        for (message, given) in self.given.iter().filter(|(_, given)| given.shared.is_none()) {
            let blocks = self.reported.get(message).into_iter().flat_map(|(starts, _)| starts);
            let ends = blocks.clone().next().into_iter().chain(blocks.last());
            let sent = given.is_source.then_some(&0);
            for &start in ends.chain(sent).filter(|&&start| start < given.bytes) {
                if given.region.write(start..start + 1).is_ok() {
                    return Err(format!("byte {start} of message {message} can be written"));
                }
            }
        }
        Ok(())
    }

    /// Returns how many bytes of a message were reported by blocks.
    pub fn bytes_reported(&self, message: u64) -> usize {
        self.reported.get(&message).map_or(0, |(_, bytes)| *bytes)
    }

    /// Checks memory that is returned.
    ///
    /// Errors: it is another region, it is leased, or its contents are wrong.
    pub fn take_back(&mut self, message: u64, region: &Region, whole: Whole) -> Result<(), String> {
        let given = self.given.remove(&message).ok_or_else(|| {
            format!("memory of message {message} comes back, which the library does not have")
        })?;
        if !is_same(&given.region, region) {
            return Err(format!("other memory than was given for message {message} comes back"));
        }
        let whole = if given.is_source { Whole::Yes } else { whole };
        self.check_contents(message, &given, 0..given.bytes, whole)?;
        self.check_tail(message, &given)?;
        if given.shared.is_none() {
            let mut lease = given
                .region
                .write(0..given.region.len())
                .map_err(|error| format!("memory of message {message} comes back, but {error}"))?;
            lease.fill(OWN);
        }
        self.returned.push(given);
        Ok(())
    }

    fn check_contents(
        &self,
        message: u64,
        given: &Given,
        range: Range<usize>,
        whole: Whole,
    ) -> Result<(), String> {
        let lease = given
            .region
            .read(range.clone())
            .map_err(|error| format!("message {message} should be readable: {error}"))?;
        for (&byte, index) in lease.iter().zip(range) {
            let good = byte_of(self.group, message, index);
            if whole != Whole::Unknown && byte != good && (whole == Whole::Yes || byte != !good) {
                return Err(format!(
                    "byte {index} of message {message} is {byte:#04x} and should be {good:#04x}"
                ));
            }
        }
        Ok(())
    }

    fn check_tail(&self, message: u64, given: &Given) -> Result<(), String> {
        let tail = given.bytes..given.region.len();
        let lease = given.region.read(tail.clone()).map_err(|error| error.to_string())?;
        let is_poison = |(&byte, index): (&u8, usize)| byte == !byte_of(self.group, message, index);
        if lease.iter().zip(tail).all(is_poison) {
            Ok(())
        } else {
            Err(format!("bytes behind the end of message {message} were written"))
        }
    }

    /// Checks, after the engine and the network were dropped, that no memory is leased, and that
    /// none was written to after it was returned.
    ///
    /// Errors: some is still leased, or was written to.
    pub fn finish(&mut self) -> Result<(), String> {
        // Memory that was not returned was dropped with its member; its contents may be anything.
        for (message, given) in std::mem::take(&mut self.given) {
            given.let_go().ok_or_else(|| {
                format!("memory of message {message} is still held after its member has gone")
            })?;
        }
        for given in std::mem::take(&mut self.returned) {
            let is_shared = given.shared.is_some();
            let now = given.let_go().ok_or("memory that was handed back is still held")?;
            if !is_shared && now.iter().any(|&byte| byte != OWN) {
                return Err("memory was written after it was handed back".to_owned());
            }
        }
        Ok(())
    }
}

/// Whether all of a message must be in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    /// Every byte.
    Yes,
    /// Every byte is either right or unchanged.
    Partly,
    /// A byte may have been changed on the way.
    Unknown,
}

impl Given {
    /// Returns the bytes, if there is no other reference to the memory.
    fn let_go(self) -> Option<Vec<u8>> {
        let Some(shared) = self.shared else { return self.region.try_into_vec().ok() };
        drop(self.region);
        (Arc::strong_count(&shared) == 1).then(|| shared.to_vec())
    }
}

fn is_same(one: &Region, other: &Region) -> bool {
    let start = |region: &Region| region.read(0..0).map(|lease| lease.as_ptr()).ok();
    one.len() == other.len() && start(one) == start(other)
}
