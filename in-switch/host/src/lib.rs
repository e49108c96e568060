//! The daemon of a host: creates and maintains the groups that its applications send to, and offers other
//! hosts' groups to those that listen (the MC-RDMA paper's connection management daemon, section IV-A).
//!
//! Applications connect to it over a Unix socket ([`control::host::client`]), daemons to each other over TLS
//! with certificates. The stream from a sender's daemon to a member's lasts as long as the membership, so
//! that either end detects the other's failure.
//!
//! [`prepare`] and [`serve`] run it; it starts no threads of its own, but tasks of the tokio runtime that
//! they are called in.

#![forbid(unsafe_code)]

mod daemon;
mod group;
mod groups;
mod listeners;
mod members;
mod serve;
mod service;
mod session;
mod socket;
#[cfg(test)]
mod tests;

pub use serve::{DELEGATION_LASTS, DaemonSettings, Prepared, prepare, serve};
