//! URLs of sources.

use percent_encoding::percent_decode_str;
use reqwest::Url;

use crate::error::RemoteError;

/// Kinds of URLs, for messages.
const KINDS: &str = "https://HOST/PATH, http://HOST/PATH";

/// Where a source lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// A file on a web server.
    Web(Url),
}

impl Location {
    /// Errors: no URL of a known kind; one with a password.
    pub fn parse(text: &str) -> Result<Self, RemoteError> {
        let refuse = |what: &str| {
            let url = without_secrets(text).to_owned();
            Err(RemoteError::Refused { url, what: what.to_owned() })
        };
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
        }
    }

    /// The URL without what may be secret in it.
    pub fn shown(&self) -> String {
        match self {
            Self::Web(url) => without_secrets(url.as_str()).to_owned(),
        }
    }

    /// The name of the copy: the last one of the path. `None` if there is none that a file can have.
    pub fn name(&self) -> Option<String> {
        let path = match self {
            Self::Web(url) => url.path(),
        };
        let last = path.trim_end_matches('/').rsplit('/').next()?;
        let name = percent_decode_str(last).decode_utf8().ok()?.into_owned();
        let is_name = !matches!(&*name, "" | "." | "..") && !name.contains(['/', '\0']);
        (is_name && name.len() <= 255).then_some(name)
    }
}

/// A URL up to its query or fragment, and without a user: signed URLs have their signature in the query.
fn without_secrets(url: &str) -> &str {
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
    fn names_are_those_of_files() {
        let name = |url: &str| Location::parse(url).unwrap().name();
        assert_eq!(name("http://h/a/b/"), Some("b".into()));
        for url in ["http://h", "http://h/", "http://h/a%2Fb", "http://h/a%00", "http://h/%ff"] {
            assert_eq!(name(url), None, "{url}");
        }
        assert_eq!(name(&format!("http://h/{}", "x".repeat(256))), None);
    }
}
