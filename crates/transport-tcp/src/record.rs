//! Records of TLS 1.3 (RFC 8446, section 5.2): authentication and encryption of the bytes of a stream (docs/decisions/links.md).
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..5 | 23, 3, 3, and how many bytes follow, big endian |
//! | 5..5+n | the content, encrypted: 1 to 16,384 bytes |
//! | 5+n | the kind of the content, encrypted: 23 data, 22 a key update, 21 an alert |
//! | 6+n..22+n | tag of all before it |
//!
//! Both ends count the records of a key from 0, and the number is part of the nonce (section 5.3). So a record that is changed,
//! repeated, removed or reordered is detected before any of it is used. A key update (section 4.6.3) follows after as many
//! records as one key of AES-128-GCM may protect. The only alert is that a record failed its check.

use aws_lc_rs::{
    aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    error::Unspecified,
    hkdf::{HKDF_SHA256, KeyType, Prk},
};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// The most content of one record.
pub(crate) const CONTENT_BYTES_MAX: usize = 16 << 10;
/// The bytes before the content, which are not encrypted.
pub(crate) const HEAD_BYTES: usize = 5;
/// The bytes behind the content: its kind and the tag.
pub(crate) const END_BYTES: usize = 1 + TAG_BYTES;
const TAG_BYTES: usize = 16;

/// The length of each traffic secret (SHA-256).
pub(crate) const SECRET_BYTES: usize = 32;
const KEY_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;

/// How many records one key protects: below 2^24.5 (RFC 8446, section 5.5).
const RECORDS_PER_KEY: u64 = 1 << 24;

/// Kinds of contents.
const DATA: u8 = 23;
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
/// The message `key_update`, without a request for the other direction's.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
/// The fatal alert `bad_record_mac`.
const BAD_RECORD: [u8; 2] = [2, 20];

/// The longest that [`Sealer::seal`] makes of so much content.
pub(crate) const fn sealed_bytes_max(content_bytes: usize) -> usize {
    HEAD_BYTES + KEY_UPDATE.len() + END_BYTES + HEAD_BYTES + content_bytes + END_BYTES
}

/// The length of what [`Sealer::seal_alert`] makes.
pub(crate) const ALERT_RECORD_BYTES: usize = HEAD_BYTES + BAD_RECORD.len() + END_BYTES;

/// Why a record is refused. All end the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadRecord {
    /// It is not what the other end has sent.
    Corrupt,
    /// The other end has refused one.
    Refused,
}

/// The keys of one direction of one stream, in their order.
struct Keys {
    /// The traffic secret, from which the current key and the next secret follow.
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    /// Made when it is first needed.
    current: Option<Key>,
    /// The number of the next record of the current key.
    number: u64,
    records_per_key: u64,
}

struct Key {
    cipher: LessSafeKey,
    iv: [u8; NONCE_BYTES],
}

/// A length of derived bytes.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Keys {
    fn new(secret: Zeroizing<[u8; SECRET_BYTES]>) -> Self {
        Self { secret, current: None, number: 0, records_per_key: RECORDS_PER_KEY }
    }

    /// Returns the current key, and the nonce of the next record. Errors: the library fails.
    fn next(&mut self) -> Result<(&Key, Nonce), Unspecified> {
        let key = match &mut self.current {
            Some(key) => key,
            none => none.insert(Key::of(&self.secret)?),
        };
        let mut nonce = key.iv;
        for (byte, number) in nonce[NONCE_BYTES - 8..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        self.number += 1;
        Ok((key, Nonce::assume_unique_for_key(nonce)))
    }

    /// Goes on to the next key (RFC 8446, section 7.2). Errors: the library fails.
    fn update(&mut self) -> Result<(), Unspecified> {
        let mut next = Zeroizing::new([0; SECRET_BYTES]);
        expand(&self.secret[..], "traffic upd", &mut *next)?;
        (self.secret, self.current, self.number) = (next, None, 0);
        Ok(())
    }
}

