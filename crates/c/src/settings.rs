//! Structs of settings, which begin with their size.

use std::ffi::c_char;

use rdmc::{
    ContextSettings, Fabric, GroupSettings, Progress, Protection, Scheduling, Secret, TeamSettings,
    WaySelection, Window,
};

use crate::{
    error::{Outcome, Problem},
    guard::missing,
    text::{address, addresses, milliseconds, optional, required},
};

/// A C struct whose first field is its size.
///
/// # Safety
/// All-zero bytes are a valid value, and the first field is a `usize`.
pub(crate) unsafe trait SizedSettings: Copy {
    /// The name of the argument, for errors.
    const NAME: &'static str = "settings";
}

/// The settings of a context. A field that is 0 or NULL selects the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ContextOptions {
    /// The size of this struct: `sizeof(rdmc_context_settings)`.
    pub size: usize,
    /// Required: the address to which other members connect, for example 10.0.0.1:7000; with port 0 the system selects a port.
    pub listen: *const c_char,
    /// Required: 64 hexadecimal digits that only the members know (`rdmc secret` generates them).
    pub secret: *const c_char,
    /// The network for blocks: tcp (the default), verbs, efa, cxi, shm ...; the same at all members.
    pub fabric: *const c_char,
    /// The protection of blocks: encrypt, which refuses networks that do not encrypt, or none. By default blocks over TCP are encrypted.
    /// The same at all members.
    pub protection: *const c_char,
    /// The time limit for creating a group, in milliseconds; 30,000 by default.
    pub connect_timeout_ms: u64,
    /// A neighbour from which nothing is received for this many milliseconds is considered lost; 5,000 by default.
    pub silence_timeout_ms: u64,
    /// The rate limit of this context in bytes per second, for each direction; 0 for no limit.
    pub rate_max: u64,
    /// TCP connections to each neighbour, 1 (the default) to 8; the same at all members.
    pub streams: u32,
    /// How many threads move bytes, at most 8; each serves its share of the streams. By default one for each stream, but at most 4, and
    /// at most half as many as there are processors.
    pub threads: u32,
    /// 0: a thread of the context makes progress. 1: `rdmc_progress` and calls that wait make progress.
    pub caller_makes_progress: u32,
}

/// The settings of a group. A field that is 0 or NULL selects the default. All fields except `rank`, `report_blocks`, the
/// windows, `report_delivered`, `stall_timeout_ms`, `connect_timeout_ms`, `send_queue_max`, `receive_bytes_max`, `message_bytes`
/// and `rate_bits_per_second` must be the same at all members. A member that leaves algorithm or block size open gets the root's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GroupOptions {
    /// The size of this struct: `sizeof(rdmc_group_settings)`.
    pub size: usize,
    /// Identifies the group; unique among the groups and teams of its members' contexts.
    pub number: u64,
    /// Required: the address of each member's context, by rank.
    pub members: *const *const c_char,
    /// Number of members.
    pub member_count: u32,
    /// The rank of this member.
    pub rank: u32,
    /// The rank of the member that sends.
    pub root: u32,
    /// 1 if the callback `block` is called, 0 if not.
    pub report_blocks: u32,
    /// The name of the algorithm, as printed by `rdmc plan`. NULL or "auto": the root chooses the fastest by the cost model, and
    /// the other members learn the choice. `rdmc_group_algorithm` reports it.
    pub algorithm: *const c_char,
    /// The rack number of each rank, `member_count` numbers; NULL: all members are in one rack.
    pub racks: *const u32,
    /// The block length in bytes. By default the root chooses the fastest by the cost model, at most 16 MiB, and the other
    /// members learn the choice; `rdmc_group_block_bytes` reports it. Larger blocks cost less processor time; smaller blocks
    /// fill pipelines sooner.
    pub block_bytes: u64,
    /// The maximum memory in bytes that the library allocates for messages not yet received; 256 MiB by default.
    pub receive_bytes_max: u64,
    /// How long a due transfer may make no progress before the group fails, in milliseconds; 60,000 by default.
    pub stall_timeout_ms: u64,
    /// The maximum number of messages in flight, 1 to 1,024; 2 by default.
    pub messages_in_flight: u32,
    /// The maximum number of incomplete messages queued at the root; 64 by default.
    pub send_queue_max: u32,
    /// Receives posted ahead. If neither window is set, each is 512 KiB of blocks, but at least 8 blocks and 4 per partner
    /// (`ceil(log2 member_count)` partners), and at most 64; if only one is set, the other is 8.
    pub window_receives: u32,
    /// Sends posted ahead; see `window_receives`.
    pub window_sends: u32,
    /// 1 if the callback `delivered` is called at the root for each message, 0 if not.
    pub report_delivered: u32,
    /// 1 if each member compares its copy of every message with the root's by a digest, before it reports the message as
    /// received; 0 if not. If a copy differs, the group fails with `RDMC_DIFFERS`, which names the member.
    pub verify: u32,
    /// The length of a typical message in bytes, for the root's choice of algorithm and block size; 16 MiB by default.
    pub message_bytes: u64,
    /// The rate of each member's link in bits per second, for the same choice. Default: the rate at which the processors copy if
    /// all members are on one machine; otherwise, over TCP, that of the root's interface, or 10 Gbit/s if the system does not
    /// know it; 100 Gbit/s over other fabrics.
    pub rate_bits_per_second: u64,
    /// The time limit for creating the group, in milliseconds; the context's `connect_timeout_ms` by default.
    pub connect_timeout_ms: u64,
}

