//! The transport, if libfabric's headers were found at build time.

mod buffer;
mod connecting;
mod device;
mod driver;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod lifeline;
mod lifelines;
mod link;
mod offer;
mod offload;
mod pinned;
mod providers;
mod registration;
mod ring;
mod sys;
mod waiting;

pub use driver::FabricTransport;
pub use offer::{FabricLink, Offer, Offers};
pub use providers::discover;
