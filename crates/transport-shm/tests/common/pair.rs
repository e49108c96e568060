//! An end that sends and checks blocks, words and one-sided writes of both kinds, without end.

use std::{collections::HashMap, time::Duration};

use transport::{
    Cause, Completion, EndpointId, OneSidedWrites, PeerMemory, Region, Token, Transport,
};
use transport_shm::{ShmLink, ShmTransport};

/// Receives that are posted at once.
const RECEIVES: u64 = 3;
const BLOCK_BYTES: usize = 100_003;
const WRITE_BYTES: usize = 20_001;
/// Keys of memory that the peer maps, and that it cannot map.
const KEYS: [u32; 2] = [1, 2];

/// Words: one more receive is posted; memory is exposed; the last write was read.
const CREDIT: &[u8] = b"credit";
const EXPOSED: &[u8] = b"exposed";
const READ: &[u8] = b"read";

/// One end, which expects another one of the same kind.
pub struct Exchange {
    pub transport: ShmTransport,
    endpoint: EndpointId,
    exposed: [PeerMemory; 2],
    /// Open posts with their memory.
    posts: HashMap<Token, Region>,
    next_token: u64,
    blocks_sent: u64,
    blocks_received: u64,
    writes_sent: u64,
    writes_received: u64,
    end: Option<Cause>,
}

fn contents(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

impl Exchange {
    pub fn start(mut transport: ShmTransport, link: ShmLink) -> Self {
        let endpoint = transport.open(link).unwrap();
        let exposed = [PeerMemory::zeroed(WRITE_BYTES), PeerMemory::from_vec(vec![0; WRITE_BYTES])];
        for (key, memory) in KEYS.into_iter().zip(&exposed) {
            transport.expose(endpoint, key, memory.clone()).unwrap();
        }
        transport.write_control(endpoint, EXPOSED).unwrap();
        let mut exchange = Self {
            transport,
            endpoint,
            exposed,
            posts: HashMap::new(),
            next_token: 0,
            blocks_sent: 0,
            blocks_received: 0,
            writes_sent: 0,
            writes_received: 0,
            end: None,
        };
        (0..RECEIVES).for_each(|_| exchange.receive());
        exchange
    }

    /// Returns how many blocks and writes have arrived.
    pub fn received(&self) -> u64 {
        self.blocks_received + self.writes_received
    }

    /// Polls once. Returns the cause once the endpoint has broken; then all memory was handed back.
    pub fn step(&mut self, wait: Duration) -> Option<Cause> {
        let mut completions = Vec::new();
        self.transport.poll(&mut completions, wait);
        for completion in completions {
            assert!(self.end.is_none(), "{completion:?} follows the end");
            self.take(completion);
        }
        self.end.clone()
    }

    fn take(&mut self, completion: Completion) {
        match completion {
            Completion::Sent { token, .. } | Completion::Cancelled { token, .. } => {
                self.free(token);
            }
            Completion::Received { token, bytes, immediate, .. } => {
                let block = self.free(token);
                let seed = self.blocks_received;
                assert_eq!((bytes, u64::from(immediate)), (BLOCK_BYTES as u64, seed));
                assert!(block == contents(seed, BLOCK_BYTES), "block {seed} is another one");
                self.blocks_received += 1;
                self.receive();
            }
            Completion::Control { word, .. } => match word.as_slice() {
                CREDIT => self.send(),
                EXPOSED | READ => self.write(),
                other => panic!("the word {other:?}"),
            },
            Completion::Written { immediate, .. } => {
                let number = self.writes_received;
                assert_eq!(u64::from(immediate), number);
                let mut found = vec![0; WRITE_BYTES];
                self.exposed[number as usize % 2].copy_out(0, &mut found).unwrap();
                assert!(found == contents(number, WRITE_BYTES), "write {number} is another one");
                self.writes_received += 1;
                self.say(READ);
            }
            Completion::Broken { cause, .. } => {
                assert!(self.posts.is_empty(), "posts are open");
                self.end = Some(cause);
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns the memory of a completed post.
    fn free(&mut self, token: Token) -> Vec<u8> {
        let region = self.posts.remove(&token).expect("it was posted, and is done once");
        region.try_into_vec().expect("it was handed back")
    }

    fn post(&mut self, region: Region) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        self.posts.insert(token, region);
        token
    }

    /// Whether the transport still accepts posts: the end may follow.
    fn say(&mut self, word: &[u8]) {
        let _ = self.transport.write_control(self.endpoint, word);
    }

    fn receive(&mut self) {
        let region = Region::zeroed(BLOCK_BYTES);
        let into = region.write(0..BLOCK_BYTES).unwrap();
        let token = self.post(region);
        if self.transport.post_receive(self.endpoint, into, token).is_err() {
            self.posts.remove(&token);
        }
        self.say(CREDIT);
    }

    fn send(&mut self) {
        let number = self.blocks_sent;
        self.blocks_sent += 1;
        let region = Region::from_vec(contents(number, BLOCK_BYTES));
        let from = region.read(0..BLOCK_BYTES).unwrap();
        let token = self.post(region);
        if self.transport.post_send(self.endpoint, from, number as u32, token).is_err() {
            self.posts.remove(&token);
        }
    }

    fn write(&mut self) {
        let number = self.writes_sent;
        self.writes_sent += 1;
        let region = Region::from_vec(contents(number, WRITE_BYTES));
        let from = region.read(0..WRITE_BYTES).unwrap();
        let token = self.post(region);
        let (key, immediate) = (KEYS[number as usize % 2], Some(number as u32));
        let posted = self.transport.post_write(self.endpoint, from, key, 0, immediate, token);
        if posted.is_err() {
            self.posts.remove(&token);
        }
    }
}