impl Key {
    /// Derives the key of a traffic secret (RFC 8446, section 7.3).
    fn of(secret: &[u8; SECRET_BYTES]) -> Result<Self, Unspecified> {
        let (mut key, mut iv) = (Zeroizing::new([0; KEY_BYTES]), [0; NONCE_BYTES]);
        expand(secret, "key", &mut *key)?;
        expand(secret, "iv", &mut iv)?;
        let cipher = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &*key)?);
        Ok(Self { cipher, iv })
    }
}

/// HKDF-Expand-Label without a context (RFC 8446, section 7.1).
fn expand(secret: &[u8], label: &str, into: &mut [u8]) -> Result<(), Unspecified> {
    let name = [b"tls13 ", label.as_bytes()].concat();
    let length = (into.len() as u16).to_be_bytes();
    let info = [&length[..], &[name.len() as u8], &name[..], &[0]];
    Prk::new_less_safe(HKDF_SHA256, secret).expand(&info, Length(into.len()))?.fill(into)
}

fn head(content_bytes: usize) -> [u8; HEAD_BYTES] {
    let [high, low] = ((content_bytes + END_BYTES) as u16).to_be_bytes();
    [DATA, 3, 3, high, low]
}

/// Returns the length of the content of a record with this head.
pub(crate) fn content_bytes(head: &[u8; HEAD_BYTES]) -> Result<usize, BadRecord> {
    let bytes = u16::from_be_bytes([head[3], head[4]]) as usize;
    match bytes.checked_sub(END_BYTES) {
        Some(content @ 1..=CONTENT_BYTES_MAX) if head[..3] == [DATA, 3, 3] => Ok(content),
        _ => Err(BadRecord::Corrupt),
    }
}

/// Makes records.
pub(crate) struct Sealer(Keys);

impl Sealer {
    pub(crate) fn new(secret: Zeroizing<[u8; SECRET_BYTES]>) -> Self {
        Self(Keys::new(secret))
    }

    /// Makes a record of data at the start of `into`, perhaps behind a key update, and returns the length of all. `content` has 1 to
    /// [`CONTENT_BYTES_MAX`] bytes, `into` at least [`sealed_bytes_max`] of that.
    pub(crate) fn seal(&mut self, content: &[u8], into: &mut [u8]) -> Result<usize, Errno> {
        let mut at = 0;
        // The update is the last record of its key.
        if self.0.number + 1 >= self.0.records_per_key {
            at = self.seal_kind(HANDSHAKE, &KEY_UPDATE, into)?;
            self.0.update().map_err(failed)?;
        }
        Ok(at + self.seal_kind(DATA, content, &mut into[at..])?)
    }

    /// Makes the record that tells the peer of a bad one.
    pub(crate) fn seal_alert(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        self.seal_kind(ALERT, &BAD_RECORD, into)
    }

    fn seal_kind(&mut self, kind: u8, content: &[u8], into: &mut [u8]) -> Result<usize, Errno> {
        let head = head(content.len());
        let (start, rest) = into.split_at_mut(HEAD_BYTES);
        let (body, end) = rest.split_at_mut(content.len());
        start.copy_from_slice(&head);
        let (key, nonce) = self.0.next().map_err(failed)?;
        let end = &mut end[..END_BYTES];
        key.cipher
            .seal_out_of_place_scatter(nonce, Aad::from(head), content, body, &[kind], end)
            .map_err(failed)?;
        Ok(HEAD_BYTES + content.len() + END_BYTES)
    }
}

/// It does so only for lengths that are not used.
fn failed(_: Unspecified) -> Errno {
    Errno::INVAL
}

/// Verifies records and decrypts their contents.
pub(crate) struct Opener(Keys);

impl Opener {
    pub(crate) fn new(secret: Zeroizing<[u8; SECRET_BYTES]>) -> Self {
        Self(Keys::new(secret))
    }

