//! All tests of this crate that use it from outside, in one program: it is linked once.

mod attributes;
mod bench;
mod bwlimit;
mod certificates;
mod common;
mod configured;
mod copy_self;
mod deep_trees;
mod destinations;
mod direct_copies;
mod doctor;
mod fetch;
mod firewall;
mod home;
mod hosts;
mod hugging_face;
mod join;
mod launch_tree;
mod listen;
mod networks;
mod offload;
mod outcomes;
mod packaging;
mod plan;
mod plan_collective;
#[cfg(feature = "switch")]
mod plan_in_switch;
mod plan_library;
mod progress;
mod push;
mod push_faults;
mod push_stream;
mod push_trees;
mod redirected;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "remote")]
mod remote_bucket;
#[cfg(feature = "remote")]
mod remote_hub;
#[cfg(feature = "remote")]
mod remote_tls;
#[cfg(feature = "remote")]
mod remote_together;
mod slurm;
mod ssh;
#[cfg(feature = "switch")]
mod switch;
#[cfg(feature = "switch")]
mod switch_join;
mod trace;
mod trials;
