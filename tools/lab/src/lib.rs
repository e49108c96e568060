//! Many hosts on one machine: network namespaces joined by switches, with links of a known rate.
//!
//! Every host is a namespace with one end of a veth pair; the other ends are ports of bridges in a
//! namespace of its own, the switch. A token bucket at both ends of each pair makes it a
//! full-duplex link of a given rate of TCP payload. Hosts hang on one bridge, or on one for each
//! rack, whose uplink to a bridge between the racks is another such pair.
//!
//! [`Lab::create`] makes a lab that goes when it is dropped, for measurements and tests.
//! [`Lab::up`] makes one that stays under its name, as the command `rdmc-lab up` does.
//! [`LongLink`] gives the two racks of a lab a distance: rate, queue, delay and loss.
//! [`enter_own_network`] is for what is smaller than a lab, or of another shape. All of it
//! needs root, and the programs `ip` and `tc` of iproute2. Everything blocks, and may be called
//! from any thread.

#![forbid(unsafe_code)]

mod command;
mod error;
mod host;
mod lab;
mod link;
mod long_link;
mod make;
mod namespaces;
mod own;
mod passage;
mod settings;
mod signals;
mod state;
mod units;

pub use error::Error;
pub use host::Host;
pub use lab::{Condition, Lab, Listed, UplinkBytes, down, down_all, list};
pub use link::Link;
pub use long_link::{LongLink, LongLinkCounts};
pub use own::{Network, enter_own_network, ip, quiet};
pub use passage::Distance;
pub use settings::{LabSettings, SlowHost, SlowLink};
pub use signals::stop_flag;
pub use units::Rate;
