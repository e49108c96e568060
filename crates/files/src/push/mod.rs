//! The root's side of a session.
//!
//! [`machine::RootMachine`] makes all decisions. The caller's thread drives it in [`Push::run`] ([`run`]):
//! [`dispatch`] passes events in, which other threads queue, and [`io::Io`] carries out its [`Effects`].

mod accept;
mod apart;
mod blame;
mod connect;
mod descriptors;
#[doc(hidden)]
mod dispatch;
#[doc(hidden)]
mod effects;
#[doc(hidden)]
mod event;
mod gathering;
mod group;
mod group_plan;
#[doc(hidden)]
mod host;
mod host_tokens;
#[doc(hidden)]
mod hosts;
mod inbox;
mod io;
mod link_rates;
mod links;
#[doc(hidden)]
mod machine;
mod meant;
mod object;
mod pairs;
mod parts;
mod prepared;
mod rate;
mod readers;
mod regroup;
mod retry;
mod run;
mod serving;
mod session;
mod settings;
mod several_senders;
mod shares;
mod source_digest;
mod source_look;
mod stream;
mod stream_settings;
#[doc(hidden)]
mod stream_source;
mod timeouts;
mod unjoined;

pub use dispatch::{linger_timeout, step};
pub use effects::Effects;
pub use event::Event;
pub use gathering::{Gathering, GatheringRoot, GatheringWaker};
pub use host::{Host, Step};
pub use host_tokens::HostTokens;
pub use inbox::PushHandle;
pub use machine::RootMachine;
pub use serving::{Server, ServerEvent, ServerSettings};
pub use session::Push;
pub use settings::{
    Admission, HostPlan, HostReport, HostState, PushError, PushEvent, PushReport, PushSettings,
    Reach,
};
pub use stream::{Stream, StreamHost, StreamReport};
pub use stream_settings::StreamSettings;
#[doc(hidden)]
pub use stream_source::StreamPart;