/// The settings of a team. A field that is 0 or NULL selects the default. All fields except `rank` and
/// `connect_timeout_ms` must be the same at all members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TeamOptions {
    /// The size of this struct: `sizeof(rdmc_team_settings)`.
    pub size: usize,
    /// Identifies the team; unique among the groups and teams of its members' contexts.
    pub number: u64,
    /// Required: the address of each member's context, by rank.
    pub members: *const *const c_char,
    /// Number of members, at most 65,536.
    pub member_count: u32,
    /// The rank of this member.
    pub rank: u32,
    /// Slots in each ring of a link, at most 4,096; 16 by default.
    pub slots: u32,
    /// Length of a slot in bytes, 64 to 1 MiB; 32 KiB by default.
    pub slot_bytes: u32,
    /// How the algorithm of each operation is chosen: by the costs of a cost model, such as `"Tt=0.01,Ts=2"`, or by fixed lengths,
    /// such as `"degree=3,exchange=0"` (docs/internals/schedules.md). By default by the costs of rank 0's network, some of which it
    /// measures.
    pub ways: *const c_char,
    /// The time limit for creating the team, in milliseconds; the context's `connect_timeout_ms` by default.
    pub connect_timeout_ms: u64,
}

// SAFETY: numbers, pointers that may be null; the size comes first.
unsafe impl SizedSettings for ContextOptions {}
// SAFETY: as above.
unsafe impl SizedSettings for GroupOptions {}
// SAFETY: as above.
unsafe impl SizedSettings for TeamOptions {}

/// Reads settings of any size. Fields that an older program lacks are zero; fields that only a newer program has must be zero.
///
/// # Safety
/// `settings` is null, or points to as many bytes as its first field states. Errors: `settings` is null, has an invalid size,
/// or sets a field that this library does not know.
pub(crate) unsafe fn read<T: SizedSettings>(settings: *const T) -> Outcome<T> {
    if settings.is_null() {
        return Err(missing(T::NAME));
    }
    // SAFETY: `settings` is not null, so it begins with its size; an unaligned read needs no alignment.
    let size = unsafe { settings.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=1 << 16).contains(&size) {
        let name = T::NAME;
        let text = format!("the size of {name} is {size}; set it to sizeof of the struct");
        return Err(Problem::invalid(text));
    }
    let known = size.min(size_of::<T>());
    for at in known..size {
        // SAFETY: `at` is less than the size, and `settings` has that many bytes.
        if unsafe { settings.cast::<u8>().add(at).read() } != 0 {
            let text = format!(
                "the settings use a field at byte {at} that rdmc {} does not have; install a newer librdmc",
                env!("CARGO_PKG_VERSION")
            );
            return Err(Problem::invalid(text));
        }
    }
    let mut read = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both have `known` bytes, and they do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(settings.cast::<u8>(), read.as_mut_ptr().cast::<u8>(), known)
    };
    // SAFETY: bytes that were not copied are zero, which the trait allows.
    Ok(unsafe { read.assume_init() })
}

