//! Which version of a file on a web server is read.

use reqwest::header::{
    CONTENT_RANGE, ETAG, HeaderMap, HeaderName, IF_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};

/// What distinguishes a version of a file from others: every answer has to have the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pin {
    pub(crate) bytes: u64,
    etag: Option<String>,
    modified: Option<String>,
}

impl Pin {
    /// Of the headers of an answer.
    pub(crate) fn of(bytes: u64, headers: &HeaderMap) -> Self {
        Self { bytes, etag: text(headers, &ETAG), modified: text(headers, &LAST_MODIFIED) }
    }

    /// Of contents that never change under their URL.
    pub(crate) fn immutable(bytes: u64) -> Self {
        Self { bytes, etag: None, modified: None }
    }

    /// Whether another version could be told from this one.
    pub(crate) fn is_version(&self) -> bool {
        self.etag.is_some() || self.modified.is_some()
    }

    pub(crate) fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    pub(crate) fn modified(&self) -> Option<&str> {
        self.modified.as_deref()
    }

    /// The header by which the server itself refuses another version. A weak tag is none that `If-Match` matches (RFC 9110,
    /// section 13.1.1).
    pub(crate) fn condition(&self) -> Option<(HeaderName, &str)> {
        match (&self.etag, &self.modified) {
            (Some(etag), _) if !etag.starts_with("W/") => Some((IF_MATCH, etag)),
            (None, Some(modified)) => Some((IF_UNMODIFIED_SINCE, modified)),
            _ => None,
        }
    }

    /// Errors: what an answer says of its version differs.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), String> {
        let differs = |name: &str, was: &Option<String>, header: &HeaderName| match (
            was,
            text(headers, header),
        ) {
            (Some(was), Some(is)) if *was != is => Err(format!("its {name} was {was} and is {is}")),
            _ => Ok(()),
        };
        if let Some((_, total)) = content_range(headers)
            && total != self.bytes
        {
            return Err(format!("it had {} bytes and has {total}", self.bytes));
        }
        match self.etag {
            Some(_) => differs("ETag", &self.etag, &ETAG),
            None => differs("Last-Modified", &self.modified, &LAST_MODIFIED),
        }
    }
}

/// The first byte that an answer has, if it has any, and the length of the whole.
pub(crate) fn content_range(headers: &HeaderMap) -> Option<(Option<u64>, u64)> {
    let text = text(headers, &CONTENT_RANGE)?;
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let first = range.split_once('-').and_then(|(first, _)| first.trim().parse().ok());
    Some((first, total.trim().parse().ok()?))
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(HeaderName, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn another_version_is_told_by_tag_time_or_length() {
        let first = headers(&[(ETAG, "\"a\""), (LAST_MODIFIED, "Mon")]);
        let pin = Pin::of(7, &first);
        assert_eq!(pin.condition(), Some((IF_MATCH, "\"a\"")));
        assert_eq!(pin.check(&headers(&[(ETAG, "\"a\""), (CONTENT_RANGE, "bytes 1-2/7")])), Ok(()));
        for (other, what) in [
            (headers(&[(ETAG, "\"b\"")]), "its ETag was \"a\" and is \"b\""),
            (headers(&[(CONTENT_RANGE, "bytes 1-2/8")]), "it had 7 bytes and has 8"),
        ] {
            assert_eq!(pin.check(&other), Err(what.to_owned()));
        }
        let pin = Pin::of(7, &headers(&[(LAST_MODIFIED, "Mon")]));
        assert_eq!(pin.condition(), Some((IF_UNMODIFIED_SINCE, "Mon")));
        assert!(pin.check(&headers(&[(LAST_MODIFIED, "Tue")])).is_err());
        assert_eq!(Pin::of(7, &headers(&[(ETAG, "W/\"a\"")])).condition(), None);
        assert!(!Pin::of(7, &HeaderMap::new()).is_version());
    }

    #[test]
    fn ranges_of_answers() {
        let of = |text: &str| content_range(&headers(&[(CONTENT_RANGE, text)]));
        assert_eq!(of("bytes 3-9/100"), Some((Some(3), 100)));
        assert_eq!(of("bytes */100"), Some((None, 100)));
        for wrong in ["bytes 0-1/*", "items 0-1/2", "bytes 0-1", "bytes 0-1/-5", ""] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
