//! Records: authentication and encryption of the frames of a protected stream (docs/decisions/links.md).
//!
//! A protected stream is a sequence of records, with a separate key for each direction; a record
//! contains whole frames.
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..4 | length of the body in bytes, little endian: 1 to [`RECORD_BYTES_MAX`] |
//! | 4..20 | tag of that length and of the record's number |
//! | 20..20+n | the body: frames, as `wire` has them; encrypted |
//! | 20+n..36+n | tag of the body |
//!
//! Both sides count records from 0; the number is not sent. Keyed BLAKE3 of number and length gives
//! 32 bytes: the first tag, and the record's own key for AES-128-GCM, which makes the second tag. So a
//! record that is changed, repeated, removed or reordered is detected before any of it is used, and a changed length before the
//! body is awaited. Each record has its own key, so nonces cannot repeat, and a stream of any length stays below the limits of
//! AES-GCM for one key.

use std::{hint::black_box, io::IoSliceMut};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::{byte_stream::ByteStream, moved::Moved};

/// The longest body: a segment of 64 KiB and some control words.
pub(crate) const RECORD_BYTES_MAX: usize = (64 << 10) + 1024;
/// The bytes before the body.
pub(crate) const RECORD_HEAD_BYTES: usize = 4 + TAG_BYTES;
const TAG_BYTES: usize = 16;
/// Of AES-128.
const KEY_BYTES: usize = 16;

/// The length of the read buffer while the peer sends only control words.
const BUFFER_BYTES_MIN: usize = 1 << 10;
/// The length of two of the longest records, so that one read can return the end of one and the
/// start of the next.
const BUFFER_BYTES: usize = 2 * (RECORD_HEAD_BYTES + RECORD_BYTES_MAX + TAG_BYTES);

/// One direction of one stream: derives the keys of its records in order.
struct Numbered {
    key: Zeroizing<[u8; 32]>,
    number: u64,
}

/// The first tag and the key of one record.
struct RecordKey {
    head_tag: [u8; TAG_BYTES],
    key: Zeroizing<[u8; KEY_BYTES]>,
}

/// A record failed its integrity check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadTag {
    #[error("the head of record {0} has a wrong tag")]
    Head(u64),
    #[error("record {0} has a wrong tag")]
    Body(u64),
}

impl Numbered {
    fn new(key: Zeroizing<[u8; 32]>) -> Self {
        Self { key, number: 0 }
    }

    fn record_key(&self, length: [u8; 4]) -> RecordKey {
        let mut made = Zeroizing::new([0; TAG_BYTES + KEY_BYTES]);
        blake3::Hasher::new_keyed(&self.key)
            .update(&self.number.to_le_bytes())
            .update(&length)
            .finalize_xof()
            .fill(&mut *made);
        let (mut head_tag, mut key) = ([0; TAG_BYTES], Zeroizing::new([0; KEY_BYTES]));
        head_tag.copy_from_slice(&made[..TAG_BYTES]);
        key.copy_from_slice(&made[TAG_BYTES..]);
        RecordKey { head_tag, key }
    }
}

impl RecordKey {
    /// Encrypts a body, and returns its tag.
    fn seal(&self, body: &mut [u8]) -> Result<[u8; TAG_BYTES], Errno> {
        let (cipher, nonce) = self.cipher()?;
        // This fails only for a body of many gigabytes.
        let tag = cipher
            .seal_in_place_separate_tag(nonce, Aad::empty(), body)
            .map_err(|_| Errno::INVAL)?;
        let mut bytes = [0; TAG_BYTES];
        bytes.copy_from_slice(tag.as_ref());
        Ok(bytes)
    }

    /// Returns the decrypted body, if the tag behind it is right.
    fn open<'a>(&self, sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        let (cipher, nonce) = self.cipher().ok()?;
        cipher.open_in_place(nonce, Aad::empty(), sealed).ok().map(|body| &*body)
    }

    fn cipher(&self) -> Result<(LessSafeKey, Nonce), Errno> {
        // This fails only for a key of another length.
        let key = UnboundKey::new(&AES_128_GCM, &*self.key).map_err(|_| Errno::INVAL)?;
        // Any nonce is safe with a key that is used once.
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
    pub(crate) fn new(key: Zeroizing<[u8; 32]>) -> Self {
        Self(Numbered::new(key))
    }

    /// Makes a record of the frames that follow [`RECORD_HEAD_BYTES`] of unused space.
    pub(crate) fn seal(&mut self, record: &mut Vec<u8>) -> Result<(), Errno> {
        let (head, body) = record.split_at_mut(RECORD_HEAD_BYTES);
        debug_assert!((1..=RECORD_BYTES_MAX).contains(&body.len()));
        let length = (body.len() as u32).to_le_bytes();
        let key = self.0.record_key(length);
        head[..4].copy_from_slice(&length);
        head[4..].copy_from_slice(&key.head_tag);
        let tag = key.seal(body)?;
        record.extend_from_slice(&tag);
        self.0.number += 1;
        Ok(())
    }
}

/// Reads records, and returns their frames after verification.
pub(crate) struct Opener {
    records: Numbered,
    buffer: Vec<u8>,
    /// Start of the bytes of `buffer` that were read and not yet returned.
    start: usize,
    end: usize,
    /// The key and the body's length of a record whose head was verified.
    opened: Option<(RecordKey, usize)>,
}

impl Opener {
    pub(crate) fn new(key: Zeroizing<[u8; 32]>) -> Self {
        let (records, buffer) = (Numbered::new(key), vec![0; BUFFER_BYTES_MIN]);
        Self { records, buffer, start: 0, end: 0, opened: None }
    }

    /// Reads once. Call [`Opener::next`] afterwards, until it returns no more.
    pub(crate) fn read(&mut self, stream: &mut impl ByteStream) -> Result<Moved, Errno> {
        let free = &mut self.buffer[self.end..];
        let wanted = free.len();
        let bytes = stream.read(&mut [IoSliceMut::new(free)])?;
        self.end += bytes;
        Ok(Moved { bytes, wanted })
    }

    /// Returns the frames of the next record that was received as a whole.
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
        let Some((key, _)) = self.opened.take_if(|_| whole_bytes <= ahead.len()) else {
            self.make_space(whole_bytes);
            return Ok(None);
        };
        let record = &mut self.buffer[self.start..][..whole_bytes];
        self.start += whole_bytes;
        self.records.number += 1;
        let body = key.open(&mut record[RECORD_HEAD_BYTES..]);
        body.map(Some).ok_or(BadTag::Body(number))
    }

    /// Makes space for the rest of a record of this length, and for at least one byte.
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
