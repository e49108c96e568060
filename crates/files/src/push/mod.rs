//! The root's side of a session.
//!
//! [`coordinator::Coordinator`] decides everything, and [`dispatch`] says what each event means to it. It is
//! driven by one thread, the caller's, in [`Push::run`] ([`run`]); others only feed that thread. What the
//! coordinator wants done is done by [`scene::Scene`].

mod aftermath;
mod attempt;
mod bench;
#[doc(hidden)]
mod coordinator;
mod descriptors;
#[doc(hidden)]
mod dispatch;
mod doorway;
#[doc(hidden)]
mod event;
#[doc(hidden)]
mod host;
#[doc(hidden)]
mod hosts;
mod inbox;
mod pace;
mod parts;
mod patience;
mod prepared;
mod reading;
mod regroup;
mod retry;
mod run;
mod scene;
mod session;
mod settings;
#[doc(hidden)]
mod stage;
mod switch_control;

pub use bench::{
    Bench, BenchEvent, BenchPlan, BenchReport, MEASURED_BYTES_MAX, Measurement, Subject,
};
pub use coordinator::Coordinator;
pub use dispatch::{farewell, step};
pub use event::Event;
pub use host::{Host, Step};
pub use inbox::PushHandle;
pub use session::Push;
pub use settings::{
    Admission, HostPlan, HostReport, HostState, PushError, PushEvent, PushReport, PushSettings,
    Reach,
};
pub use stage::Stage;
pub use switch_control::SwitchControl;
