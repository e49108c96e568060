//! The copy of a tree that a receiver makes (docs/decisions/trees.md): compared with what is there, built in a hidden
//! directory beside it, verified, published.

mod compare;
mod extras;
mod files;
mod hasher;
mod parents;
mod publish;
mod removal;
mod staging;
mod sync;
mod target;

pub(crate) use hasher::follow;
pub(crate) use removal::remove_tree;
pub(crate) use target::{TreeOrder, TreeTarget};
