//! An end whose peer is hostile, in tests and fuzz targets.

use std::{
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use transport::{
    CONTROL_BYTES_MAX, Cause, Completion, OneSidedWrites, PeerMemory, Region, Token, Transport,
};

use crate::{
    driver::ShmTransport,
    offer::{Offer, ShmLink},
    settings::ShmSettings,
};

const PATIENCE: Duration = Duration::from_secs(30);
/// Memory that is posted for a block.
pub(crate) const POSTED_BYTES: usize = 3000;
/// Memory that the peer may write, of two kinds.
pub(crate) const EXPOSED_BYTES: usize = 1000;
const SENT_BYTES: usize = 3 * 4096;
const MARGIN_BYTES: usize = 500;
const FILL: u8 = 0xA7;

/// A transport with one link, memory that its peer may write, and posts.
pub(crate) struct Victim {
    transport: ShmTransport,
    exposed: [PeerMemory; 2],
    region: Region,
    open: usize,
    pub(crate) end: Option<Cause>,
    /// How many blocks, words and reports of writes have come.
    pub(crate) understood: usize,
}

impl Victim {
    /// Returns a victim, and the socket of its peer.
    pub(crate) fn start() -> (Self, OwnedFd) {
        let offer = Offer::make().unwrap();
        let peer = ShmLink::connect(offer.bytes()).unwrap().into_parts().0;
        let mut transport = ShmTransport::new(ShmSettings::default()).unwrap();
        let endpoint = transport.open(offer.accept(PATIENCE).unwrap()).unwrap();
        let exposed =
            [PeerMemory::zeroed(EXPOSED_BYTES), PeerMemory::from_vec(vec![0; EXPOSED_BYTES])];
        for (key, memory) in (0..).zip(&exposed) {
            transport.expose(endpoint, key, memory.clone()).unwrap();
        }
        let region = Region::from_vec(vec![FILL; POSTED_BYTES + 2 * MARGIN_BYTES]);
        let into = region.write(MARGIN_BYTES..MARGIN_BYTES + POSTED_BYTES).unwrap();
        transport.post_receive(endpoint, into, Token(0)).unwrap();
        let source = Region::zeroed(SENT_BYTES);
        let from = source.read(0..SENT_BYTES).unwrap();
        transport.post_send(endpoint, from, 0, Token(1)).unwrap();
        (Self { transport, exposed, region, open: 2, end: None, understood: 0 }, peer)
    }

    /// Lets the next poll look at the socket, which it does once a millisecond.
    pub(crate) fn transport_looks(&self) {
        thread::sleep(Duration::from_micros(1_050));
    }

    pub(crate) fn poll(&mut self) {
        let mut completions = Vec::new();
        self.transport.poll(&mut completions, Duration::ZERO);
        for completion in completions {
            assert_eq!(self.end, None, "{completion:?} follows the end");
            match completion {
                Completion::Sent { .. } | Completion::Cancelled { .. } => self.open -= 1,
                Completion::Received { .. } => {
                    self.open -= 1;
                    self.understood += 1;
                }
                Completion::Broken { cause, .. } => {
                    assert_eq!(self.open, 0);
                    self.end = Some(cause);
                }
                Completion::Control { word, .. } => {
                    assert!((1..=CONTROL_BYTES_MAX).contains(&word.len()));
                    self.understood += 1;
                }
                Completion::Written { .. } => self.understood += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Polls until the end.
    pub(crate) fn end(&mut self) -> Cause {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.poll();
            if let Some(cause) = &self.end {
                return cause.clone();
            }
            assert!(Instant::now() < deadline, "it does not end");
        }
    }

    /// Checks that nothing outside of what was posted was written, and that all memory is given back.
    pub(crate) fn check(self) {
        drop(self.transport);
        let memory = self.region.try_into_vec().expect("it was handed back");
        let around = memory[..MARGIN_BYTES].iter().chain(&memory[MARGIN_BYTES + POSTED_BYTES..]);
        assert!(around.copied().all(|byte| byte == FILL), "bytes around the memory were written");
        for exposed in self.exposed {
            assert!(exposed.try_into_vec().is_ok(), "the transport has exposed memory");
        }
    }
}
