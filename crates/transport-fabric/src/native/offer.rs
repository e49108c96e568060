//! Offers: what the two ends of a new link exchange over the connection that bootstrap has made.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use transport_tcp::TcpLink;

use crate::{
    error::FabricError,
    native::device::{DatagramMaker, Datagrams},
    role::Role,
};

/// The longest offer in bytes.
const OFFER_BYTES_MAX: usize = 4096;
/// The longest address in bytes. Addresses are padded with zeros to this length, since providers
/// read as many bytes as an address's own format requires.
pub(crate) const ADDRESS_BYTES_MAX: usize = 512;
/// More rails than any host has.
const RAILS_MAX: usize = 16;
/// Also of how links cut blocks (`link/segments.rs`).
const VERSION: u8 = 4;
/// Link numbers have this many bits: they share 32 bits of immediate data with a slot number.
pub(crate) const LINK_NUMBER_BITS: u32 = 24;

/// A secret that assigns a connection to its link.
pub(crate) type Cookie = [u8; 16];

/// The contents of an offer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    version: u8,
    provider: String,
    pub(crate) cookie: Cookie,
    /// The number by which the peer identifies this link, in immediate data and tags.
    pub(crate) number: u32,
    /// The process of this end.
    process: u32,
    /// The address of each rail, in the provider's format.
    pub(crate) addresses: Vec<Vec<u8>>,
}

impl Terms {
    /// Decodes a peer's offer, for a process whose fabric has this provider. Errors: not an offer,
    /// or one for another provider.
    pub(crate) fn read(bytes: &[u8], provider: &str, process: u32) -> Result<Self, FabricError> {
        let refuse = |why: String| Err(FabricError::Offer(why));
        if bytes.len() > OFFER_BYTES_MAX {
            return refuse(format!("it has {} bytes", bytes.len()));
        }
        let mut terms: Self = match postcard::from_bytes(bytes) {
            Ok(terms) => terms,
            Err(error) => return refuse(error.to_string()),
        };
        if terms.version != VERSION {
            return refuse(format!("version {} instead of {VERSION}", terms.version));
        }
        if terms.provider != provider {
            return refuse(format!(
                "it is for the provider {:?}, this is {provider}",
                terms.provider
            ));
        }
        if provider == "shm" && terms.process == process {
            // libfabric lets such ends use each other's mapping, even after one of them has ended.
            return refuse(
                "shm joins processes, and both ends are in this one; use the fabric tcp".into(),
            );
        }
        let lawful = |address: &Vec<u8>| (1..ADDRESS_BYTES_MAX).contains(&address.len());
        if terms.addresses.is_empty()
            || terms.addresses.len() > RAILS_MAX
            || !terms.addresses.iter().all(lawful)
            || terms.number >> LINK_NUMBER_BITS != 0
        {
            return refuse("its addresses or its number are out of range".into());
        }
        for address in &mut terms.addresses {
            address.resize(ADDRESS_BYTES_MAX, 0);
        }
        Ok(terms)
    }
}

/// This end's part of a new link: send [`Offer::bytes`] to the peer, and make a [`FabricLink`] of
/// this offer and the peer's. A dropped offer's cookie becomes invalid.
#[derive(Debug)]
pub struct Offer {
    pub(crate) terms: Terms,
    bytes: Vec<u8>,
    book: Arc<Book>,
    /// With datagrams: an endpoint of each rail with its address vector, made for this link alone,
    /// so that closing it ends all posts of the link.
    pub(crate) endpoints: Vec<Datagrams>,
}

/// Makes offers for a transport, on any thread.
#[derive(Clone, Debug)]
pub struct Offers(Arc<Book>);

/// What all offers of a transport share, and the cookies of the offers that exist.
#[derive(Debug)]
pub(crate) struct Book {
    provider: String,
    /// The addresses of the listening endpoints. With datagrams each link has addresses of its own.
    addresses: Vec<Vec<u8>>,
    datagrams: Vec<DatagramMaker>,
    cookies: Mutex<HashSet<Cookie>>,
    next_number: AtomicU32,
}

impl Book {
    pub(crate) fn new(
        provider: String,
        addresses: Vec<Vec<u8>>,
        datagrams: Vec<DatagramMaker>,
    ) -> Arc<Self> {
        Arc::new(Self {
            provider,
            addresses,
            datagrams,
            cookies: Mutex::default(),
            next_number: AtomicU32::new(1),
        })
    }

    /// Returns whether this cookie was given to a peer that has not used it yet.
    pub(crate) fn knows(&self, cookie: &Cookie) -> bool {
        self.cookies().contains(cookie)
    }

