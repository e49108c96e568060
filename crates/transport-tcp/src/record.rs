//! Records: how the frames of a protected stream are authenticated, and encrypted where that was
//! asked for (docs/decisions/links.md).
//!
//! A protected stream is a sequence of records, in each direction with a key of its own; a record
//! holds whole frames.
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..4 | length of the body in bytes, little endian: 1 to [`RECORD_BYTES_MAX`] |
//! | 4..20 | tag of that length and of the record's number |
//! | 20..20+n | the body: frames, as `wire` has them; encrypted or not |
//! | 20+n..36+n | tag of the body |
//!
//! Both sides count records from 0; the number is not sent. Keyed BLAKE3 of number and length gives
//! 48 bytes: the first tag, and the record's own key. With that key the second tag is keyed BLAKE3
//! of the body, or AES-128-GCM's. So a record that is changed, repeated, left out or in another
//! place is detected before any of it is used, and its length before it is waited for. A key is
//! used for one record only, so nonces cannot repeat.

use std::hint::black_box;

use mio::net::TcpStream;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use rustix::io::{Errno, read};
use zeroize::Zeroizing;

use crate::moved::Moved;

/// The longest body: a segment of 64 KiB, and some control words beside it.
pub(crate) const RECORD_BYTES_MAX: usize = (64 << 10) + 1024;
/// Before the body.
pub(crate) const RECORD_HEAD_BYTES: usize = 4 + TAG_BYTES;
const TAG_BYTES: usize = 16;

/// Enough for a peer that sends nothing but control words.
const BUFFER_BYTES_MIN: usize = 1 << 10;
/// Two of the longest records, so that the end of one and the start of the next come together.
const BUFFER_BYTES: usize = 2 * (RECORD_HEAD_BYTES + RECORD_BYTES_MAX + TAG_BYTES);

/// One direction of one stream: makes the keys of its records, one after another.
struct Numbered {
    key: Zeroizing<[u8; 32]>,
    encrypted: bool,
    number: u64,
}

/// What is needed for one record.
struct RecordKey {
    head_tag: [u8; TAG_BYTES],
    key: Zeroizing<[u8; 32]>,
}

/// A record fails its check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadTag {
    #[error("the head of record {0} has a wrong tag")]
    Head(u64),
    #[error("record {0} has a wrong tag")]
    Body(u64),
}

impl Numbered {
    fn new(key: Zeroizing<[u8; 32]>, encrypted: bool) -> Self {
        Self { key, encrypted, number: 0 }
    }

    fn record_key(&self, length: [u8; 4]) -> RecordKey {
        let mut made = Zeroizing::new([0; TAG_BYTES + 32]);
        blake3::Hasher::new_keyed(&self.key)
            .update(&self.number.to_le_bytes())
            .update(&length)
            .finalize_xof()
            .fill(&mut *made);
        let (mut head_tag, mut key) = ([0; TAG_BYTES], Zeroizing::new([0; 32]));
        head_tag.copy_from_slice(&made[..TAG_BYTES]);
        key.copy_from_slice(&made[TAG_BYTES..]);
        RecordKey { head_tag, key }
    }
}

impl RecordKey {
    /// Tags a body, and encrypts it if so agreed.
    fn seal(&self, body: &mut [u8], encrypted: bool) -> Result<[u8; TAG_BYTES], Errno> {
        if !encrypted {
            return Ok(self.tag(body));
        }
        let (cipher, nonce) = self.cipher()?;
        // Only a body of many gigabytes is refused.
        let tag = cipher
            .seal_in_place_separate_tag(nonce, Aad::empty(), body)
            .map_err(|_| Errno::INVAL)?;
        let mut bytes = [0; TAG_BYTES];
        bytes.copy_from_slice(tag.as_ref());
        Ok(bytes)
    }

    /// Whether a body and its tag belong together; decrypts it if so agreed.
    fn open(&self, body: &mut [u8], tag: [u8; TAG_BYTES], encrypted: bool) -> bool {
        if !encrypted {
            return equal(&self.tag(body), &tag);
        }
        let Ok((cipher, nonce)) = self.cipher() else { return false };
        cipher.open_in_place_separate_tag(nonce, Aad::empty(), Tag::from(tag), body, 0..).is_ok()
    }

