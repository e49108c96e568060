//! Relaying messages at one member of a group: events in, actions out.
//!
//! [`Relay`] follows a [`schedule::Schedule`] asynchronously (DSN 2018 section 4.2, "Data
//! Transfer"): each member posts receives and sends in the order of the schedule's steps, but a
//! send waits only for its own block and for its target's credit, and a receive only for space in
//! the window. This crate has no clock, sockets, threads or memory of blocks; the owner of those
//! calls the event methods and carries out what [`Relay::poll_action`] returns, in order.
//!
//! # How a message travels
//! 1. [`Relay::send`] queues a message at the root, with the number that it has everywhere, from the
//!    application to errors. It is *activated* once fewer than [`Settings::messages_in_flight`] earlier
//!    messages are unfinished here.
//! 2. Activation announces the message's number and length to the members whose announcer this one is
//!    ([`schedule::Schedule::announcer`]); they activate it in turn, and ask their application for
//!    memory ([`Action::Incoming`]). An announcer sends a block of each message to these members, so it completes none
//!    that they have not activated: at most twice the messages in flight are known and incomplete at a member.
//! 3. Meanwhile a receive is posted for the first block, whose source is known before the
//!    length is ([`schedule::Schedule::first_source`]); the block is received into spare memory
//!    and copied once ([`Action::PlaceFirst`]). If the application's memory is known in time,
//!    nothing is copied.
//! 4. Every other block is received directly at its position. Each posted receive grants its
//!    source one credit, so no block is sent to a member that has no memory posted for it.
//!
//! # Cut-through
//! Where the network can send a block on before the rest of it has arrived, [`Relay::arriving`]
//! reports that some has, and the block may be sent from then on
//! ([`Action::PostSend`]) as if it were here: what waits for a block waits for its first
//! bytes only. A member holds a block, and reports it to its application, once all of it has arrived.
//!
//! # Offload
//! With [`Settings::offload`] a member posts all operations of a message at once and lets the
//! network run them ([`Action::PostOffloadedReceive`], [`Action::PostOffloadedSend`]): the dataflow
//! graph of DSN 2018 section 2. There is no standing receive then, since copying a first block
//! would take the member's own program; and credits come in bulk. Both ends of a connection take
//! its transfers in the order of (message, step), so the i-th credit is for the i-th of them.
//!
//! The paper warns of priority inversions when operations are performed as soon as they become
//! possible. So a send waits for two things: the receive of its block, and the send that comes
//! [`Window::sends`] before it in the schedule.
//!
//! # Why it cannot deadlock
//! Order all transfers by (message, step). The smallest one not done has a source that holds the
//! block (it arrived at a smaller step) and a target for which all smaller receives are done, so
//! its receive is within every window of at least one; it waits for nothing else. With offload,
//! sends are posted in just this order, and the operations that a send waits for are smaller.
//!
//! With cut-through a send may occupy a place in the window, and its connection, while its block is
//! arriving. Every transfer of which some has arrived ends, whatever the windows: its source either
//! holds the block, or receives it by a smaller transfer of which some has arrived. So those places
//! become free, and the smallest transfer is posted.
//!
//! # What a delay costs
//! DSN 2018 section 4.5: a member that is late by e makes the whole late by e at most. With windows of
//! one this holds for every schedule, at any network: each member then takes its sends, and its
//! receives, one after another in the order of their steps, so a transfer begins when the last of a
//! fixed set of smaller transfers has ended, and the time at which it ends is a maximum of sums of
//! their durations. Adding e to one of them adds at most e to that maximum. Deeper windows hide
//! latencies and pauses, and give up the order where members are late; how much that costs depends on
//! the network (docs/decisions/windows.md).
//!
//! # Cost
//! One bit a block and message at a receiver; otherwise memory of the order of the windows. An
//! event costs O(window + log members) time.

#![forbid(unsafe_code)]

mod action;
mod blocks;
mod error;
mod message;
mod relay;
mod settings;
mod waited;

pub use action::{Action, Part, ReceiveId, SendId};
pub use blocks::{BlockRange, Blocks};
pub use error::RelayError;
pub use relay::{Obstacle, Relay, Wait};
pub use settings::{BLOCK_BYTES_MAX, Settings, Window};
pub use waited::Waited;
