//! lib
#![allow(missing_docs)]
mod discovery;
mod error;
mod offer;
mod settings;
#[cfg(libfabric)]
mod sys;
pub use discovery::{Device, Discovery, discover};
pub use error::FabricError;
pub use offer::{FabricLink, Offer, Offers, Role};
pub use settings::FabricSettings;