    fn tag(&self, body: &[u8]) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&blake3::keyed_hash(&self.key, body).as_bytes()[..TAG_BYTES]);
        tag
    }

    fn cipher(&self) -> Result<(LessSafeKey, Nonce), Errno> {
        // Only a key of another length is refused.
        let key = UnboundKey::new(&AES_128_GCM, &self.key[..16]).map_err(|_| Errno::INVAL)?;
        // Any nonce does for a key that is used once.
        Ok((LessSafeKey::new(key), Nonce::assume_unique_for_key([0; 12])))
    }
}

/// Compares in constant time.
fn equal(one: &[u8; TAG_BYTES], other: &[u8; TAG_BYTES]) -> bool {
    let difference = one.iter().zip(other).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
    difference == 0
}

/// Makes records of frames.
pub(crate) struct Sealer(Numbered);

impl Sealer {
    pub(crate) fn new(key: Zeroizing<[u8; 32]>, encrypted: bool) -> Self {
        Self(Numbered::new(key, encrypted))
    }

    /// Makes a record of the frames that follow [`RECORD_HEAD_BYTES`] of unused space.
    pub(crate) fn seal(&mut self, record: &mut Vec<u8>) -> Result<(), Errno> {
        let (head, body) = record.split_at_mut(RECORD_HEAD_BYTES);
        debug_assert!((1..=RECORD_BYTES_MAX).contains(&body.len()));
        let length = (body.len() as u32).to_le_bytes();
        let key = self.0.record_key(length);
        head[..4].copy_from_slice(&length);
        head[4..].copy_from_slice(&key.head_tag);
        let tag = key.seal(body, self.0.encrypted)?;
        record.extend_from_slice(&tag);
        self.0.number += 1;
        Ok(())
    }
}

/// Reads records, and returns the frames in them once they are checked.
pub(crate) struct Opener {
    records: Numbered,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that are read and not yet returned.
    start: usize,
    end: usize,
    /// Of a record whose head is checked, and how long its body is.
    opened: Option<(RecordKey, usize)>,
}

impl Opener {
    pub(crate) fn new(key: Zeroizing<[u8; 32]>, encrypted: bool) -> Self {
        let (records, buffer) = (Numbered::new(key, encrypted), vec![0; BUFFER_BYTES_MIN]);
        Self { records, buffer, start: 0, end: 0, opened: None }
    }

    /// One system call. Call [`Opener::next`] afterwards, until it has no more.
    pub(crate) fn read(&mut self, socket: &TcpStream) -> Result<Moved, Errno> {
        let free = &mut self.buffer[self.end..];
        let wanted = free.len();
        let bytes = read(socket, free)?;
        self.end += bytes;
        Ok(Moved { bytes, wanted })
    }

    /// The frames of the next record that is there as a whole.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, BadTag> {
        let number = self.records.number;
        let ahead = &self.buffer[self.start..self.end];
        if self.opened.is_none()
            && let Some((head, _)) = ahead.split_first_chunk::<RECORD_HEAD_BYTES>()
        {
            let length = [head[0], head[1], head[2], head[3]];
            let key = self.records.record_key(length);
            let bytes = u32::from_le_bytes(length) as usize;
            let mut tag = [0; TAG_BYTES];
            tag.copy_from_slice(&head[4..]);
            if !equal(&key.head_tag, &tag) || !(1..=RECORD_BYTES_MAX).contains(&bytes) {
                return Err(BadTag::Head(number));
            }
            self.opened = Some((key, bytes));
        }
        let whole_bytes = match &self.opened {
            Some((_, bytes)) => RECORD_HEAD_BYTES + bytes + TAG_BYTES,
            None => RECORD_HEAD_BYTES,
        };
        let Some((key, bytes)) = self.opened.take_if(|_| whole_bytes <= ahead.len()) else {
            self.make_space(whole_bytes);
            return Ok(None);
        };
        let record = &mut self.buffer[self.start..][..whole_bytes];
        self.start += whole_bytes;
        self.records.number += 1;
        let (body, tag) = record[RECORD_HEAD_BYTES..].split_at_mut(bytes);
        let mut expected = [0; TAG_BYTES];
        expected.copy_from_slice(tag);
        if !key.open(body, expected, self.records.encrypted) {
            return Err(BadTag::Body(number));
        }
        Ok(Some(body))
    }

    /// Makes space for the rest of a record of this length, and at least one byte.
    fn make_space(&mut self, whole_bytes: usize) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start + whole_bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if whole_bytes > self.buffer.len() {
            self.buffer.resize(BUFFER_BYTES, 0);
        }
    }
}