    /// Decrypts a whole record to the start of `into`, of one byte more than its content, and returns the length of its data: 0 if it
    /// was a key update. Where it fails, `into` has no meaning.
    pub(crate) fn open(&mut self, record: &[u8], into: &mut [u8]) -> Result<usize, BadRecord> {
        let (head, body) = record.split_first_chunk::<HEAD_BYTES>().ok_or(BadRecord::Corrupt)?;
        let (sealed, tag) = body.split_last_chunk::<TAG_BYTES>().ok_or(BadRecord::Corrupt)?;
        let (key, nonce) = self.0.next().map_err(corrupt)?;
        let into = &mut into[..sealed.len()];
        key.cipher
            .open_separate_gather(nonce, Aad::from(head), sealed, tag, into)
            .map_err(corrupt)?;
        let (kind, content) = into.split_last().ok_or(BadRecord::Corrupt)?;
        self.take(*kind, content)
    }

    /// Decrypts a whole record in its place, behind its head, and returns the length of its data: 0 if it was a key update.
    pub(crate) fn open_in_place(&mut self, record: &mut [u8]) -> Result<usize, BadRecord> {
        let (head, body) =
            record.split_first_chunk_mut::<HEAD_BYTES>().ok_or(BadRecord::Corrupt)?;
        let (key, nonce) = self.0.next().map_err(corrupt)?;
        let opened = key.cipher.open_in_place(nonce, Aad::from(&*head), body).map_err(corrupt)?;
        let (kind, content) = opened.split_last().ok_or(BadRecord::Corrupt)?;
        self.take(*kind, content)
    }

    fn take(&mut self, kind: u8, content: &[u8]) -> Result<usize, BadRecord> {
        match kind {
            DATA => Ok(content.len()),
            // As the first record of its key it would follow another one: a peer could send them for ever.
            HANDSHAKE if content == KEY_UPDATE && self.0.number > 1 => {
                self.0.update().map(|()| 0).map_err(corrupt)
            }
            ALERT if content == BAD_RECORD => Err(BadRecord::Refused),
            _ => Err(BadRecord::Corrupt),
        }
    }
}

