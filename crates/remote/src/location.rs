//! URLs of sources.

use percent_encoding::percent_decode_str;
use reqwest::Url;

use crate::{error::RemoteError, hub_location::HubLocation};

/// Kinds of URLs, for messages.
const KINDS: &str = "https://HOST/PATH, s3://BUCKET/KEY and hf://ORG/MODEL";

/// Where a source lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A file on a web server.
    Web(Url),
    /// What begins with a key in a bucket of a store that speaks S3: an object, or those below it.
    Bucket {
        /// The name of the bucket.
        bucket: String,
        /// The key; with `/` at the end only what is below it.
        key: String,
    },
    /// What a repository on a hub of models has.
    Hub(HubLocation),
}

impl Location {
    /// Errors: no URL of a known kind; one with a password.
    pub fn parse(text: &str) -> Result<Self, RemoteError> {
        let refuse = |what: &str| {
            let url = without_secrets(text).to_owned();
            Err(RemoteError::Refused { url, what: what.to_owned() })
        };
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
            return match bucket {
                "" => refuse("the name of the bucket is missing: s3://BUCKET/KEY"),
                _ => Ok(Self::Bucket { bucket: bucket.to_owned(), key: key.to_owned() }),
            };
        }
        if let Some(rest) = text.strip_prefix("hf://") {
            return match HubLocation::parse(rest) {
                Some(location) => Ok(Self::Hub(location)),
                None => refuse(
                    "repositories are hf://ORG/NAME, hf://datasets/ORG/NAME, with @REVISION and /PATH behind it",
                ),
            };
        }
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => return refuse(&format!("this is no URL ({error})")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refuse(
                "a URL with a user or a password is seen by every user of this machine; let a program that knows them read it: \
                 curl --netrc -fL URL | rdmc push - ...",
            );
        }
        match url.scheme() {
            "http" | "https" => Ok(Self::Web(url)),
            _ => refuse(&format!("sources are files, directories and URLs like {KINDS}")),
        }
    }

    /// Whether a directory is meant as what is in it.
    pub fn means_contents(&self) -> bool {
        match self {
            Self::Web(_) => false,
            Self::Bucket { key, .. } => key.is_empty() || key.ends_with('/'),
            Self::Hub(location) => location.means_contents,
        }
    }

    /// The URL without what may be secret in it.
    pub fn shown(&self) -> String {
        match self {
            Self::Web(url) => without_secrets(url.as_str()).to_owned(),
            Self::Bucket { bucket, key } => format!("s3://{bucket}/{key}"),
            Self::Hub(location) => location.to_string(),
        }
    }

    /// The name of the copy: the last one of the path. `None` if there is none that a file can have.
    pub fn name(&self) -> Option<String> {
        let last = |path: &str| path.trim_end_matches('/').rsplit('/').next().map(str::to_owned);
        let name = match self {
            Self::Web(url) => {
                percent_decode_str(&last(url.path())?).decode_utf8().ok()?.into_owned()
            }
            Self::Hub(location) => location.name().to_owned(),
            Self::Bucket { bucket, key } => {
                last(key).filter(|name| !name.is_empty()).unwrap_or(bucket.clone())
            }
        };
        let is_name = !matches!(&*name, "" | "." | "..") && !name.contains(['/', '\0']);
        (is_name && name.len() <= 255).then_some(name)
    }
}

/// A URL up to its query or fragment, and without a user: signed URLs have their signature in the query.
fn without_secrets(url: &str) -> &str {
    if url.starts_with("hf://") {
        return url;
    }
    let end = url.find(['?', '#']).unwrap_or(url.len());
    match url[..end].rfind('@') {
        // What is before it may be a password.
        Some(at) => &url[at + 1..end],
        None => &url[..end],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let signed = "https://host/dir/a%20b.bin?X-Amz-Signature=secret#part";
        let location = Location::parse(signed).unwrap();
        assert_eq!(location.shown(), "https://host/dir/a%20b.bin");
        assert_eq!(location.name().as_deref(), Some("a b.bin"));
        for url in
            ["https://user:secret@host/a?secret", "ftp://u:secret@host/a", "https://:secret@/"]
        {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let error = Location::parse("ftp://host/a").unwrap_err().to_string();
        assert!(
            error.contains("ftp://host/a: sources are") && error.contains("https://"),
            "{error}"
        );
    }

    #[test]
    fn keys_in_buckets() {
        let all = |url: &str| {
            let location = Location::parse(url).unwrap();
            (location.shown(), location.name().unwrap(), location.means_contents())
        };
        assert_eq!(all("s3://b/p/a b?c"), ("s3://b/p/a b?c".into(), "a b?c".into(), false));
        assert_eq!(all("s3://b/p/q/"), ("s3://b/p/q/".into(), "q".into(), true));
        assert_eq!(all("s3://b"), ("s3://b/".into(), "b".into(), true));
        assert!(Location::parse("s3:///key").is_err());
    }

    #[test]
    fn names_are_those_of_files() {
        let name = |url: &str| Location::parse(url).unwrap().name();
        assert_eq!(name("http://h/a/b/"), Some("b".into()));
        for url in ["http://h", "http://h/", "http://h/a%2Fb", "http://h/a%00", "http://h/%ff"] {
            assert_eq!(name(url), None, "{url}");
        }
        assert_eq!(name(&format!("http://h/{}", "x".repeat(256))), None);
    }
}
