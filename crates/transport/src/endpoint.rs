//! Identifiers of endpoints and posts.

/// The most bytes that one control word carries.
pub const CONTROL_BYTES_MAX: usize = 64;

/// Identifies one end of a connection to one peer; unique within its transport, never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EndpointId(pub u64);

/// Identifies a posted operation; chosen by the caller, returned unchanged in the completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Token(pub u64);
