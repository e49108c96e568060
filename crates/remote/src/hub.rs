//! Repositories on a hub of models, by the documented interface of Hugging Face's: revisions, trees and files.

use std::{collections::BTreeSet, time::Duration};

use reqwest::{
    Response, StatusCode, Url,
    header::{HeaderMap, HeaderValue, LINK},
};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::{
    entry::{Checksum, Entry, Kind},
    environment::Environment,
    error::Fault,
    hub_location::HubLocation,
    pin::Pin,
    retries::repeated,
    web::{Web, WebFile, fault_of},
};

const ENDPOINT: &str = "https://huggingface.co";
/// The longest answer that is no file.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// From one part of such an answer to the next.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// More than these are no tree (`tree::ENTRIES_MAX`).
const ENTRIES_MAX: usize = 1 << 24;
const ACCESS: &str =
    "check the name; private and gated repositories need a token: HF_TOKEN, or `hf auth login`";

/// What a repository has at a revision.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The commit.
    pub(crate) commit: String,
    /// The files, each with what identifies its contents.
    pub(crate) files: Vec<HubFile>,
    /// Whether the URL names a directory, and not one file.
    pub(crate) is_directory: bool,
}

/// A file of a repository.
#[derive(Debug)]
pub(crate) struct HubFile {
    pub(crate) file: WebFile,
    pub(crate) entry: Entry,
    /// Its path in the repository.
    pub(crate) path: String,
    /// The number of its contents, by which caches name them.
    pub(crate) blob: String,
}

/// A hub, and who asks it.
#[derive(Debug)]
struct Hub<'a> {
    web: &'a Web,
    endpoint: Url,
    credential: Option<HeaderValue>,
    /// For each page of a list.
    patience: Duration,
}

/// A revision, as the hub describes it.
#[derive(Deserialize)]
struct Revision {
    sha: String,
}

/// What a tree has, as the hub lists it.
#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<Pointer>,
}

/// What stands in git for a large file.
#[derive(Deserialize)]
struct Pointer {
    oid: String,
    size: u64,
}

/// Lists what a URL names.
pub(crate) async fn find(
    web: &Web,
    location: &HubLocation,
    environment: &Environment,
    patience: Duration,
) -> Result<Snapshot, Fault> {
    let hub = Hub::open(web, environment, patience)?;
    let revision = location.revision.as_deref().unwrap_or("main");
    let at = hub.url(&["api", location.kind.plural()], location, &["revision", revision])?;
    let Revision { sha: commit } = parsed(hub.get(&at).await?).await?;
    if commit.is_empty() || !commit.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(Fault::Refused(format!("the hub names no commit for the revision {revision}")));
    }
    let listed = hub.list(location, &commit).await?;
    let is_directory = !listed.iter().any(|it| it.path == location.path);
    let mut files = Vec::new();
    for it in listed {
        let below = match &*location.path {
            "" => Some(it.path.as_str()),
            path if path == it.path => Some(""),
            path => it.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('/')),
        };
        if let Some(path) = below.map(str::to_owned) {
            files.push(hub.file(location, &commit, it, path)?);
        }
    }
    if files.is_empty() {
        let what = format!("the revision {revision} has no file of this path; check the spelling");
        return Err(Fault::Refused(what));
    }
    Ok(Snapshot { commit, files, is_directory })
}

impl<'a> Hub<'a> {
    /// Errors: `HF_ENDPOINT` is no URL; the token cannot be sent.
    fn open(web: &'a Web, environment: &Environment, patience: Duration) -> Result<Self, Fault> {
        let endpoint = environment.get("HF_ENDPOINT").unwrap_or(ENDPOINT);
        let is_web = |url: &Url| matches!(url.scheme(), "http" | "https");
        let endpoint = Url::parse(endpoint).ok().filter(is_web);
        let Some(endpoint) = endpoint else {
            return Err(Fault::Refused("HF_ENDPOINT is no URL of a web server".into()));
        };
        let credential = match token(environment) {
            None => None,
            Some(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}"));
                let mut value = value.map_err(|_| {
                    Fault::Refused("the token of the hub is no token: see HF_TOKEN".into())
                })?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self { web, endpoint, credential, patience })
    }

    /// A URL of a repository: segments before and after its name.
    fn url(&self, before: &[&str], location: &HubLocation, after: &[&str]) -> Result<Url, Fault> {
        let mut url = self.endpoint.clone();
        let no_base = |()| Fault::Refused("HF_ENDPOINT has no path".into());
        let mut segments = url.path_segments_mut().map_err(no_base)?;
        segments.pop_if_empty().extend(before).extend(location.repository.split('/')).extend(after);
        drop(segments);
        Ok(url)
    }

