//! Tests that are programs, since they take minutes or processes that die: a broken promise is an error. What
//! they measure on the way stands in their reports.
//!
//! - `chaos`: `rdmc push` between hosts of which some die, stop, or lose their network or disk.
//! - `flood`: `rdmc push` while strangers flood every port.
//! - `lose`: a group of which a member dies in the middle of a message.
//! - `memory`: peak resident memory of `rdmc push` and its receivers.
//! - `verify`: groups in which every receiver checks every byte, over any network.

pub mod chaos;
pub mod flood;
pub mod lose;
pub mod memory;
pub mod verify;
