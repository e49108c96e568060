//! Counters of a switch.

/// A counter of a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum Counter {
    /// Frames that are no RoCEv2 packets, or of no group here: forwarded as usual.
    Foreign,
    /// RoCEv2 packets with inconsistent lengths: forwarded as usual.
    Malformed,
    /// Frames with a service tag (802.1ad, QinQ) or more than one VLAN tag: forwarded as usual, and not copied.
    TagUnsupported,
    /// IP fragments: forwarded as usual.
    Fragment,
    /// ARP requests and neighbour solicitations for virtual addresses that were answered.
    Resolved,
    /// Packets of groups.
    Request,
    /// Packets of groups at a port that is none of their ingress ports: dropped.
    RequestMisplaced,
    /// Packets of groups whose TTL or hop limit is 1 or 0: dropped.
    RequestExpired,
    /// Copies that were sent.
    Copy,
    /// Copies that a port did not take.
    CopyFailed,
    /// WRITEs to memory that is not in the tables: answered with a NAK (remote access error).
    RegionUnknown,
    /// READs, atomics and SENDs that invalidate a key, to a group: answered with a NAK (invalid request).
    RequestRefused,
    /// ACKs forwarded to the sender.
    AckForwarded,
    /// NAKs forwarded to the sender.
    NakForwarded,
    /// RNR NAKs forwarded to the sender.
    RnrNakForwarded,
    /// Answers recorded and not forwarded: they do not change the group's state.
    AnswerSuppressed,
    /// Answers to a group's sender from addresses that are no members': forwarded as usual.
    AnswerForeign,
    /// Answers with a member's address that were dropped: the member was removed, the port is none of
    /// its ingress ports, or the syndrome is reserved.
    AnswerDropped,
    /// Answers, and requests that are answered here, with a wrong ICRC: dropped.
    IcrcError,
    /// CNPs forwarded to the sender.
    CnpForwarded,
    /// CNPs not forwarded: another member has sent more of late.
    CnpSuppressed,
}

impl Counter {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 21] = [
        (Self::Foreign, "foreign"),
        (Self::Malformed, "malformed"),
        (Self::TagUnsupported, "tags_unsupported"),
        (Self::Fragment, "fragments"),
        (Self::Resolved, "resolved"),
        (Self::Request, "requests"),
        (Self::RequestMisplaced, "requests_misplaced"),
        (Self::RequestExpired, "requests_expired"),
        (Self::Copy, "copies"),
        (Self::CopyFailed, "copies_failed"),
        (Self::RegionUnknown, "regions_unknown"),
        (Self::RequestRefused, "requests_refused"),
        (Self::AckForwarded, "acks_forwarded"),
        (Self::NakForwarded, "naks_forwarded"),
        (Self::RnrNakForwarded, "rnr_naks_forwarded"),
        (Self::AnswerSuppressed, "answers_suppressed"),
        (Self::AnswerForeign, "answers_foreign"),
        (Self::AnswerDropped, "answers_dropped"),
        (Self::IcrcError, "icrc_errors"),
        (Self::CnpForwarded, "cnps_forwarded"),
        (Self::CnpSuppressed, "cnps_suppressed"),
    ];

    /// Those that [`crate::GroupCounters::packets`] has: of packets that the sender has sent to the group, and of answers
    /// to it that are no member's.
    pub const OF_GROUPS: [Self; 10] = [
        Self::Request,
        Self::Copy,
        Self::CopyFailed,
        Self::RequestMisplaced,
        Self::RequestExpired,
        Self::RegionUnknown,
        Self::RequestRefused,
        Self::IcrcError,
        Self::AnswerForeign,
        Self::AnswerDropped,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Values of all counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Counters {
    /// From values in the order of [`Counter::ALL`].
    #[must_use]
    pub const fn new(counts: [u64; Counter::ALL.len()]) -> Self {
        Self(counts)
    }

    /// Increments a counter.
    pub const fn count(&mut self, counter: Counter) {
        self.count_many(counter, 1);
    }

    /// Adds to a counter.
    pub const fn count_many(&mut self, counter: Counter, number: u64) {
        self.0[counter as usize] += number;
    }

    /// A copy that was counted as sent was refused by its port.
    pub(crate) const fn refuse_copy(&mut self) {
        self.0[Counter::Copy as usize] = self.counted(Counter::Copy).saturating_sub(1);
        self.0[Counter::CopyFailed as usize] += 1;
    }

    /// A counter's value.
    #[must_use]
    pub const fn counted(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// All of them, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Counter::ALL.iter().map(|(counter, name)| (*name, self.counted(*counter)))
    }
}
