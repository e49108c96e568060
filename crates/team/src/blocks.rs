//! Blocks of long operations that were posted, and the memory into which those are received that are folded.

use std::ops::Range;

use collective::Effect;
use transport::{EndpointId, PostError, Region, Token, Transport};

use crate::operations::Operations;

/// Tokens of blocks have this bit; those of staged slots do not.
const BLOCK: u64 = 1 << 32;

/// One block that was posted.
pub(crate) enum Post {
    /// A send.
    Send { operation: u64, index: u32 },
    /// A receive into this range of memory, or into scratch memory, to be folded into that range.
    Receive { operation: u64, index: u32, place: Range<u64>, scratch: Option<Region> },
}

/// A block that has come into scratch memory.
struct Arrived {
    operation: u64,
    index: u32,
    scratch: Region,
}

/// The blocks that were posted and have not completed.
#[derive(Default)]
pub(crate) struct Blocks {
    posts: Vec<Option<Post>>,
    free: Vec<usize>,
    /// Scratch memory that is not in use, each of one block.
    scratch: Vec<Region>,
    /// Blocks that are to be folded, in the order in which they have come.
    arrived: Vec<Arrived>,
}

impl Blocks {
    /// Posts the receive or the send of an effect. Does nothing if the endpoint has ended: a completion reports that.
    ///
    /// Errors: of the memory or of the transport.
    pub(crate) fn post<T: Transport>(
        &mut self,
        transport: &mut T,
        endpoint: EndpointId,
        operations: &mut Operations,
        effect: &Effect,
    ) -> Result<(), String> {
        let (what, rank, token, posted) = match *effect {
            Effect::Receive { operation, index, from, at, bytes, folds } => {
                let place = at..at + bytes;
                let scratch = folds.then(|| self.take_scratch(bytes as usize));
                let lease = match &scratch {
                    Some(scratch) => {
                        scratch.write(0..bytes as usize).map_err(|error| error.to_string())?
                    }
                    None => operations.write_block(operation, place.clone())?,
                };
                let token = self.add(Post::Receive { operation, index, place, scratch });
                ("a receive from", from, token, transport.post_receive(endpoint, lease, token))
            }
            Effect::Send { operation, index, to, at, bytes } => {
                let lease = operations.read_block(operation, at..at + bytes)?;
                let token = self.add(Post::Send { operation, index });
                ("a send to", to, token, transport.post_send(endpoint, lease, 0, token))
            }
            _ => return Ok(()),
        };
        let Err(error) = posted else { return Ok(()) };
        self.take(token);
        match error {
            PostError::EndpointGone(_) => Ok(()),
            error => Err(format!("{what} member {rank}: {error}")),
        }
    }

    /// Adds a post. Returns its token.
    fn add(&mut self, post: Post) -> Token {
        let at = self.free.pop().unwrap_or_else(|| {
            self.posts.push(None);
            self.posts.len() - 1
        });
        self.posts[at] = Some(post);
        Token(BLOCK | at as u64)
    }

    /// Takes a post that has completed; `None` for the token of something else.
    pub(crate) fn take(&mut self, token: Token) -> Option<Post> {
        let at = (token.0 & BLOCK != 0).then_some((token.0 ^ BLOCK) as usize)?;
        let post = self.posts.get_mut(at)?.take()?;
        self.free.push(at);
        Some(post)
    }

    /// Returns scratch memory of at least this many bytes.
    fn take_scratch(&mut self, bytes: usize) -> Region {
        let found = self.scratch.iter().position(|region| region.len() >= bytes);
        found.map_or_else(|| Region::zeroed(bytes), |at| self.scratch.swap_remove(at))
    }

    /// Takes the block of a receive that has completed, and keeps it if it came into scratch memory, until it is folded. Returns its
    /// operation and its index; `None` for the token of something else.
    ///
    /// Errors: it has another length.
    pub(crate) fn come(
        &mut self,
        token: Token,
        bytes: u64,
    ) -> Option<Result<(u64, u32), &'static str>> {
        let Post::Receive { operation, index, place, scratch } = self.take(token)? else {
            return None;
        };
        if bytes != place.end - place.start {
            return Some(Err("a block of another length than the operation's"));
        }
        let arrived = scratch.map(|scratch| Arrived { operation, index, scratch });
        self.arrived.extend(arrived);
        Some(Ok((operation, index)))
    }

    /// Folds a block that has come into a range of the operation's memory.
    ///
    /// Errors: that is in use.
    pub(crate) fn fold(
        &mut self,
        operations: &mut Operations,
        operation: u64,
        index: u32,
        place: Range<u64>,
    ) -> Result<(), String> {
        let is_it = |block: &Arrived| block.operation == operation && block.index == index;
        let at = self.arrived.iter().position(is_it).ok_or("a block that has not come")?;
        let scratch = self.arrived.remove(at).scratch;
        let folded = operations.fold_block(operation, place, &scratch);
        self.scratch.push(scratch);
        folded
    }
}
