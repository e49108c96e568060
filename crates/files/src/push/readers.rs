//! Hosts that read a source at a URL themselves, so that the root reads nothing of it (docs/decisions/remote.md).
//!
//! What the root would send is cut into shares of whole subtrees ([`Subtrees`]). One of the hosts that lack a share reads it, and is
//! the root of the group that brings it to the others. It reports digests of what it reads, from which those of the files follow. What
//! has no digest, as its reader was lost, counts as missing everywhere and is read again.

use std::collections::BTreeMap;

use super::{
    parts::{Holder, PARTS_MAX, Part, parts},
    shares::Shares,
};
use crate::{
    digests::Digests,
    ranges::Ranges,
    subtrees::{Differs, KnownSubtrees, SubtreeDigest, Subtrees},
};

/// What hosts read of a source, and the digests that they have reported.
#[derive(Debug)]
pub(super) struct Readers {
    known: KnownSubtrees,
    /// What each host was asked to read: it may report digests of that.
    asked: BTreeMap<usize, Ranges>,
}

impl Readers {
    /// Of an object with this division.
    pub(super) fn new(subtrees: Subtrees) -> Self {
        Self { known: KnownSubtrees::new(subtrees), asked: BTreeMap::new() }
    }

    /// A host has read subtrees that begin at these places. Returns the files of which all digests are known now.
    ///
    /// Errors: another digest of one is known.
    pub(super) fn on_read(
        &mut self,
        host: usize,
        digests: &[(u64, SubtreeDigest)],
    ) -> Result<Digests, Differs> {
        let mut files = Vec::new();
        let Some(asked) = self.asked.get(&host) else { return Ok(Digests::Files(files)) };
        for &(start, digest) in digests {
            let subtree = self.known.division().at(start);
            if subtree.0 == start && subtree.1 > start && asked.covers(subtree) {
                files.extend(self.known.add(start, digest)?);
            }
        }
        Ok(Digests::Files(files))
    }

