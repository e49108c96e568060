//! What a hub of models answers for one repository, to be served by a [`crate::WebServer`].

use aws_lc_rs::digest::{Digest, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

use crate::web::{WebAnswer, WebRequest};

/// A file of a repository, as the hub lists it.
#[derive(Clone, Debug)]
pub struct HubFile {
    /// Its path.
    pub path: String,
    /// What is sent for it.
    pub contents: Vec<u8>,
    /// Its digest, in hexadecimal digits: SHA-256 for a large file, that of a blob in git for others.
    pub digest: String,
}

impl HubFile {
    /// A file that is in git itself.
    pub fn small(path: &str, contents: &[u8]) -> Self {
        let blob = [format!("blob {}\0", contents.len()).as_bytes(), contents].concat();
        Self::with(path, contents, digest(&SHA1_FOR_LEGACY_USE_ONLY, &blob))
    }

    /// A file for which git has a pointer.
    pub fn large(path: &str, contents: &[u8]) -> Self {
        Self::with(path, contents, digest(&SHA256, contents))
    }

    fn with(path: &str, contents: &[u8], digest: Digest) -> Self {
        let digest = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { path: path.into(), contents: contents.to_vec(), digest }
    }
}

/// A repository at one commit.
#[derive(Clone, Debug)]
pub struct HubRepository {
    /// `ORG/NAME`.
    pub name: String,
    /// The commit that every revision but `none` names.
    pub commit: String,
    /// Its files.
    pub files: Vec<HubFile>,
    /// The token without which nothing is answered.
    pub token: Option<String>,
    /// Where contents of large files are redirected to, if they are.
    pub large_files: Option<String>,
}

impl HubRepository {
    /// What the hub answers; lists have one file on each page.
    pub fn answer(&self, request: &WebRequest) -> WebAnswer {
        let wanted = self.token.as_ref().map(|token| format!("Bearer {token}"));
        if wanted.is_some() && request.headers.get("authorization") != wanted.as_ref() {
            return WebAnswer::status(401);
        }
        let (name, commit) = (&self.name, &self.commit);
        let path = request.target.split('?').next().unwrap_or_default();
        if let Some(revision) = path.strip_prefix(&format!("/api/models/{name}/revision/")) {
            return match revision {
                "none" => WebAnswer::status(404),
                _ => WebAnswer::text(format!(r#"{{"id":"{name}","sha":"{commit}"}}"#)),
            };
        }
        if path == format!("/api/models/{name}/tree/{commit}") {
            return self.page(&request.target);
        }
        let file = path.strip_prefix(&format!("/{name}/resolve/{commit}/"));
        let file = file.and_then(|path| self.files.iter().find(|file| file.path == path));
        match (file, &self.large_files) {
            (None, _) => WebAnswer::status(404),
            (Some(file), Some(elsewhere)) if file.digest.len() == 64 => WebAnswer::status(302)
                .with("Location", &format!("{elsewhere}/{}?signature=secret", file.digest)),
            (Some(file), _) => request.answer(&file.contents, &format!("\"{}\"", file.digest)),
        }
    }

    fn page(&self, target: &str) -> WebAnswer {
        let number = target.split_once("cursor=").and_then(|(_, at)| at.parse().ok()).unwrap_or(0);
        let Some(HubFile { path, contents, digest }) = self.files.get(number) else {
            return WebAnswer::text("[]");
        };
        let bytes = contents.len();
        let lfs = match digest.len() {
            64 => format!(r#","lfs":{{"oid":"{digest}","size":{bytes},"pointerSize":134}}"#),
            _ => String::new(),
        };
        let listed = format!(
            r#"[{{"type":"directory","oid":"{}","size":0,"path":"ignored"}},{{"type":"file","oid":"{}","size":{bytes},"path":{path:?}{lfs}}}]"#,
            "0".repeat(40),
            if lfs.is_empty() { digest.clone() } else { "1".repeat(40) },
        );
        let next = format!(
            "</api/models/{}/tree/{}?recursive=true&cursor={}>; rel=\"next\"",
            self.name,
            self.commit,
            number + 1
        );
        WebAnswer::text(listed).with("Link", &next)
    }
}
