//! The names that a certificate is for, for logs.

use std::net::{Ipv4Addr, Ipv6Addr};

use rustls::pki_types::CertificateDer;

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
/// Field 3 of a certificate's body (RFC 5280, section 4.1).
const EXTENSIONS: u8 = 0xa3;
/// The object identifier 2.5.29.17.
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// Returns the DNS names and IP addresses of a certificate's subjectAltName, in their order; none if it has none. For a
/// certificate that was verified before: names of one that was not prove nothing.
#[must_use]
pub fn alternative_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    encoded_names(certificate).map(names).unwrap_or_default()
}

/// Finds the contents of the extension.
fn encoded_names(certificate: &[u8]) -> Option<Items<'_>> {
    let certificate = Items(certificate).find(SEQUENCE)?;
    let body = certificate.find(SEQUENCE)?;
    let mut extensions = body.find(EXTENSIONS)?.find(SEQUENCE)?;
    extensions.find_map(|(_, extension)| {
        let mut parts = Items(extension);
        let is_wanted = parts.next() == Some((OBJECT_IDENTIFIER, &SUBJECT_ALT_NAME));
        // Whether it is critical may come first.
        parts.find(OCTET_STRING).filter(|_| is_wanted)?.find(SEQUENCE)
    })
}

fn names(encoded: Items<'_>) -> Vec<String> {
    let name = |(kind, value): (u8, &[u8])| match kind {
        DNS_NAME => String::from_utf8(value.to_vec()).ok(),
        IP_ADDRESS => <[u8; 4]>::try_from(value)
            .map(|bytes| Ipv4Addr::from(bytes).to_string())
            .or_else(|_| <[u8; 16]>::try_from(value).map(|bytes| Ipv6Addr::from(bytes).to_string()))
            .ok(),
        _ => None,
    };
    encoded.filter_map(name).collect()
}

/// Values one behind another in DER: each with its tag, of one byte, and its contents. Ends at what is none.
#[derive(Clone, Copy)]
struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    /// Returns what is in the first value with this tag.
    fn find(mut self, tag: u8) -> Option<Self> {
        Iterator::find(&mut self, |(found, _)| *found == tag).map(|(_, contents)| Self(contents))
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
                (length, rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, contents))
    }
}

#[cfg(test)]
mod tests {
    use testing::Authority;

    use super::*;

    fn certificate(names: &str) -> CertificateDer<'static> {
        use rustls::pki_types::pem::PemObject;
        let authority = Authority::new("one");
        let files = authority.issue(names);
        CertificateDer::from_pem_file(files.certificate).unwrap()
    }

    #[test]
    fn names_and_addresses_are_found() {
        let names = alternative_names(&certificate("login1,10.0.0.1,fd00::1"));
        assert_eq!(names, ["login1", "10.0.0.1", "fd00::1"]);
        let long = ["x".repeat(60), "y".repeat(60), "z".repeat(60)];
        assert_eq!(alternative_names(&certificate(&long.join(","))), long);
    }

    #[test]
    fn damaged_certificates_have_no_names_or_other_ones() {
        let whole = certificate("login1");
        for end in 0..whole.len() {
            let _ = alternative_names(&CertificateDer::from(whole[..end].to_vec()));
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.to_vec();
                bytes[at] ^= 1 << bit;
                let _ = alternative_names(&CertificateDer::from(bytes));
            }
        }
        assert!(alternative_names(&CertificateDer::from(&[][..])).is_empty());
    }
}