    /// The next groups: as for an object that the root has, but it sends nothing.
    pub(super) fn parts(
        &mut self,
        bytes: u64,
        holders: &[Holder<'_>],
        shares: &Shares<'_>,
    ) -> Vec<Part> {
        let has: Vec<Ranges> = holders.iter().map(|holder| self.has(holder, bytes)).collect();
        let with = |(index, has)| {
            let holder: &Holder<'_> = &holders[index];
            // What a host had before has no digest.
            let sends = holder.sends && holder.kept.is_empty();
            Holder { has, sends, is_source: false, ..*holder }
        };
        let holders: Vec<Holder<'_>> = has.iter().enumerate().map(with).collect();
        let planned = parts(bytes, &holders, shares);
        let mut room = PARTS_MAX - planned.len();
        let mut all: Vec<Part> = Vec::new();
        for part in planned {
            match part.source {
                Some(_) => all.push(part),
                None => {
                    let shares_of =
                        |host: usize| all.iter().filter(|part| part.source == Some(host)).count();
                    // Those that read least first.
                    let mut readers = part.hosts.clone();
                    readers.sort_by_key(|&host| shares_of(host));
                    readers.truncate(room + 1);
                    let read = self.read(&part, &readers, shares);
                    room -= read.len().saturating_sub(1);
                    all.extend(read);
                }
            }
        }
        all
    }

    /// What a host need not be sent, in whole subtrees: not what has no digest of files that it did not have at first.
    fn has(&self, holder: &Holder<'_>, bytes: u64) -> Ranges {
        let mut has = holder.has.clone();
        let received = self.known.division().files(&holder.kept.missing(bytes));
        for file in received.iter() {
            self.known.read().gaps(file).for_each(|unread| has.remove(unread));
        }
        self.known.division().whole(&has.missing(bytes)).missing(bytes)
    }

    /// Cuts a part into shares, which these hosts of it read.
    fn read(&mut self, part: &Part, readers: &[usize], shares: &Shares<'_>) -> Vec<Part> {
        let cut = shares.cut(&part.ranges, readers.iter().copied().map(Some).collect());
        let mut left = part.ranges.clone();
        let mut read = Vec::new();
        for (reader, share) in cut {
            let share = left.intersection(&self.known.division().whole(&share));
            share.iter().for_each(|range| left.remove(range));
            if let Some(reader) = reader.filter(|_| !share.is_empty()) {
                self.asked.entry(reader).or_default().extend(share.iter());
                let others = part.hosts.iter().copied().filter(|&host| host != reader).collect();
                read.push(Part { reads: true, ..Part::of(Some(reader), others, share) });
            }
        }
        let shares = read.len();
        read.iter_mut().for_each(|part| part.shares = shares);
        read
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{super::shares::SendRates, *};
    use crate::{ranges::ByteRange, subtrees::SUBTREE_BYTES};

    const MIB: u64 = SUBTREE_BYTES;

    fn holders<'a>(has: &'a [Ranges], kept: &'a [Ranges]) -> Vec<Holder<'a>> {
        let holder = |(host, (has, kept))| Holder {
            host,
            has,
            kept,
            sends: true,
            is_source: false,
            is_deferred: false,
            apart_from: &[],
        };
        has.iter().zip(kept).enumerate().map(holder).collect()
    }

    fn plan(readers: &mut Readers, bytes: u64, has: &[Ranges]) -> Vec<Part> {
        let kept = vec![Ranges::default(); has.len()];
        let rates = SendRates::default();
        let shares = Shares::new(MIB, &rates);
        readers.parts(bytes, &holders(has, &kept), &shares)
    }

    /// Reports the digests of all subtrees of a part.
    fn read(readers: &mut Readers, part: &Part) -> usize {
        let (mut digests, mut files) = (Vec::new(), 0);
        for (start, end) in part.ranges.iter() {
            let mut at = start;
            while at < end {
                digests.push((at, [7; 32]));
                at = readers.known.division().at(at).1;
            }
        }
        if let Digests::Files(all) = readers.on_read(part.source.unwrap(), &digests).unwrap() {
            files += all.len();
        }
        files
    }

    #[test]
    fn each_host_reads_a_share_and_the_others_get_it() {
        let bytes = 9 * MIB + 5;
        let mut readers = Readers::new(Subtrees::new([(0, bytes)], MIB));
        let nothing = vec![Ranges::default(); 3];
        let parts = plan(&mut readers, bytes, &nothing);
        assert_eq!(parts.iter().map(|part| part.source).collect::<Vec<_>>(), [0, 1, 2].map(Some));
        assert!(parts.iter().all(|part| part.reads && part.shares == 3 && part.hosts.len() == 2));
        let all: Ranges = parts.iter().flat_map(|part| part.ranges.iter()).collect();
        assert_eq!(all, [(0, bytes)].into_iter().collect());
        // Only what a host was asked for counts.
        let digests = [(parts[1].ranges.iter().next().unwrap().0, [1; 32])];
        assert_eq!(readers.on_read(0, &digests), Ok(Digests::Files(Vec::new())));
        assert_eq!(parts.iter().map(|part| read(&mut readers, part)).sum::<usize>(), 1);
        assert_eq!(readers.on_read(1, &digests), Err(Differs), "another digest than before");
    }

    #[test]
    fn what_nobody_has_digested_is_read_again_though_all_have_it() {
        let bytes = 4 * MIB;
        let mut readers = Readers::new(Subtrees::new([(0, bytes)], MIB));
        let parts = plan(&mut readers, bytes, &vec![Ranges::default(); 2]);
        assert_eq!((parts.len(), read(&mut readers, &parts[0])), (2, 0));
        // The other reader is lost, and everyone has its share.
        let all: Ranges = [(0, bytes)].into_iter().collect();
        let again = plan(&mut readers, bytes, std::slice::from_ref(&all));
        let expected = Part::of(Some(0), Vec::new(), parts[1].ranges.clone());
        assert_eq!(again, [Part { reads: true, ..expected }]);
        assert_eq!(read(&mut readers, &again[0]), 1);
        assert_eq!(plan(&mut readers, bytes, &[all]), []);
    }

    proptest! {
        #[test]
        fn shares_of_whole_subtrees_make_up_what_is_missing(
            ends in prop::collection::vec(1..20 * MIB, 1..6),
            has in prop::collection::vec((0..20 * MIB, 0..20 * MIB), 1..12),
            sent in prop::collection::vec(1..1_000_u64, 12),
        ) {
            let mut ends = ends;
            ends.sort_unstable();
            ends.dedup();
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let files: Vec<ByteRange> = starts.zip(ends.iter().copied()).collect();
            let bytes = ends[ends.len() - 1];
            let mut readers = Readers::new(Subtrees::new(files, MIB));
            let has: Vec<Ranges> = has
                .iter()
                .map(|&(start, end)| (start.min(bytes), end.min(bytes)))
                .map(|range| if range.0 < range.1 { [range].into_iter().collect() } else { Ranges::default() })
                .collect();
            let mut rates = SendRates::default();
            for (host, &bytes) in sent.iter().enumerate() {
                rates.note(Some(host), bytes, Duration::from_millis(10));
            }
            let kept = vec![Ranges::default(); has.len()];
            let shares = Shares::new(MIB, &rates);
            let parts = readers.parts(bytes, &holders(&has, &kept), &shares);
            prop_assert!(parts.len() <= PARTS_MAX);
            let mut digested = 0;
            for part in &parts {
                prop_assert!(part.reads && part.source.is_some());
                prop_assert_eq!(&readers.known.division().whole(&part.ranges), &part.ranges);
                digested += read(&mut readers, part);
            }
            // Nothing is digested yet, so that everything counts as missing.
            prop_assert_eq!(digested, ends.len());
            let all: Ranges = parts.iter().flat_map(|part| part.ranges.iter()).collect();
            prop_assert_eq!(all, [(0, bytes)].into_iter().collect());
        }
    }
}
