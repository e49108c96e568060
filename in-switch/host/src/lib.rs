//! The daemon of a host: makes and keeps the groups that its applications send to, and offers others'
//! to those that listen (the MC-RDMA paper's connection management daemon, section IV-A).
//!
//! Applications reach it over a Unix socket ([`control::host::client`]). Daemons reach each other over TLS
//! with certificates: the stream from a sender's daemon to a member's is as long as the membership, so that
//! either end hears of the other's failure.
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

pub use serve::{DaemonSettings, Prepared, prepare, serve};
