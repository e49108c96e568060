//! Messages of root and receivers on their control connections.
//!
//! Either end may close the connection at any time; the other then cleans up. Both send at least every second (see
//! [`crate::control::silence`]), so a vanished peer is detected.

use std::{fmt, net::SocketAddr, time::Duration};

use rdmc::{Error, Failure, FailureKind, GroupSettings, Secret, Waited};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, SeqAccess, Visitor},
};
use tree::{Rule, Selection};

use crate::{
    Manifest, TargetError,
    changes::Changes,
    control::check_failure_deadline,
    group_terms::GroupTerms,
    owners::Kept,
    ports::PortRange,
    ranges::{ByteRange, RangeList, Ranges},
    resume::ChunkDigests,
    server_status::ServerStatus,
    stream_message::StreamMessage,
    subtrees::SubtreeDigest,
};

/// From a receiver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToRoot {
    /// The first message: who this host is.
    Hello(Introduction),
    /// The target is prepared: names of the fabrics that this host can use, best first, and digests of the
    /// target's existing chunks.
    ///
    /// `kept`: what it keeps of a tree that it has, by length and time. `changes`: what of the source is there already.
    Prepared {
        fabrics: Vec<String>,
        kept: RangeList,
        digests: Option<ChunkDigests>,
        changes: Changes,
    },
    /// The list of files of the tree is to come in a group; names of the fabrics that this host can use, best first. The root
    /// answers with [`ToReceiver::Use`], this host with [`ToRoot::Ready`], and once it has the list with [`ToRoot::Prepared`].
    NeedsListing { fabrics: Vec<String> },
    /// The fabric has been started; other members reach this one at its address and this port.
    Ready { port: u16 },
    /// How much of the file is in place; also the keepalive.
    Progress { bytes: u64 },
    /// Bytes read or written so far, other than received ones: progress while a target is prepared, verified or
    /// published.
    Worked { bytes: u64 },
    /// A group of a stream is joined.
    Joined { group: u64 },
    /// Of an application, which knows the contents.
    Application(Vec<u8>),
    /// How long this receiver has waited for the members of a group so far.
    Waited { group: u64, waited: Vec<WaitedFor> },
    /// Digests of what this host has read at the URL ([`Start::reads`]): of subtrees of files, by the place where each begins
    /// (`subtrees.rs`).
    Read { digests: Vec<(u64, SubtreeDigest)> },
    /// The last byte of the file is in place.
    Complete,
    /// The copy was compared with the root's digest.
    Compared { equal: bool },
    /// The verified copy is on disk, and lacks nothing but its name ([`ToReceiver::Store`]).
    Stored,
    /// This group has closed: all of its members have all of its bytes.
    GroupClosed { group: u64 },
    /// This group failed or could not be joined, and does not access the target any more. `unconnected`: the members to
    /// which there was no connection when the time to join was over. `has`: the ranges of the file in place.
    GroupFailed {
        group: u64,
        blamed: Option<Blamed>,
        unconnected: Vec<u32>,
        detail: String,
        has: RangeList,
    },
    /// The bytes of a stream that arrived in this group at this place are not those that the root has announced. The group
    /// fails.
    Altered { group: u64, at: u64 },
    /// The last line of output of the command that has taken a stream; [`ToRoot::Published`] follows.
    Said { line: String },
    /// The copy is published; `was_there` if it had its name before.
    Published { peak_resident_bytes: Option<u64>, was_there: bool },
    /// This host has published its copy, and sends it to no further host. The root answers with [`ToReceiver::Finish`] once those to
    /// which it sends need it no more.
    Leaving,
    /// This other host of the push has claimed the destination: both use one file system. The last message.
    Shares { host: String },
    /// This receiver cannot continue. The last message.
    Failed { reason: String },
}

