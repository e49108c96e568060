//! `librdmc`: the library for C (header `include/rdmc.h`) and C++ (header `include/rdmc.hpp`).
//!
//! The header begins with the rules for all functions; docs/decisions/c-interface.md gives the reasons.
//! Each function checks its arguments, turns panics into codes, and writes errors to the caller's `rdmc_error`.

mod buffer;
mod callbacks;
mod context;
mod device;
mod error;
mod group;
mod guard;
mod message;
mod settings;
mod team;
mod text;

use std::ffi::{CStr, c_char};

pub use buffer::{
    Buffer, MemoryRegion, rdmc_allocate, rdmc_region_buffer, rdmc_region_create, rdmc_region_free,
};
pub use callbacks::{Answer, CallbackFunctions};
pub use context::{
    Context, Counters, rdmc_context_address, rdmc_context_close, rdmc_context_counters,
    rdmc_context_fd, rdmc_context_free, rdmc_context_start, rdmc_progress, rdmc_secret_random,
};
pub use device::{
    DeviceHandle, rdmc_device_free, rdmc_device_open, rdmc_device_settle,
    rdmc_team_all_reduce_device, rdmc_team_broadcast_device,
};
pub use error::{Code, Error, TEXT_BYTES};
pub use group::{
    Group, rdmc_accept, rdmc_delivered, rdmc_group_abort, rdmc_group_close, rdmc_group_create,
    rdmc_group_create_with_callbacks, rdmc_group_failure, rdmc_group_free, rdmc_group_start_close,
    rdmc_post_receive_buffer, rdmc_receive, rdmc_send, rdmc_wait_complete, rdmc_wait_delivered,
};
pub use message::{
    Message, rdmc_message_data, rdmc_message_finish, rdmc_message_free, rdmc_message_length,
    rdmc_message_next_block, rdmc_message_number, rdmc_message_read,
};
pub use settings::{ContextOptions, GroupOptions, TeamOptions};
pub use team::{
    ElementType, Operator, Team, rdmc_team_abort, rdmc_team_all_gather, rdmc_team_all_reduce,
    rdmc_team_barrier, rdmc_team_broadcast, rdmc_team_close, rdmc_team_create, rdmc_team_free,
    rdmc_team_gather, rdmc_team_reduce, rdmc_team_reduce_scatter, rdmc_team_scatter,
    rdmc_team_split,
};

/// Returns the version of this library, for example 0.1.0.
#[unsafe(no_mangle)]
pub extern "C" fn rdmc_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("the version has a zero"),
        };
    VERSION.as_ptr()
}

/// Returns 1 if this library was built with the feature, otherwise 0. Features: `fabric` (libfabric networks).
///
/// # Safety
/// `feature` is null or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_has(feature: *const c_char) -> i32 {
    // SAFETY: `feature` is null or NUL-terminated, and valid during this call.
    let feature = unsafe { text::optional(feature, "feature") };
    i32::from(cfg!(feature = "fabric") && matches!(feature, Ok(Some("fabric"))))
}
