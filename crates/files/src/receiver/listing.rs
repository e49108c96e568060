//! The listing of a tree, as it comes to a receiver.

use std::sync::Arc;

use rdmc::{Application, Failure, Incoming, Region};
use tree::LISTING_BYTES_MAX;

use super::{
    error::ReceiveError,
    listings::{Held, Listings},
    membership::MemberEvent,
    reception::Reception,
};
use crate::messages::TreeOffer;

/// The listing that a root has offered, as far as it has come.
pub(super) struct Listing {
    bytes: u64,
    /// If it comes in a group.
    digest: Option<[u8; 32]>,
    /// What has come in messages of the root.
    parts: Vec<u8>,
    /// What comes in groups.
    region: Option<Region>,
    held: Held,
}

impl Listing {
    /// Errors: longer than receivers accept, or than there is room for.
    pub(super) fn offered(
        offer: &TreeOffer,
        listings: &Arc<Listings>,
    ) -> Result<Self, ReceiveError> {
        let bytes = offer.listing_bytes;
        if bytes > LISTING_BYTES_MAX as u64 {
            return Err(ReceiveError::Refused(format!(
                "a list of files has {bytes} bytes, at most {LISTING_BYTES_MAX} are accepted"
            )));
        }
        let held = listings.hold(bytes)?;
        Ok(Self { bytes, digest: offer.relayed, parts: Vec::new(), region: None, held })
    }

    pub(super) fn is_relayed(&self) -> bool {
        self.digest.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds the next part. True if it was the last.
    ///
    /// Errors: it is empty, or goes beyond the end.
    pub(super) fn add(&mut self, part: &[u8]) -> Result<bool, ReceiveError> {
        let has = (self.parts.len() + part.len()) as u64;
        if part.is_empty() || has > self.bytes {
            let what = "the root sent a list of files of another length";
            return Err(ReceiveError::System(what.into()));
        }
        self.parts.extend_from_slice(part);
        Ok(has == self.bytes)
    }

    /// Where a group puts it, if it comes in one. Each group gets its own: one that was left may still write.
    ///
    /// Errors: it does not come in a group, or there is no memory.
    pub(super) fn region(&mut self) -> Result<Region, String> {
        if !self.is_relayed() {
            return Err("no list of files was expected in a group".into());
        }
        let region = Region::allocate(self.bytes).map_err(|error| error.to_string())?;
        self.region = Some(region.clone());
        Ok(region)
    }

    /// Takes what has come in the last group. False if that is not what was offered.
    pub(super) fn take_relayed(&mut self) -> bool {
        let region = self.region.take();
        let lease = region.as_ref().and_then(|region| region.read(0..region.len()).ok());
        let came = lease.as_deref().unwrap_or_default();
        let is_right = self.digest.is_some_and(|digest| blake3::hash(came) == digest);
        if is_right {
            self.parts = came.to_vec();
        }
        is_right
    }

    /// What has come, and the room that it takes, also when it is decoded.
    pub(super) fn into_encoded(self) -> (Vec<u8>, Held) {
        (self.parts, self.held)
    }
}

/// Receives a listing in a group.
pub struct ListingMember<F> {
    number: u64,
    region: Region,
    reception: Arc<Reception>,
    notify: F,
}

impl<F: FnMut(MemberEvent)> ListingMember<F> {
    /// `region`: where it is put, and how long it is.
    pub fn new(number: u64, region: Region, reception: Arc<Reception>, notify: F) -> Self {
        Self { number, region, reception, notify }
    }
}

impl<F: FnMut(MemberEvent) + Send + 'static> Application for ListingMember<F> {
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        if message > 0 || bytes != self.region.len() as u64 {
            let expected = self.region.len();
            return Incoming::Refuse(format!("expected one message of {expected} bytes"));
        }
        Incoming::Into(self.region.clone())
    }

    fn block(&mut self, _message: u64, _offset: u64, bytes: u64) {
        self.reception.advanced(bytes);
    }

    fn complete(&mut self, _message: u64, _region: Region) {
        (self.notify)(MemberEvent::Listed(self.number));
    }

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        (self.notify)(MemberEvent::Ended(self.number, Err(failure.clone())));
    }

    fn closed(&mut self) {
        (self.notify)(MemberEvent::Ended(self.number, Ok(())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(bytes: &[u8], digest: Option<[u8; 32]>) -> Listing {
        let listing_bytes = bytes.len() as u64;
        let offer = TreeOffer { listing_bytes, relayed: digest, ..TreeOffer::default() };
        Listing::offered(&offer, &Arc::default()).unwrap()
    }

    #[test]
    fn parts_make_a_listing_of_the_offered_length() {
        let mut direct = listing(b"abcdef", None);
        assert!(!direct.add(b"abc").unwrap());
        assert!(direct.add(b"").is_err() && direct.add(b"defg").is_err());
        assert!(direct.region().is_err(), "it was not to come in a group");
        assert!(direct.add(b"def").unwrap());
        assert_eq!(direct.into_encoded().0, b"abcdef");
        let too_long = LISTING_BYTES_MAX as u64 + 1;
        let offer = TreeOffer { listing_bytes: too_long, ..TreeOffer::default() };
        assert!(Listing::offered(&offer, &Arc::new(Listings::new(u64::MAX))).is_err());
    }

    #[test]
    fn what_comes_in_a_group_counts_if_it_is_what_was_offered() {
        let right = b"abcdef";
        let mut relayed = listing(right, Some(*blake3::hash(right).as_bytes()));
        assert!(!relayed.take_relayed(), "nothing has come");
        for (came, is_right) in [(b"abcdeX", false), (right, true)] {
            let region = relayed.region().unwrap();
            region.write(0..6).unwrap().copy_from_slice(came);
            assert_eq!(relayed.take_relayed(), is_right);
        }
        assert_eq!(relayed.into_encoded().0, right);
    }
}
