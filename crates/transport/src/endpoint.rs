//! What endpoints and posts are called.

/// The most bytes that one control word carries.
pub const CONTROL_BYTES_MAX: usize = 64;

/// One end of a connection to one peer; unique within its transport, never used again after close.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EndpointId(pub u64);

/// The caller's name for a posted operation; comes back unchanged in its completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Token(pub u64);
