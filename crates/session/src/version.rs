//! Which protocol members speak.

/// The version of everything that members say to each other. Different versions refuse each other.
pub const PROTOCOL_VERSION: u16 = 6;
