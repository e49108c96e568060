//! Limits of a switch.

/// Members of a group at one switch.
pub const MEMBERS_MAX: usize = 64;
/// Memory regions of a member.
pub const REGIONS_MAX: usize = 1024;
/// Memory regions of all members of all groups of a switch.
pub const REGIONS_TOTAL_MAX: usize = 1 << 20;
/// Ingress ports (equal-cost paths) of a group, or of a member's answers.
pub const PORTS_MAX: usize = 16;
/// Groups of a switch.
pub const GROUPS_MAX: usize = 65_536;
/// Branches of all groups of a switch; also members of all groups whose answers it merges.
pub const PLACES_MAX: usize = 262_144;