/// Who a receiver is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Introduction {
    /// This host's name, as the root gave it.
    pub host: String,
    /// Names of one that listens, if it has any: a root must mean one of them.
    pub names: Vec<String>,
    /// Where the receiver's end of this connection is.
    pub address: SocketAddr,
    /// That of [`crate::HostTokens`], at one that the root has started.
    #[serde(with = "token_bytes")]
    pub token: Option<Secret>,
    /// What it wants from a server.
    pub wants: Option<Wanted>,
}

/// What a host wants from a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wanted {
    /// To fetch an object.
    Object {
        /// Its path at the server.
        path: String,
        /// Once it has published its copy the host sends it to others, until it says [`ToRoot::Leaving`].
        shares: bool,
    },
    /// To know what is fetched: the only answer is [`ToReceiver::Status`].
    Status,
}

/// As [`secret_bytes`], of which there may be none.
mod token_bytes {
    use rdmc::Secret;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        token: &Option<Secret>,
        into: S,
    ) -> Result<S::Ok, S::Error> {
        token.as_ref().map(Secret::as_bytes).serialize(into)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Secret>, D::Error> {
        Ok(Option::deserialize(from)?.map(Secret::from_bytes))
    }
}

/// The member of a group that a failure names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Blamed {
    pub member: u32,
    /// The member that noticed the failure. `None`: the one that reports it.
    pub noticed_by: Option<u32>,
}

/// [`rdmc::Waited`] in messages: how long a member has waited for another.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WaitedFor {
    pub member: u32,
    pub to_take_us: u64,
    pub to_give_us: u64,
}

impl From<Waited> for WaitedFor {
    fn from(waited: Waited) -> Self {
        Self {
            member: waited.member,
            to_take_us: waited.to_take.as_micros() as u64,
            to_give_us: waited.to_give.as_micros() as u64,
        }
    }
}

impl From<WaitedFor> for Waited {
    fn from(waited: WaitedFor) -> Self {
        Self {
            member: waited.member,
            to_take: Duration::from_micros(waited.to_take_us),
            to_give: Duration::from_micros(waited.to_give_us),
        }
    }
}

/// From the root.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToReceiver {
    /// The first message of a push.
    Offer(Box<Offer>),
    /// The next part of a tree's listing; all follow the offer, unless the listing comes in a group ([`TreeOffer::relayed`]). If that
    /// has failed all are sent after it.
    Listing { part: Vec<u8> },
    /// The first message of a stream.
    Stream(StreamOffer),
    /// A message of a stream, once, whatever groups it is sent in. It follows on the one before.
    Announce(StreamMessage),
    /// The first message of a session of an application: gather on a fabric, then exchange its messages.
    Gather(Terms),
    /// Of an application, which knows the contents.
    Application(Vec<u8>),
    /// Start this fabric, by name. `has`: the ranges of the existing data that match the source.
    Use { fabric: String, has: RangeList },
    /// Join this group, and send in it (rank 0) or receive.
    Start(Start),
    /// The group has failed: leave it and, unless sent before, report [`ToRoot::GroupFailed`].
    Leave { group: u64 },
    /// Digests of chunks of an object that this receiver fetches, each sent once.
    Chunks(ChunkDigests),
    /// The digest of the source, for comparison with the whole copy.
    Digest { digest: [u8; 32] },
    /// The copy matches: write it to disk, and do everything else that publishing it takes, but for what others can see.
    Store,
    /// The copy matches and the source has not changed: publish it.
    Publish,
    /// What is fetched from a server. The only message.
    Status(ServerStatus),
    /// The session is over. The last message.
    Finish,
    /// This host is given up. `keep`: whether to keep the partial copy for a later session. The last message.
    Abort { reason: String, keep: bool },
    /// The keepalive.
    Alive,
}