/// Calls `set` unless the value selects the default.
fn given<S, V: Default + PartialEq>(settings: S, value: V, set: impl FnOnce(S, V) -> S) -> S {
    if value == V::default() { settings } else { set(settings, value) }
}

fn flag(value: u32, name: &str) -> Outcome<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Problem::invalid(format!("{name} is {other}; use 0 or 1"))),
    }
}

impl ContextOptions {
    /// # Safety
    /// Its texts are valid during the call. Errors: a text is missing or invalid.
    pub(crate) unsafe fn settings(&self) -> Outcome<ContextSettings> {
        // SAFETY: `listen` and `secret` are null or NUL-terminated, and valid during this call.
        let (listen, secret) =
            unsafe { (required(self.listen, "listen")?, required(self.secret, "secret")?) };
        // SAFETY: `fabric` and `protection` are null or NUL-terminated, and valid during this call.
        let (fabric, protection) =
            unsafe { (optional(self.fabric, "fabric")?, optional(self.protection, "protection")?) };
        let secret = Secret::from_hex(secret).map_err(Problem::invalid)?;
        let mut made = ContextSettings::new(address(listen, "listen")?, secret);
        if let Some(fabric) = fabric {
            made = made.fabric(fabric.parse::<Fabric>()?);
        }
        if let Some(protection) = protection {
            made = made.protection(protection.parse::<Protection>()?);
        }
        if flag(self.caller_makes_progress, "caller_makes_progress")? {
            made = made.progress(Progress::Caller);
        }
        let mut tcp = made.tcp.clone();
        if self.silence_timeout_ms > 0 {
            tcp.silence_timeout = milliseconds(self.silence_timeout_ms);
        }
        if self.threads > 0 {
            tcp.threads = Some(u8::try_from(self.threads).unwrap_or(u8::MAX));
        }
        made = made.tcp(tcp);
        if self.streams > 0 {
            let streams = u8::try_from(self.streams).unwrap_or(u8::MAX);
            made = made.streams(streams);
        }
        made =
            given(made, self.connect_timeout_ms, |made, ms| made.connect_timeout(milliseconds(ms)));
        Ok(given(made, self.rate_max, |made, rate| made.rate_max(Some(rate))))
    }
}

impl GroupOptions {
    /// # Safety
    /// Its texts and lists are valid during the call. Errors: one is missing or invalid.
    pub(crate) unsafe fn settings(&self) -> Outcome<GroupSettings> {
        // SAFETY: `members` is null or has `member_count` texts, each NUL-terminated.
        let members = unsafe { addresses(self.members, self.member_count) }?;
        // SAFETY: `algorithm` is null or NUL-terminated, and valid during this call.
        let algorithm = unsafe { optional(self.algorithm, "algorithm") }?;
        let mut made = GroupSettings::new(self.number, members, self.rank).root(self.root);
        let mut scheduling = algorithm.map_or(Ok(Scheduling::Auto), str::parse)?;
        if !self.racks.is_null() {
            // SAFETY: `racks` is not null, so it has a number for each member.
            let racks =
                unsafe { std::slice::from_raw_parts(self.racks, self.member_count as usize) };
            scheduling = scheduling.in_racks(racks.to_vec());
        }
        made = made.schedule(scheduling);
        if self.window_receives > 0 || self.window_sends > 0 {
            let Window { receives, sends } = Window::default();
            let or = |value: u32, default| if value > 0 { value } else { default };
            made = made.window(Window {
                receives: or(self.window_receives, receives),
                sends: or(self.window_sends, sends),
            });
        }
        made = made.report_blocks(flag(self.report_blocks, "report_blocks")?);
        made = made.report_delivered(flag(self.report_delivered, "report_delivered")?);
        made = made.verify(flag(self.verify, "verify")?);
        made = given(made, self.message_bytes, GroupSettings::message_bytes);
        made = given(made, self.rate_bits_per_second, GroupSettings::rate_bits_per_second);
        made = given(made, self.block_bytes, GroupSettings::block_bytes);
        made = given(made, self.receive_bytes_max, GroupSettings::receive_bytes_max);
        made = given(made, self.messages_in_flight, GroupSettings::messages_in_flight);
        made = given(made, self.send_queue_max, GroupSettings::send_queue_max);
        made =
            given(made, self.connect_timeout_ms, |made, ms| made.connect_timeout(milliseconds(ms)));
        Ok(given(made, self.stall_timeout_ms, |made, ms| made.stall_timeout(milliseconds(ms))))
    }
}