    fn cookies(&self) -> MutexGuard<'_, HashSet<Cookie>> {
        self.cookies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Offers {
    pub(crate) fn new(book: Arc<Book>) -> Self {
        Self(book)
    }

    /// Makes the offer for one new link. Errors: the system has no random numbers.
    pub fn make(&self) -> Result<Offer, FabricError> {
        let mut cookie = Cookie::default();
        getrandom::fill(&mut cookie)
            .map_err(|error| FabricError::call("making a random number", error))?;
        let number = self.0.next_number.fetch_add(1, Ordering::Relaxed);
        let mut addresses = self.0.addresses.clone();
        let endpoints = {
            let made: Result<Vec<_>, _> =
                self.0.datagrams.iter().map(DatagramMaker::make).collect();
            let (own, endpoints): (Vec<_>, Vec<_>) = made?.into_iter().unzip();
            addresses.extend(own);
            endpoints
        };
        let terms = Terms {
            version: VERSION,
            provider: self.0.provider.clone(),
            cookie,
            number: number & ((1 << LINK_NUMBER_BITS) - 1),
            process: std::process::id(),
            addresses,
        };
        let bytes = postcard::to_stdvec(&terms)
            .map_err(|error| FabricError::call("writing an offer", error))?;
        self.0.cookies().insert(cookie);
        Ok(Offer { terms, bytes, book: Arc::clone(&self.0), endpoints })
    }
}

impl Offer {
    /// Returns the bytes for the peer; at most 4 KiB. Both ends must keep them secret.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.book.cookies().remove(&self.terms.cookie);
    }
}

/// The offers of both ends, and the TCP connection that reports to each end when the other is lost.
/// Made into an endpoint by [`transport::Transport::open`].
pub struct FabricLink {
    pub(crate) lifeline: TcpLink,
    pub(crate) ends: Ends,
}

/// The offers of both ends.
pub(crate) struct Ends {
    pub(crate) role: Role,
    pub(crate) ours: Offer,
    pub(crate) theirs: Terms,
}

impl FabricLink {
    /// Combines the offers of both ends. `lifeline` must be connected and authenticated, and is
    /// used for nothing else.
    ///
    /// Errors: the peer's bytes are not an offer, or one for another provider.
    pub fn new(
        lifeline: TcpLink,
        role: Role,
        ours: Offer,
        theirs: &[u8],
    ) -> Result<Self, FabricError> {
        let theirs = Terms::read(theirs, &ours.terms.provider, ours.terms.process)?;
        Ok(Self { lifeline, ends: Ends { role, ours, theirs } })
    }
}

impl fmt::Debug for FabricLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FabricLink({:?})", self.ends.role)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn offers() -> Offers {
        let addresses = vec![vec![2, 0, 1, 2]];
        let book = Book::new("tcp".into(), addresses, Vec::new());
        Offers::new(book)
    }

    fn lifeline() -> TcpLink {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap().into()
    }

    fn refused(bytes: &[u8]) -> String {
        let ours = offers().make().unwrap();
        FabricLink::new(lifeline(), Role::Accept, ours, bytes).unwrap_err().to_string()
    }

    #[test]
    fn an_offer_is_understood_and_forgotten_when_dropped() {
        let offers = offers();
        let (ours, theirs) = (offers.make().unwrap(), offers.make().unwrap());
        assert_ne!(ours.terms.cookie, theirs.terms.cookie);
        let (cookie, number) = (ours.terms.cookie, theirs.terms.number);
        let link = FabricLink::new(lifeline(), Role::Connect, ours, theirs.bytes()).unwrap();
        let theirs = &link.ends.theirs;
        assert_eq!((theirs.number, theirs.addresses[0].len()), (number, 512));
        assert!(offers.0.knows(&cookie));
        drop(link);
        assert!(!offers.0.knows(&cookie));
    }

    #[test]
    fn other_bytes_are_refused() {
        assert!(refused(&[]).contains("cannot be used"));
        assert!(refused(&[7; 5000]).contains("5000 bytes"));
        let good = offers().make().unwrap().terms.clone();
        let with = |change: fn(&mut Terms)| {
            let mut terms = good.clone();
            change(&mut terms);
            refused(&postcard::to_stdvec(&terms).unwrap())
        };
        assert!(with(|terms| terms.version = 9).contains("version 9"));
        assert!(with(|terms| terms.version = 3).contains("version 3 instead of 4"));
        assert!(with(|terms| terms.provider = "verbs".into()).contains("verbs"));
        for change in [
            |terms: &mut Terms| terms.addresses.clear(),
            |terms: &mut Terms| terms.addresses[0].clear(),
            |terms: &mut Terms| terms.addresses = vec![vec![1]; 17],
            |terms: &mut Terms| terms.addresses[0] = vec![1; 513],
            |terms: &mut Terms| terms.number = 1 << 24,
        ] {
            assert!(with(change).contains("out of range"));
        }
    }
}