impl ToReceiver {
    /// Its kind, for errors: contents of peers are not for logs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Offer(_) => "offer of a file or directory",
            Self::Listing { .. } => "part of a list of files",
            Self::Stream(_) => "offer of a stream",
            Self::Announce(_) => "digest of a stream",
            Self::Gather(_) => "offer of a measurement",
            Self::Application(_) => "message of a measurement",
            Self::Use { .. } => "choice of a network",
            Self::Start(_) => "group to join",
            Self::Leave { .. } => "group to leave",
            Self::Chunks(_) => "digests of parts of the source",
            Self::Digest { .. } => "digest of the source",
            Self::Store => "request to store",
            Self::Publish => "request to publish",
            Self::Status(_) => "status of a server",
            Self::Finish => "end of the session",
            Self::Abort { .. } => "end of the push",
            Self::Alive => "keepalive",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offer {
    pub manifest: Manifest,
    /// If it is a tree.
    pub tree: Option<TreeOffer>,
    /// What of its attributes is kept besides modes and times.
    pub kept: Option<Kept>,
    /// A path at the receiver, which may confine it to a directory.
    pub destination: String,
    /// `hash::probe` of the source: an existing file is read only if its probe is equal.
    pub probe: [u8; 32],
    /// The source has holes; zero pages of copies become holes as well.
    pub has_holes: bool,
    /// The receiver only says what it lacks, and leaves nothing behind.
    pub dry_run: bool,
    /// All groups are links (`crate::link`): the receiver fetches.
    pub by_links: bool,
    /// Where the hosts read it themselves.
    pub remote: Option<RemoteOffer>,
    pub terms: Terms,
}

/// A source that hosts read themselves. Each finds its own credentials.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RemoteOffer {
    /// Its URL, which has no secrets.
    pub url: String,
    /// It is laid out as in the cache of a hub's tools.
    pub as_hub_cache: bool,
    /// The digest of the versions of all files of the listing ([`crate::RemoteContents::version`]).
    pub version: [u8; 32],
}

/// A stream, whose length is not known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamOffer {
    /// A path at the receiver, unless it writes to an output of its own.
    pub destination: String,
    /// Permission bits of the file; none for those that the receiver's umask gives to new files.
    pub mode: Option<u32>,
    /// A command of the shell that takes the stream as its standard input, instead of a file.
    pub command: Option<String>,
    pub terms: Terms,
}

/// What a receiver has to know of a tree besides its listing.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct TreeOffer {
    /// Length of the encoded listing, which follows in [`ToReceiver::Listing`].
    pub listing_bytes: u64,
    /// BLAKE3 digest of the listing if it comes as the message of a group without ranges of the object ([`Start::ranges`]).
    pub relayed: Option<[u8; 32]>,
    /// It is a file, the only entry, and the destination is the path of its copy.
    pub is_file: bool,
    /// The destination itself, if it is the copy of a directory; otherwise it is a directory that the copies go into.
    pub top: Option<Top>,
    /// Files that the receiver has are compared by their contents, not by length and time.
    pub by_contents: bool,
    /// An existing directory is exchanged as a whole.
    pub atomic: bool,
    /// What only the receiver has is removed.
    pub deletion: Option<Deletion>,
    /// The receiver lists which entries change, not only how many.
    pub lists_changes: bool,
}

/// What is removed of what only a receiver has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Deletion {
    /// Also at the top of the tree: not if that is the directory that sources go into under their names.
    pub at_top: bool,
    /// What patterns see before the paths of the tree.
    pub prefix: Vec<u8>,
    /// The patterns of the push, in order, each with whether it includes: what they leave out stays. At most 10,000.
    #[serde(deserialize_with = "patterns")]
    pub patterns: Vec<(bool, String)>,
}

/// The most patterns of a push that removes what only receivers have: each of them is compared with each name there.
pub(crate) const PATTERNS_MAX: usize = 10_000;

/// Errors: too many, before they take memory.
fn patterns<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<(bool, String)>, D::Error> {
    struct Bounded;
    impl<'a> Visitor<'a> for Bounded {
        type Value = Vec<(bool, String)>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(to, "at most {PATTERNS_MAX} patterns")
        }

        fn visit_seq<A: SeqAccess<'a>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(pattern) = from.next_element()? {
                if all.len() >= PATTERNS_MAX {
                    return Err(de::Error::invalid_length(all.len() + 1, &self));
                }
                all.push(pattern);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(Bounded)
}

