//! Why a group or a team fails, as members tell each other.

use std::{borrow::Cow, time::Duration};

use relay::RelayError;
use transport::{CONTROL_BYTES_MAX, Cause, PostError};

use crate::{
    error::Fault,
    failure::{Failure, FailureKind},
    fields::Fields,
};

/// Stands for "no member" where a rank is written.
const NO_MEMBER: u32 = u32::MAX;

/// Why a group or a team fails: what members tell each other of a failure. In texts what is being done comes
/// first, or what names the remedy: other members receive the beginning alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The member that caused it, if known.
    pub member: Option<u32>,
    /// The member that detected it.
    pub reporter: u32,
    /// The kind of failure.
    pub kind: FailureKind,
    /// What happened, in words.
    pub detail: String,
}

impl Notice {
    /// Encodes a control word of this kind, of at most [`CONTROL_BYTES_MAX`] bytes; the detail is cut to
    /// fit.
    pub fn encode(&self, word: u8) -> Vec<u8> {
        let mut bytes = vec![word, self.kind.code()];
        bytes.extend(self.member.unwrap_or(NO_MEMBER).to_le_bytes());
        bytes.extend(self.reporter.to_le_bytes());
        bytes.extend(cut(&self.detail, CONTROL_BYTES_MAX - bytes.len()).as_bytes());
        bytes
    }

    /// Decodes what follows the kind of the word; `None` for anything that [`Notice::encode`] does not
    /// produce, and for ranks that are not below `members`. Control characters and line ends of the detail become
    /// spaces: it is printed and logged.
    pub fn decode(fields: &mut Fields<'_>, members: u32) -> Option<Self> {
        let kind = FailureKind::from_code(fields.u8()?)?;
        let (member, reporter) = (fields.u32()?, fields.u32()?);
        let are_ranks = (member < members || member == NO_MEMBER) && reporter < members;
        let member = (member != NO_MEMBER).then_some(member);
        let leaves_line =
            |letter: char| letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}');
        let detail = fields.text()?.replace(leaves_line, " ");
        are_ranks.then_some(Self { member, reporter, kind, detail })
    }

    pub(crate) fn into_failure(self, group: u64) -> Failure {
        let Self { member, reporter, kind, detail } = self;
        Failure { group, member, reporter, kind, detail, delivered: 0 }
    }

    /// The application of member `own`, this one, has aborted the group.
    pub(crate) fn application(own: u32, detail: &str) -> Self {
        let (kind, detail) = (FailureKind::Application, detail.to_owned());
        Self { member: Some(own), reporter: own, kind, detail }
    }

    /// The connection to `rank` has ended.
    pub(crate) fn lost(own: u32, rank: u32, cause: &Cause, doing: &str) -> Self {
        let kind = FailureKind::of(cause);
        let member = if kind == FailureKind::Memory { own } else { rank };
        let detail = format!("while {doing}, {cause}");
        Self { member: Some(member), reporter: own, kind, detail }
    }

    /// Blocks can no longer be transferred, though all members may be alive.
    pub(crate) fn halted(own: u32, cause: Cause, doing: &str) -> Self {
        let (member, kind) = match cause {
            Cause::Memory { .. } => (Some(own), FailureKind::Memory),
            _ => (None, FailureKind::Network),
        };
        let why = match cause {
            Cause::Lost(why) => why,
            other => other.to_string(),
        };
        Self { member, reporter: own, kind, detail: format!("while {doing}, {why}") }
    }

    /// The transport has refused a post for `rank`.
    pub(crate) fn refused(own: u32, rank: u32, error: &PostError, doing: &str) -> Self {
        let detail = format!("while {doing}, with member {rank}: {error}");
        Self { member: None, reporter: own, kind: FailureKind::Network, detail }
    }

    /// The group cannot go on here.
    pub(crate) fn of(own: u32, fault: &Fault, doing: &str) -> Self {
        let (member, kind) = match *fault {
            Fault::Relay(RelayError::Peer { member, .. }) => (member, FailureKind::Protocol),
            Fault::Relay(_) => (own, FailureKind::Protocol),
            Fault::Memory(_) | Fault::Job { .. } => (own, FailureKind::Memory),
            Fault::Differs { .. } => (own, FailureKind::Differs),
            Fault::ControlRefused { rank, .. } => (rank, FailureKind::Silent),
        };
        let detail = match fault {
            Fault::Relay(RelayError::Peer { what, .. }) => what.clone(),
            // What was being done meanwhile has nothing to do with it.
            Fault::Relay(_) | Fault::Differs { .. } => fault.to_string(),
            Fault::Job { .. } => format!("{fault}, while {doing}"),
            Fault::Memory(_) | Fault::ControlRefused { .. } => format!("while {doing}, {fault}"),
        };
        Self { member: Some(member), reporter: own, kind, detail }
    }

    /// This member's storage has completed nothing for this long.
    pub(crate) fn stuck(own: u32, what: Option<String>, waited: Duration, doing: &str) -> Self {
        let (what, waited_ms) = (what.unwrap_or_default(), waited.as_millis());
        let detail =
            format!("it has waited for its storage ({what}) for {waited_ms} ms, while {doing}");
        Self { member: Some(own), reporter: own, kind: FailureKind::Stalled, detail }
    }

    /// Nothing has moved for the stall timeout.
    pub(crate) fn stalled(own: u32, member: Option<u32>, timeout: Duration, doing: &str) -> Self {
        let detail = format!("while {doing}, nothing has moved for {timeout:?}");
        Self { member, reporter: own, kind: FailureKind::Stalled, detail }
    }
}

/// Returns at most this many bytes of a text, ending in "…" if it was cut.
fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    const REST: &str = "…";
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text[..text.floor_char_boundary(bytes_max - REST.len())].to_owned() + REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], members: u32) -> Option<Notice> {
        Notice::decode(&mut Fields::of(&bytes[1..]), members)
    }

    #[test]
    fn a_long_detail_is_cut_between_characters() {
        let (member, kind, detail) = (Some(1), FailureKind::Memory, "ä".repeat(100));
        let bytes = Notice { member, reporter: 2, kind, detail }.encode(3);
        assert!(bytes.len() <= CONTROL_BYTES_MAX);
        let detail = decode(&bytes, 3).unwrap().detail;
        let begins = detail.strip_suffix('…').expect("a sign that something is missing");
        assert!(begins.len() > 40 && begins.chars().all(|letter| letter == 'ä'));
    }

    #[test]
    fn a_detail_of_another_member_stays_in_its_line() {
        let (kind, detail) =
            (FailureKind::Application, "over\nrdmc: a\u{1b}[2Jb\u{2028}c\u{85}".to_owned());
        let bytes = Notice { member: None, reporter: 0, kind, detail }.encode(3);
        assert_eq!(decode(&bytes, 1).unwrap().detail, "over rdmc: a [2Jb c ");
    }

    #[test]
    fn ranks_of_no_member_are_refused() {
        let notice = |member, reporter| {
            let (kind, detail) = (FailureKind::Lost, "why".to_owned());
            Notice { member, reporter, kind, detail }
        };
        for good in [notice(Some(4), 4), notice(None, 0)] {
            assert_eq!(decode(&good.encode(0), 5), Some(good));
        }
        for bad in [notice(Some(5), 0), notice(Some(0), 5), notice(None, 5)] {
            assert_eq!(decode(&bad.encode(0), 5), None);
        }
    }
}
