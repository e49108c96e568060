//! Tests that are commands, because they take minutes, or run where there is no cargo
//! (docs/internals/rdma-vm.md), and are repeated by their options. A broken promise is an error; what they
//! measure is reported.
//!
//! - `chaos`: `rdmc push` between hosts that are killed, stopped, or lose their network or disk.
//! - `chaos-fetch`: `rdmc fetch` between hosts that are killed, and from servers that are.
//! - `flood`: `rdmc push` while unauthenticated connections flood every port.
//! - `lose`: a group in which a member fails in the middle of a message.
//! - `memory`: peak resident memory of `rdmc push` and its receivers.
//! - `verify`: groups in which every receiver checks every byte, over any network.

pub mod chaos;
pub mod flood;
pub mod lose;
pub mod memory;
pub mod verify;
