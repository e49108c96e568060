//! Agents at trees of switches in the kernel, each in a network namespace of its own. Needs root.

mod bridged;
mod delegated;
mod liveness;
mod recorded;
mod routed;
mod traces;
mod world;