impl Deletion {
    /// Errors: an invalid pattern.
    pub(crate) fn selection(&self) -> Result<Selection, TargetError> {
        let rule = |(includes, pattern): &(bool, String)| match includes {
            true => Rule::Include(pattern.clone()),
            false => Rule::Exclude(pattern.clone()),
        };
        let rules: Vec<Rule> = self.patterns.iter().map(rule).collect();
        Ok(Selection::new(&rules)?)
    }
}

/// Attributes of a tree's top directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Top {
    /// Permission bits.
    pub mode: u32,
    /// Modification time in nanoseconds since 1970, negative before.
    pub modified_ns: i64,
}

/// Terms that are the same for all members of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// Where the root's end of this connection is.
    pub root: SocketAddr,
    /// Connections to each neighbour.
    pub streams: u8,
    /// Completion mode, by name.
    pub completion: String,
    /// Protection of links, by name.
    pub protection: String,
    /// How long a member may be silent before it is lost.
    pub failure_deadline_ms: u32,
    /// The most bytes per second that each member sends, and the most that it receives.
    pub rate_max: Option<u64>,
    /// How long a receiver may take to join a group.
    pub join_timeout_ms: u32,
    /// Where the receiver listens for other members; `None`: at any port.
    pub ports: Option<PortRange>,
    /// The session's secret, which authenticates its members to each other.
    #[serde(with = "secret_bytes")]
    pub secret: Secret,
}

impl Terms {
    /// Errors: it is out of range.
    pub fn failure_deadline(&self) -> Result<Duration, String> {
        let deadline = Duration::from_millis(u64::from(self.failure_deadline_ms));
        check_failure_deadline(deadline)?;
        Ok(deadline)
    }

    /// How long a receiver may take to join a group, at most [`JOIN_TIMEOUT`].
    pub fn join_timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.join_timeout_ms)).min(JOIN_TIMEOUT)
    }
}

/// Only for control connections, which are encrypted.
mod secret_bytes {
    use rdmc::Secret;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(secret: &Secret, into: S) -> Result<S::Ok, S::Error> {
        secret.as_bytes().serialize(into)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        <[u8; 32]>::deserialize(from).map(Secret::from_bytes)
    }
}

/// The longest that members may take to join a group.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(15);

/// A group that replicates a part of the file: rank 0 sends each range as a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    pub group: GroupTerms,
    /// The ranges to replicate, one per message. One range of a stream, without an end: its messages follow on each other
    /// from there. None: its only message is the listing of the tree.
    pub ranges: RangeList,
    /// Rank 0 lacks them as well: it reads them at the URL of the offer, and sends each in messages that end at multiples of
    /// 4 MiB.
    pub reads: bool,
}

impl Start {
    /// What its messages are, in order; of an object of this length.
    pub fn messages(&self, bytes: u64) -> Vec<ByteRange> {
        let ranges = self.ranges.within(bytes);
        if self.reads { pieces(&ranges) } else { ranges.iter().collect() }
    }

    /// The group of a stream at the member that this was sent to. Errors: terms that make no group.
    pub fn stream_settings(&self) -> Result<GroupSettings, Error> {
        let mut settings = self.group.settings()?;
        // A consumer may pause for as long as it likes; members that die are noticed all the same.
        settings.stall_timeout = Duration::MAX;
        settings.receive_bytes_max = STREAM_RECEIVE_BYTES_MAX;
        Ok(settings)
    }

    /// The group of a link at the member that this was sent to. Errors: terms that make no group.
    pub fn link_settings(&self) -> Result<GroupSettings, Error> {
        let mut settings = self.group.settings()?;
        settings.send_queue_max = LINK_QUEUE_MAX;
        settings.receive_bytes_max = LINK_RECEIVE_BYTES_MAX;
        Ok(settings)
    }

    /// What is sent to the members from this rank on, by rank.
    ///
    /// Errors: terms that make no group.
    pub(crate) fn told_from(&self, rank: u32) -> Result<impl Iterator<Item = Self>, Error> {
        let mut neighbours = self.group.settings()?.neighbours()?;
        Ok((rank..self.group.addresses.len() as u32).map(move |rank| {
            let group = self.group.told(rank, &neighbours(rank));
            Self { group, ranges: self.ranges.clone(), reads: self.reads }
        }))
    }
}

