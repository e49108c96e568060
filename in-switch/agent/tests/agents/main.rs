//! Agents at switches in the kernel, each in a network namespace of its own, which put groups into trees of
//! them. Needs root.

mod bridged;
mod routed;
mod world;
