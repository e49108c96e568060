//! The decisions of both ends of a push, for whoever drives them without threads, clocks and
//! connections: the simulator (`tools/simulate`). Not an interface for anybody else.

pub use crate::{
    control::{FAILURE_DEADLINE, silence},
    leftover::{Chunks, Cut, Leftover},
    messages::{JOIN_TIMEOUT, Offer, Start, Terms, ToReceiver, ToRoot, WaitedFor},
    push::{Coordinator, Event as RootEvent, Host, Stage as RootStage, Step, farewell, step},
    ranges::{ByteRange, RangeList, Ranges},
    receiver::{
        Copy, Event as ReceiverEvent, Member, News, Session, Stage as ReceiverStage, first, handle,
    },
};
