//! The decisions of both ends of a push, for whoever drives them without threads, clocks and
//! connections: the simulator (`tools/simulate`). Not an interface for anybody else.

pub use crate::{
    control::{FAILURE_DEADLINE, silence},
    leftover::Leftover,
    messages::{JOIN_TIMEOUT, Offer, Start, Terms, ToReceiver, ToRoot, WaitedFor},
    push::{Coordinator, Host, Stage as RootStage, Step},
    ranges::{ByteRange, RangeList, Ranges},
    receiver::{Copy, Member, News, Session, Stage as ReceiverStage},
};