/// What a receiver of a stream holds of messages that its consumer has not taken, in bytes: a consumer may pause for half a
/// second at 1 Gbit/s before it delays others.
const STREAM_RECEIVE_BYTES_MAX: u64 = 64 << 20;

/// The most messages that wait in a link: a chunk is two.
const LINK_QUEUE_MAX: u32 = 8;
/// What a receiver holds of chunks that it has not compared with their digests, in bytes. A longer chunk comes alone.
const LINK_RECEIVE_BYTES_MAX: u64 = 8 << 20;

/// Where messages end of what is read at a URL: a piece is sent on once it is there as a whole.
pub(crate) const PIECE_BYTES: u64 = 4 << 20;

/// Ranges, cut at multiples of 4 MiB.
pub fn pieces(ranges: &Ranges) -> Vec<ByteRange> {
    let cut = |(start, end): ByteRange| {
        let first = start / PIECE_BYTES;
        (first..end.div_ceil(PIECE_BYTES))
            .map(move |piece| (start.max(piece * PIECE_BYTES), end.min((piece + 1) * PIECE_BYTES)))
    };
    ranges.iter().flat_map(cut).collect()
}

/// The reason of members that leave a group on the root's request.
pub(crate) const GIVEN_UP: &str = "the root has given up this group";

/// The reason of members that leave a group because they got other bytes than those that the root has announced.
pub const ALTERED: &str = "a relay or a link changed bytes";

/// The reason of members that leave a group because the list of files in it was not the root's.
pub(crate) const ALTERED_LISTING: &str = "a relay or a link changed bytes of the list of files";

/// The member that a failure blames; none if a member left on the root's request, or because of others.
pub(crate) fn blamed(failure: &Failure) -> Option<Blamed> {
    let has_left = failure.kind == FailureKind::Application
        && [GIVEN_UP, ALTERED, ALTERED_LISTING].contains(&failure.detail.as_str());
    let noticed_by = Some(failure.reporter);
    failure.member.filter(|_| !has_left).map(|member| Blamed { member, noticed_by })
}

/// The only member that could not be joined, of an error of joining.
pub(crate) fn unjoined(error: &Error) -> Option<u32> {
    match error {
        Error::Member { member, .. } => Some(*member),
        Error::Timeout { unconnected, .. } => match unconnected[..] {
            [member] => Some(member),
            _ => None,
        },
        _ => None,
    }
}

/// The predicate of a sentence about the member that a failure blames, without ranks.
pub fn predicate(failure: &Failure) -> String {
    match failure.detail.as_str() {
        "" => failure.kind.to_string(),
        detail => format!("{}: {detail}", failure.kind),
    }
}

/// The same for an error of joining.
pub fn join_predicate(error: &Error) -> String {
    match error {
        Error::Failed(failure) => predicate(failure),
        Error::Member { cause, .. } => format!("could not be joined: {cause}"),
        Error::Timeout { unconnected, timeout, .. } if unconnected.len() == 1 => {
            let seconds = timeout.as_secs_f64();
            format!("could not be joined: there was no connection to it within {seconds} s")
        }
        Error::Timeout { .. } | Error::Peer { .. } => format!("could not be joined: {error}"),
        own => format!("could not join: {own}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_patterns_than_a_receiver_compares_are_refused() {
        let sent = |count: usize| {
            let deletion = Deletion {
                at_top: true,
                prefix: Vec::new(),
                patterns: vec![(false, "a".into()); count],
            };
            postcard::from_bytes::<Deletion>(&postcard::to_allocvec(&deletion).unwrap())
        };
        assert_eq!(sent(PATTERNS_MAX).unwrap().patterns.len(), PATTERNS_MAX);
        assert!(sent(PATTERNS_MAX + 1).is_err());
    }
}