fn corrupt(_: Unspecified) -> BadRecord {
    BadRecord::Corrupt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn secret(bytes: &[u8]) -> Zeroizing<[u8; SECRET_BYTES]> {
        Zeroizing::new(bytes.try_into().unwrap())
    }

    /// The client's application traffic secret of RFC 8448, section 3, its keys, and its first record, of the bytes 0 to 49.
    #[test]
    fn records_are_those_of_the_rfc() {
        let traffic = bytes("9e40646ce79a7f9dc05af8889bce6552 875afa0b06df0087f792ebb7c17504a5");
        let record = bytes(
            "17 03 03 00 43 a2 3f 70 54 b6 2c 94 d0 af fa fe 82 28 ba 55 cb ef ac ea 42 f9 14 aa 66 bc
             ab 3f 2b 98 19 a8 a5 b4 6b 39 5b d5 4a 9a 20 44 1e 2b 62 97 4e 1f 5a 62 92 a2 97 70 14 bd
             1e 3d ea e6 3a ee bb 21 69 49 15 e4",
        );
        let content: Vec<u8> = (0..50).collect();
        let (mut key, mut iv) = ([0; KEY_BYTES], [0; NONCE_BYTES]);
        expand(&traffic, "key", &mut key).unwrap();
        expand(&traffic, "iv", &mut iv).unwrap();
        assert_eq!(key[..], bytes("17422dda596ed5d9acd890e3c63f5051"));
        assert_eq!(iv[..], bytes("5b78923dee08579033e523d9"));

        let mut sealed = vec![0; sealed_bytes_max(50)];
        let sealed_bytes = Sealer::new(secret(&traffic)).seal(&content, &mut sealed).unwrap();
        assert_eq!(sealed[..sealed_bytes], record);

        let mut opened = [0; 51];
        assert_eq!(Opener::new(secret(&traffic)).open(&record, &mut opened), Ok(50));
        assert_eq!(opened[..50], content);
        let mut in_place = record;
        assert_eq!(Opener::new(secret(&traffic)).open_in_place(&mut in_place), Ok(50));
        assert_eq!(in_place[HEAD_BYTES..][..50], content);
    }

    /// Splits what was sealed into records.
    fn split(mut sealed: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while let Some(head) = sealed.first_chunk() {
            let bytes = HEAD_BYTES + content_bytes(head).unwrap() + END_BYTES;
            records.push(sealed[..bytes].to_vec());
            sealed = &sealed[bytes..];
        }
        records
    }

    #[test]
    fn keys_change_before_they_are_used_up() {
        let (mut sealer, mut opener) =
            (Sealer::new(secret(&[7; 32])), Opener::new(secret(&[7; 32])));
        sealer.0.records_per_key = 4;
        let mut came = Vec::new();
        let mut kinds = String::new();
        for number in 0..10_u8 {
            let mut sealed = vec![0; sealed_bytes_max(1)];
            let bytes = sealer.seal(&[number], &mut sealed).unwrap();
            for mut record in split(&sealed[..bytes]) {
                let data = opener.open_in_place(&mut record).unwrap();
                kinds.push(if data == 0 { 'u' } else { 'd' });
                came.extend_from_slice(&record[HEAD_BYTES..][..data]);
            }
            assert!(opener.0.number <= 4, "{}", opener.0.number);
        }
        assert_eq!(came, (0..10).collect::<Vec<u8>>());
        assert_eq!(kinds, "dddudddudddud");
        // RFC 8446, section 7.2: of the third secret, whose records are counted from 0.
        assert_eq!(sealer.0.secret, opener.0.secret);
        assert_ne!(*sealer.0.secret, [7; 32]);
    }

    #[test]
    fn key_updates_without_data_between_them_are_refused() {
        let (mut sealer, mut opener) =
            (Sealer::new(secret(&[7; 32])), Opener::new(secret(&[7; 32])));
        let update = |sealer: &mut Sealer, opener: &mut Opener| {
            let mut sealed = vec![0; sealed_bytes_max(KEY_UPDATE.len())];
            let bytes = sealer.seal_kind(HANDSHAKE, &KEY_UPDATE, &mut sealed).unwrap();
            sealer.0.update().unwrap();
            opener.open_in_place(&mut sealed[..bytes])
        };
        let mut sealed = vec![0; sealed_bytes_max(1)];
        let bytes = sealer.seal(&[1], &mut sealed).unwrap();
        assert_eq!(opener.open_in_place(&mut sealed[..bytes]), Ok(1));
        assert_eq!(update(&mut sealer, &mut opener), Ok(0));
        assert_eq!(update(&mut sealer, &mut opener), Err(BadRecord::Corrupt));
    }

    #[test]
    fn an_alert_says_that_a_record_was_refused() {
        let (mut sealer, mut opener) =
            (Sealer::new(secret(&[7; 32])), Opener::new(secret(&[7; 32])));
        let mut sealed = vec![0; sealed_bytes_max(BAD_RECORD.len())];
        let bytes = sealer.seal_alert(&mut sealed).unwrap();
        assert_eq!(opener.open_in_place(&mut sealed[..bytes]), Err(BadRecord::Refused));
    }

    #[test]
    fn heads_of_other_lengths_and_kinds_are_refused() {
        let head = |length: u16| [&[23, 3, 3][..], &length.to_be_bytes()].concat();
        let bytes = |head: &[u8]| content_bytes(head.try_into().unwrap());
        assert_eq!(bytes(&head(18)), Ok(1));
        assert_eq!(bytes(&head(16_401)), Ok(16_384));
        for length in [0, 16, 17, 16_402, u16::MAX] {
            assert_eq!(bytes(&head(length)), Err(BadRecord::Corrupt), "{length}");
        }
        assert_eq!(bytes(&[22, 3, 3, 0, 100]), Err(BadRecord::Corrupt));
        assert_eq!(bytes(&[23, 3, 1, 0, 100]), Err(BadRecord::Corrupt));
    }
}