    async fn get(&self, url: &Url) -> Result<Response, Fault> {
        let answer = self.web.get(url, self.credential.as_ref(), HeaderMap::new()).await?;
        let status = answer.status();
        match status {
            status if status.is_success() => Ok(answer),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
                Err(Fault::Refused(format!("the hub answered {status}; {ACCESS}")))
            }
            status => Err(fault_of(status, answer.headers())),
        }
    }

    /// The files of a repository at a commit.
    async fn list(&self, location: &HubLocation, commit: &str) -> Result<Vec<Listed>, Fault> {
        let kind = location.kind.plural();
        let mut first = self.url(&["api", kind], location, &["tree", commit])?;
        first.set_query(Some("recursive=true"));
        let (mut next, mut listed, mut pages) = (Some(first), Vec::new(), BTreeSet::new());
        while let Some(page) = next {
            let read = async || {
                let answer = self.get(&page).await?;
                let next = self.next_page(&page, answer.headers())?;
                Ok((next, parsed::<Vec<Listed>>(answer).await?))
            };
            let (after, found) = repeated(self.patience, read).await?;
            let is_empty = found.is_empty();
            listed.extend(found.into_iter().filter(|it| it.kind == "file"));
            let is_endless = !pages.insert(page) || is_empty && after.is_some();
            if is_endless || listed.len() > ENTRIES_MAX {
                let what = "the hub lists too many files; push parts of the repository";
                return Err(Fault::Refused(what.into()));
            }
            next = after;
        }
        Ok(listed)
    }

    /// Where a list goes on (RFC 8288). Errors: on another server.
    fn next_page(&self, page: &Url, headers: &HeaderMap) -> Result<Option<Url>, Fault> {
        let links = headers.get(LINK).and_then(|links| links.to_str().ok()).unwrap_or_default();
        let next = links.split(',').find(|link| link.contains("rel=\"next\""));
        let Some(next) = next.and_then(|link| link.split_once('<')?.1.split_once('>')) else {
            return Ok(None);
        };
        match page.join(next.0) {
            Ok(next) if next.origin() == self.endpoint.origin() => Ok(Some(next)),
            _ => Err(Fault::Refused("the hub's list goes on at another server".into())),
        }
    }

    /// Errors: what is listed is no file.
    fn file(
        &self,
        location: &HubLocation,
        commit: &str,
        listed: Listed,
        path: String,
    ) -> Result<HubFile, Fault> {
        let Listed { path: whole, size, oid, lfs, .. } = listed;
        let (blob, bytes) = lfs.map_or((oid, size), |pointer| (pointer.oid, pointer.size));
        let checksum = match (from_hex::<32>(&blob), from_hex::<20>(&blob)) {
            (Some(digest), _) => Checksum::Sha256(digest),
            (_, Some(digest)) => Checksum::GitBlob(digest),
            _ => return Err(Fault::Refused(format!("the hub lists no digest of {whole}"))),
        };
        let mut before = Vec::new();
        before.extend(location.kind.prefix());
        let mut url = self.url(&before, location, &["resolve", commit])?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(whole.split('/'));
        }
        let kind = Kind::File { bytes, checksum: Some(checksum) };
        let entry = Entry { path, modified_ns: Entry::time_of(blob.as_bytes()), kind };
        let file = WebFile::new(url, Pin::immutable(bytes), self.credential.clone());
        Ok(HubFile { file, entry, path: whole, blob })
    }
}

/// The token of the hub's own tools.
fn token(environment: &Environment) -> Option<String> {
    let given = environment.get("HF_TOKEN").or(environment.get("HUGGING_FACE_HUB_TOKEN"));
    let stored = || {
        let path = match (environment.get("HF_TOKEN_PATH"), environment.get("HF_HOME")) {
            (Some(path), _) => path.into(),
            (None, Some(home)) => std::path::Path::new(home).join("token"),
            (None, None) => {
                environment.path_or_home("XDG_CACHE_HOME", ".cache")?.join("huggingface/token")
            }
        };
        std::fs::read_to_string(path).ok()
    };
    let token = given.map(str::to_owned).or_else(stored)?;
    let token = token.trim();
    (!token.is_empty()).then(|| token.to_owned())
}

/// Reads an answer that is no file. Errors: too long; not what was expected.
async fn parsed<T: DeserializeOwned>(mut answer: Response) -> Result<T, Fault> {
    let mut body = Vec::new();
    let silent = |_| Fault::again("nothing came any more");
    while let Some(part) = timeout(IDLE_TIMEOUT, answer.chunk()).await.map_err(silent)?? {
        if body.len() + part.len() > PAGE_BYTES_MAX {
            return Err(Fault::Refused(format!(
                "the hub's answer is longer than {PAGE_BYTES_MAX} bytes"
            )));
        }
        body.extend_from_slice(&part);
    }
    let unexpected =
        |error| Fault::Refused(format!("the hub's answer is not understood ({error})"));
    serde_json::from_slice(&body).map_err(unexpected)
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_of(variables: &[(&str, &str)]) -> Option<String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        token(&variables.iter().map(owned).collect())
    }

    #[test]
    fn tokens_are_found_where_the_hubs_tools_keep_them() {
        let home = std::env::temp_dir().join(format!("rdmc-remote-{}", std::process::id()));
        let text = home.to_str().unwrap();
        std::fs::create_dir_all(home.join(".cache/huggingface")).unwrap();
        std::fs::write(home.join(".cache/huggingface/token"), "stored\n").unwrap();
        std::fs::write(home.join("token"), "other\n").unwrap();
        assert_eq!(token_of(&[("HOME", text)]).as_deref(), Some("stored"));
        assert_eq!(token_of(&[("HOME", text), ("HF_TOKEN", "given")]).as_deref(), Some("given"));
        assert_eq!(token_of(&[("HOME", text), ("HF_HOME", text)]).as_deref(), Some("other"));
        assert_eq!(token_of(&[("HOME", "/nowhere")]), None);
        std::fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn digests_in_hexadecimal_digits() {
        assert_eq!(from_hex::<2>("01fF"), Some([1, 255]));
        for wrong in ["01f", "01ffa", "01fg", "+1+1", "\u{e9}\u{e9}"] {
            assert_eq!(from_hex::<2>(wrong), None, "{wrong}");
        }
    }
}
