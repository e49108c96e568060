//! What a switch has room for.

/// Members of a group at one switch.
pub const MEMBERS_MAX: usize = 64;
/// Memory regions of a member.
pub const REGIONS_MAX: usize = 16;
/// Equally good ports of a switch at which a group, or a member's answers, may come in.
pub const PORTS_MAX: usize = 16;
/// Groups of a switch.
pub const GROUPS_MAX: usize = 65_536;

/// Copies that a switch makes of all groups' packets together: branches. As many members, of all groups
/// together, may have their answers merged there.
pub const PLACES_MAX: usize = 262_144;
