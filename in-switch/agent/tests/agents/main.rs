//! Agents at switches in the kernel, each in a network namespace of its own, which put groups into trees of
//! them. Needs root.

#[path = "../../../../crates/rdmc/tests/common/authority.rs"]
mod authority;
mod bridged;
#[path = "../../../endpoint/tests/common/flow.rs"]
mod flow;
mod routed;
mod world;
