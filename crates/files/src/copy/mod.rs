//! The copy of a file or of a tree that a receiver makes (docs/decisions/publishing.md): compared with what is there, staged
//! hidden, verified, published entry by entry.

mod apply;
mod atomic;
mod attributes;
mod error;
mod extras;
mod files;
mod hasher;
mod held;
mod letters;
mod look;
mod order;
mod parents;
mod permission;
mod probes;
mod publish;
mod space;
mod staging;
mod target;
mod temporary;
mod there;
mod verified;
mod verified_files;

pub use error::TargetError;
pub(crate) use error::refusal;
pub(crate) use hasher::follow;
pub(crate) use order::Order;
pub use target::Target;
pub(crate) use target::{PublishedCopy, Spot};
#[cfg(any(test, fuzzing))]
pub(crate) use temporary::Temporary;
pub use verified::Verified;
pub use verified_files::VerifiedFile;
pub(crate) use verified_files::VerifiedFiles;
