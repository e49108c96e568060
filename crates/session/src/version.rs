//! The version of the protocol between members.

/// The version of all messages between members. Members of different versions refuse each other.
pub const PROTOCOL_VERSION: u16 = 19;
