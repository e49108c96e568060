//! Messages of groups and operations of teams in the memory of NVIDIA GPUs.
//!
//! All of it is staged through pinned memory of the host, so that it works with every fabric. The driver is opened at run time:
//! programs that use this crate build and start on machines without one, and [`Driver::open`] says what is missing.
//!
//! - [`Driver`] and [`Device`] are where everything begins; [`Stream`] is the order of what a device does, the application's
//!   ([`Stream::from_raw`]) or one's own; [`Event`] is a point in it.
//! - [`pinned`] allocates memory of the host as a [`rdmc::Region`], [`pin`] pins a region that exists, and [`DeviceMemory`] is
//!   memory of a device, allocated or the application's.
//! - [`GroupStaging`] sends and receives messages of groups: blocks go up to the device while others arrive.
//! - [`TeamStaging`] calls operations of teams, in chunks that are copied while others are in the network.
//!   [`broadcast_in_chunks`] and [`all_reduce_in_chunks`] are for members of such teams whose memory is the host's.
//! - [`upload`] and [`download`] are single copies.
//!
//! # Blocking and threads
//! Calls may be made on any thread; none is started here. Calls that wait have a timeout and poll the device.
//!
//! # Ownership
//! Host and device memory of a copy is kept by what the call returns ([`Transfer`], [`Upload`]) or by the [`TeamStaging`], until
//! the copy has ended. What the application owns and gave by address ([`DeviceMemory::from_raw`]) is its own to keep.

// Its example is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/gpu.md")]
struct Page;

mod calls;
mod chunks;
mod device;
mod device_memory;
mod driver;
mod error;
mod event;
mod group_staging;
mod pinned;
mod stream;
mod team_staging;
mod transfer;
mod upload;

pub use chunks::{all_reduce_in_chunks, broadcast_in_chunks};
pub use device::Device;
pub use device_memory::{DeviceMemory, MemoryKind};
pub use driver::{DeviceInfo, Driver};
pub use error::Error;
pub use event::Event;
pub use group_staging::GroupStaging;
pub use pinned::{pin, pinned};
pub use stream::Stream;
pub use team_staging::{TeamStaging, TeamStagingSettings};
pub use transfer::{Transfer, download, upload};
pub use upload::Upload;

#[cfg(test)]
mod tests {
    use super::*;

    /// Applications keep these with what other threads use.
    #[test]
    fn handles_may_be_used_on_any_thread() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<(Driver, Device, Stream, Event, DeviceMemory)>();
        is_shared::<(GroupStaging, TeamStaging, Upload, Transfer<rdmc::WriteLease>)>();
    }
}
