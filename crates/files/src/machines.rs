//! The state machines of both ends of a push, for the simulator (`tools/simulate`). Not a public interface.

pub use crate::{
    control::{FAILURE_DEADLINE, silence},
    digests::{CopyDigest, Digests},
    link::Owed,
    messages::{
        ALTERED, Introduction, JOIN_TIMEOUT, Offer, Start, StreamOffer, Terms, ToReceiver, ToRoot,
        TreeOffer, WaitedFor, Wanted, pieces,
    },
    push::{
        Effects as RootEffects, Event as RootEvent, Host, RootMachine, Step, StreamPart,
        linger_timeout, step,
    },
    ranges::{ByteRange, RangeList, Ranges},
    receiver::{
        Announcements, Copy, Deferred, Effects as ReceiverEffects, Event as ReceiverEvent, Found,
        Free, ListingComes, ListingMember, Member, MemberEvent, ReceiverMachine, first, handle,
    },
    resume::{ChunkDigests, Chunking, SourceChunks},
    stream_message::StreamMessage,
    subtrees::{SubtreeDigest, SubtreeHasher, Subtrees},
};