impl TeamOptions {
    /// # Safety
    /// Its texts are valid during the call. Errors: a text is missing or invalid.
    pub(crate) unsafe fn settings(&self) -> Outcome<TeamSettings> {
        // SAFETY: `members` is null or has `member_count` texts, each NUL-terminated.
        let members = unsafe { addresses(self.members, self.member_count) }?;
        // SAFETY: `ways` is null or NUL-terminated, and valid during this call.
        let ways = unsafe { optional(self.ways, "ways") }?;
        let made = TeamSettings::new(self.number, members, self.rank);
        let made = given(made, self.slots, TeamSettings::slots);
        let made = given(made, self.slot_bytes, TeamSettings::slot_bytes);
        let ways = ways.map(|text| {
            text.parse::<WaySelection>().map_err(|error| Problem::invalid(error.to_string()))
        });
        let ways = ways.transpose()?;
        let made = ways.into_iter().fold(made, TeamSettings::ways);
        Ok(given(made, self.connect_timeout_ms, |made, ms| made.connect_timeout(milliseconds(ms))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> TeamOptions {
        // SAFETY: all zero is allowed.
        let zero: TeamOptions = unsafe { std::mem::zeroed() };
        TeamOptions { size: size_of::<TeamOptions>(), number: 7, slots: 3, ..zero }
    }

    #[test]
    fn an_older_program_has_defaults_for_what_it_does_not_know() {
        let mut options = options();
        options.size = std::mem::offset_of!(TeamOptions, slots);
        // SAFETY: it has more bytes than its size says.
        let read = unsafe { read(&raw const options) }.unwrap();
        assert_eq!((read.number, read.slots), (7, 0));
    }

    #[test]
    fn a_newer_program_may_not_set_what_this_library_does_not_know() {
        #[repr(C)]
        struct Newer(TeamOptions, u64);
        let mut newer = Newer(options(), 0);
        newer.0.size = size_of::<Newer>();
        // SAFETY: it has as many bytes as its size says.
        let read = |newer: &Newer| unsafe { read((&raw const *newer).cast::<TeamOptions>()) };
        assert_eq!(read(&newer).unwrap().slots, 3);
        newer.1 = 1 << 40;
        let error = format!("{:?}", read(&newer).unwrap_err());
        assert!(error.contains("install a newer librdmc"), "{error}");
        newer.0.size = 0;
        assert!(read(&newer).is_err());
    }

    #[test]
    fn ways_are_read_from_text() {
        let members = [c"127.0.0.1:1".as_ptr()];
        let ways = |text: *const c_char| {
            let mut options = options();
            (options.members, options.member_count, options.ways) = (members.as_ptr(), 1, text);
            // SAFETY: its texts are valid.
            unsafe { options.settings() }
        };
        assert_eq!(ways(std::ptr::null()).unwrap().ways, None);
        let given = ways(c"degree=7".as_ptr()).unwrap().ways.unwrap().to_string();
        assert_eq!(given, "degree=7,exchange=16384,long=131072,block=131072");
        let error = format!("{:?}", ways(c"Tx=1".as_ptr()).unwrap_err());
        assert!(error.contains("is none of Tt, Tc,"), "{error}");
    }
}
