//! Comparing contents with the checksum that their source has of them.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use crate::{entry::Checksum, error::RemoteError};

/// Compares the contents of a file with its checksum, as they pass in order.
pub struct Checking {
    url: String,
    checksum: Checksum,
    context: Context,
}

impl fmt::Debug for Checking {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} of {}", self.checksum, self.url)
    }
}

impl Checking {
    /// Of a file of this length at a URL.
    pub(crate) fn new(url: String, bytes: u64, checksum: Checksum) -> Self {
        let context = match checksum {
            Checksum::Sha256(_) => Context::new(&SHA256),
            Checksum::GitBlob(_) => {
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {bytes}\0").as_bytes());
                context
            }
        };
        Self { url, checksum, context }
    }

    /// The next bytes of the contents.
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// After the last bytes. Errors: the checksum is another one.
    pub fn finish(self) -> Result<(), RemoteError> {
        let (name, expected) = match &self.checksum {
            Checksum::Sha256(expected) => ("sha256", &expected[..]),
            Checksum::GitBlob(expected) => ("git blob", &expected[..]),
        };
        let found = self.context.finish();
        if found.as_ref() == expected {
            return Ok(());
        }
        let what = format!(
            "the bytes that came have the {name} {}, but the source lists {}; a proxy or a cache may have changed them: \
             run the push again",
            hex(found.as_ref()),
            hex(expected)
        );
        Err(RemoteError::Refused { url: self.url, what })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_compared_with_both_kinds_of_checksums() {
        // `printf hello | sha256sum`, `printf hello | git hash-object --stdin`.
        let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        let blob = "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0";
        let bytes = |hex: &str| -> Vec<u8> {
            let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(digit).collect()
        };
        for checksum in [
            Checksum::Sha256(bytes(sha256).try_into().unwrap()),
            Checksum::GitBlob(bytes(blob).try_into().unwrap()),
        ] {
            let of = |text: &str| {
                let mut checking = Checking::new("https://host/a".into(), 5, checksum);
                let (first, second) = text.split_at(2);
                checking.update(first.as_bytes());
                checking.update(second.as_bytes());
                checking.finish()
            };
            assert_eq!(of("hello"), Ok(()));
            let error = of("hellO").unwrap_err().to_string();
            assert!(error.contains("https://host/a: the bytes that came"), "{error}");
        }
    }
}
