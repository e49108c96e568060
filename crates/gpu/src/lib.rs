//! Messages of groups and operations of teams in the memory of NVIDIA GPUs.
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
