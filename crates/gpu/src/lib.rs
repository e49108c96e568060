//! Messages of groups and operations of teams in the memory of NVIDIA GPUs.
//!
//! All data is staged through pinned host memory, so it works with every fabric. The driver is loaded at run time: programs that
//! use this crate build and start on machines without one, and the error of [`Driver::open`] names what is missing.
//!
//! - [`Driver`] opens the driver, [`Device`] a GPU. [`Stream`] orders work on a device: a stream of the application
//!   ([`Stream::from_raw`]) or a new one. [`Event`] is a point in a stream.
//! - [`pinned`] allocates host memory as a [`rdmc::Region`], [`pin`] pins an existing region, and [`DeviceMemory`] is memory of a
//!   device, allocated here or by the application.
//! - [`GroupStaging`] sends and receives messages of groups: blocks are copied to the device while others arrive.
//! - [`TeamStaging`] calls operations of teams, in chunks that are copied while others are in the network.
//!   [`broadcast_in_chunks`] and [`all_reduce_in_chunks`] are for members of these teams with data in host memory.
//! - [`upload`] and [`download`] are single copies.
//!
//! # Blocking and threads
//! Calls may be made on any thread; none is started here. Calls that wait have a timeout and poll the device.
//!
//! # Ownership
//! The value that a call returns ([`Transfer`], [`Upload`]), or the [`TeamStaging`], keeps the host and device memory of a copy
//! alive until the copy has ended. The application must keep memory alive that it passed by address ([`DeviceMemory::from_raw`]).

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
