//! Keys and values of the program's maps, as `bpf/tables.h` declares and documents them. Numbers are in
//! host byte order; addresses have 16 bytes, IPv4 as `::ffff:a.b.c.d`.
//!
//! The assertions below and those in `bpf/tables.h` state the same sizes and offsets, so that neither
//! side builds with another layout.

use std::mem::offset_of;

use mcrdma::{Counter, MEMBERS_MAX, PORTS_MAX, REGIONS_MAX};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub type Address = [u8; 16];

/// Regions of a member that one entry has.
pub const CHUNK_REGIONS: usize = 16;
const CHUNKS_MAX: usize = REGIONS_MAX / CHUNK_REGIONS;
/// Number of the entry with the first addresses of all chunks.
pub const STARTS: u32 = u32::MAX;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GroupKey {
    pub sender: Address,
    /// The group's identifier; in keys of `senders` and `answers` the sender's queue pair.
    pub id: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Branch {
    pub port: u32,
    pub qpn: u32,
    pub psn_offset: u32,
    pub mac: [u8; 6],
    pub rewrites: u8,
    pub chunks: u8,
    pub target: Address,
    pub crc: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Group {
    pub sender_qpn: u32,
    pub count: u32,
    pub generation: u64,
    pub is_traced: u32,
    pub entered: u32,
    pub inputs: [u32; PORTS_MAX],
    pub branches: [Branch; MEMBERS_MAX],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct RegionsKey {
    pub generation: u64,
    pub branch: u32,
    pub chunk: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Region {
    pub start: u64,
    pub bytes: u64,
    pub member_start: u64,
    pub member_key: u32,
    pub unused: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Regions {
    pub all: [Region; CHUNK_REGIONS],
}

/// In place of [`Regions`], with [`STARTS`].
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Starts {
    pub starts: [u64; CHUNKS_MAX],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Sender {
    pub virtual_address: Address,
    pub present: u64,
    pub count: u32,
    pub forward_all: u32,
    pub id: u32,
    pub is_answered: u32,
    pub is_traced: u32,
    pub unused: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct MemberKey {
    pub sender: Address,
    pub qpn: u32,
    pub member: Address,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Member {
    pub index: u32,
    pub ports: [u32; PORTS_MAX],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Way {
    pub port: u32,
    /// The VLAN tag, and [`HAS_TAG`].
    pub tag: u32,
    pub ethernet: [u8; 12],
}

/// In [`Way::tag`].
pub const HAS_TAG: u32 = 0x1_0000;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Record {
    pub expected: u32,
    pub msn: u32,
    pub credits: u32,
    pub is_nak_pending: u32,
    pub psn_offset: u32,
    pub notified: u32,
    pub notified_ns: u64,
    pub way: Way,
    pub paced: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Answered {
    pub forwarded: [u64; 4],
    pub suppressed: [u64; 4],
    pub dropped: u64,
    pub icrc_errors: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Answers {
    pub lock: u32,
    pub forwarded: u32,
    pub nak_number: u32,
    pub wait_number: u32,
    pub nak_until_ns: u64,
    pub wait_until_ns: u64,
    pub notified_ns: u64,
    pub notified: u32,
    pub unused: u32,
    pub records: [Record; MEMBERS_MAX],
    pub answered: [Answered; MEMBERS_MAX],
}

/// Of one processor.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Traffic {
    pub counts: [u64; Counter::ALL.len()],
    pub request_bytes: u64,
    pub trace_lost: u64,
}

/// As `bpf/trace.h` has it; of `ports` only `count` are there.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Event {
    pub at_ns: u64,
    pub group: GroupKey,
    pub port: u32,
    pub opcode: u32,
    pub psn: u32,
    pub syndrome: u32,
    pub counter: u32,
    pub source: Address,
    pub failed: u64,
    pub count: u32,
    pub unused: u32,
}

macro_rules! layout {
    ($($entry:ident: $bytes:literal { $($field:ident: $offset:literal),+ })+) => {
        $(
            const _: () = assert!(size_of::<$entry>() == $bytes);
            $(const _: () = assert!(offset_of!($entry, $field) == $offset);)+
        )+
    };
}

layout! {
    GroupKey: 20 { sender: 0, id: 16 }
    Branch: 40 { port: 0, qpn: 4, psn_offset: 8, mac: 12, rewrites: 18, chunks: 19, target: 20, crc: 36 }
    Group: 2648 {
        sender_qpn: 0, count: 4, generation: 8, is_traced: 16, entered: 20, inputs: 24, branches: 88
    }
    RegionsKey: 16 { generation: 0, branch: 8, chunk: 12 }
    Region: 32 { start: 0, bytes: 8, member_start: 16, member_key: 24, unused: 28 }
    Regions: 512 { all: 0 }
    Starts: 512 { starts: 0 }
    Sender: 48 {
        virtual_address: 0, present: 16, count: 24, forward_all: 28, id: 32, is_answered: 36,
        is_traced: 40, unused: 44
    }
    MemberKey: 36 { sender: 0, qpn: 16, member: 20 }
    Member: 68 { index: 0, ports: 4 }
    Way: 20 { port: 0, tag: 4, ethernet: 8 }
    Record: 56 {
        expected: 0, msn: 4, credits: 8, is_nak_pending: 12, psn_offset: 16, notified: 20,
        notified_ns: 24, way: 32, paced: 52
    }
    Answered: 80 { forwarded: 0, suppressed: 32, dropped: 64, icrc_errors: 72 }
    Answers: 8752 {
        lock: 0, forwarded: 4, nak_number: 8, wait_number: 12, nak_until_ns: 16, wait_until_ns: 24,
        notified_ns: 32, notified: 40, unused: 44, records: 48, answered: 3632
    }
    Traffic: 184 { counts: 0, request_bytes: 168, trace_lost: 176 }
    Event: 80 {
        at_ns: 0, group: 8, port: 28, opcode: 32, psn: 36, syndrome: 40, counter: 44, source: 48,
        failed: 64, count: 72, unused: 76
    }
}
