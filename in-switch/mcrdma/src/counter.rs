//! What a switch counts.

/// What a switch counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum Counter {
    /// Frames that are no RoCEv2 packets, or of no group here: they pass.
    Foreign,
    /// RoCEv2 packets that contradict themselves, or of operations that are not known: they pass.
    Malformed,
    /// Fragments of IP packets: they pass.
    Fragment,
    /// Questions for virtual addresses that were answered.
    Resolved,
    /// Packets of groups.
    Request,
    /// Packets of groups that came in at another port than their groups': they end here.
    RequestMisplaced,
    /// Packets of groups that no router may pass on any more (time to live): they end here.
    RequestExpired,
    /// Copies of them that were made.
    Copy,
    /// Copies that could not be handed on.
    CopyFailed,
    /// WRITEs to memory that is not in the tables: refused with a NAK.
    RegionUnknown,
    /// Acknowledgements that the sender was told.
    AckTold,
    /// NAKs that the sender was told.
    NakTold,
    /// RNR NAKs that the sender was told.
    NotReadyTold,
    /// Answers that went into others.
    AnswerHeld,
    /// Answers to a group's sender by others than its members: they pass.
    AnswerForeign,
    /// Answers in a member's name that end here: of one that was taken out, at another port than the
    /// member's, or that say nothing known.
    AnswerRefused,
    /// Answers, and packets that were to be refused, with a wrong CRC: they end here.
    Damaged,
    /// Congestion notifications that the sender was told.
    NotificationTold,
    /// Congestion notifications that the sender was not told.
    NotificationHeld,
}

impl Counter {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 19] = [
        (Self::Foreign, "foreign"),
        (Self::Malformed, "malformed"),
        (Self::Fragment, "fragments"),
        (Self::Resolved, "resolved"),
        (Self::Request, "requests"),
        (Self::RequestMisplaced, "requests_misplaced"),
        (Self::RequestExpired, "requests_expired"),
        (Self::Copy, "copies"),
        (Self::CopyFailed, "copies_failed"),
        (Self::RegionUnknown, "regions_unknown"),
        (Self::AckTold, "acks_told"),
        (Self::NakTold, "naks_told"),
        (Self::NotReadyTold, "not_ready_told"),
        (Self::AnswerHeld, "answers_held"),
        (Self::AnswerForeign, "answers_foreign"),
        (Self::AnswerRefused, "answers_refused"),
        (Self::Damaged, "damaged"),
        (Self::NotificationTold, "notifications_told"),
        (Self::NotificationHeld, "notifications_held"),
    ];
}

/// How often what has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Counters {
    /// As they were read elsewhere, in the order of [`Counter::ALL`].
    #[must_use]
    pub const fn new(counts: [u64; Counter::ALL.len()]) -> Self {
        Self(counts)
    }

    /// Once more.
    pub const fn count(&mut self, counter: Counter) {
        self.0[counter as usize] += 1;
    }

    /// How often.
    #[must_use]
    pub const fn counted(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// All of them, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Counter::ALL.iter().map(|(counter, name)| (*name, self.counted(*counter)))
    }
}
