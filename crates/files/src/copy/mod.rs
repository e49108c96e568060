//! The copy of a file or of a tree that a receiver makes (docs/decisions/publishing.md): compared with what is there, staged
//! hidden, verified, published entry by entry.

mod error;
mod files;
mod hasher;
mod order;
mod parents;
mod permission;
mod publish;
mod space;
mod staging;
mod target;
mod temporary;
mod there;
mod verified;

pub(crate) use error::refusal;
pub use error::TargetError;
pub(crate) use hasher::follow;
pub(crate) use order::Order;
pub use target::Target;
pub(crate) use target::Spot;
#[cfg(any(test, fuzzing))]
pub(crate) use temporary::Temporary;
pub use verified::Verified;
