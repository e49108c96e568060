//! lib
#![allow(missing_docs)]
#[cfg(libfabric)]
mod buffer;
#[cfg(libfabric)]
mod connecting;
#[cfg(libfabric)]
mod device;
mod discovery;
#[cfg(libfabric)]
mod driver;
mod error;
#[cfg(libfabric)]
mod lifeline;
#[cfg(libfabric)]
mod link;
mod offer;
#[cfg(libfabric)]
mod registration;
#[cfg(libfabric)]
mod ring;
mod settings;
#[cfg(libfabric)]
mod sys;
pub use discovery::{Device, Discovery, discover};
#[cfg(libfabric)]
pub use driver::FabricTransport;
pub use error::FabricError;
pub use offer::{FabricLink, Offer, Offers, Role};
pub use settings::FabricSettings;
