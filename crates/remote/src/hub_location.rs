//! URLs of repositories on a hub: `hf://[datasets/|spaces/]ORG/NAME[@REVISION][/PATH]`, as in `huggingface_hub`.

use std::fmt;

use percent_encoding::percent_decode_str;

/// What a repository holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HubKind {
    /// A model.
    Model,
    /// A data set.
    Dataset,
    /// An application.
    Space,
}

/// A repository, or a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HubLocation {
    /// What it holds.
    pub kind: HubKind,
    /// `ORG/NAME`.
    pub repository: String,
    /// A branch, a tag or a commit; `main` if none is named.
    pub revision: Option<String>,
    /// A file or a directory in it; empty for all of it.
    pub path: String,
    /// A directory is meant as what is in it: there is `/` at the end.
    pub means_contents: bool,
}

impl HubKind {
    /// As in the hub's URLs of its interface, and in names of directories of caches.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Dataset => "datasets",
            Self::Space => "spaces",
        }
    }

    /// Before the names of repositories.
    pub(crate) fn prefix(self) -> Option<&'static str> {
        (self != Self::Model).then(|| self.plural())
    }
}

impl fmt::Display for HubLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, repository, revision, path, .. } = self;
        let kind = kind.prefix().map(|prefix| format!("{prefix}/")).unwrap_or_default();
        write!(formatter, "hf://{kind}{repository}")?;
        revision.iter().try_for_each(|revision| write!(formatter, "@{revision}"))?;
        if path.is_empty() { Ok(()) } else { write!(formatter, "/{path}") }
    }
}

impl HubLocation {
    /// `None` if it is none. `text`: what is after `hf://`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let kinds = [HubKind::Dataset, HubKind::Space];
        let kind = kinds.into_iter().find(|kind| text.starts_with(&format!("{}/", kind.plural())));
        let rest = kind.map_or(text, |kind| &text[kind.plural().len() + 1..]);
        let means_contents = rest.ends_with('/');
        let mut parts = rest.trim_end_matches('/').split('/');
        let (org, named) = (parts.next()?, parts.next()?);
        let (name, revision) = match named.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (named, None),
        };
        let mut path: Vec<&str> = parts.collect();
        let mut revision =
            revision.map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned());
        // The only names of revisions with `/` that are written as they are: refs/pr/7, refs/convert/parquet.
        if revision.as_deref() == Some("refs") && path.len() >= 2 {
            revision = Some(format!("refs/{}/{}", path[0], path[1]));
            path.drain(..2);
        }
        let is_name = |name: &str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !name.is_empty() && !name.starts_with('.') && name.chars().all(is_part)
        };
        let is_path = path.iter().all(|name| !matches!(*name, "" | "." | ".."));
        let is_valid = is_name(org) && is_name(name) && is_path && revision.as_deref() != Some("");
        is_valid.then(|| Self {
            kind: kind.unwrap_or(HubKind::Model),
            repository: format!("{org}/{name}"),
            revision,
            path: path.join("/"),
            means_contents,
        })
    }

    /// The name of a copy of it.
    pub(crate) fn name(&self) -> &str {
        let of = if self.path.is_empty() { &self.repository } else { &self.path };
        of.rsplit('/').next().unwrap_or(of)
    }

    /// The name of the directory that a cache has for the repository.
    pub fn cache_name(&self) -> String {
        format!("{}--{}", self.kind.plural(), self.repository.replace('/', "--"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_revisions_and_paths() {
        let parsed = |text: &str| {
            let it = HubLocation::parse(text).unwrap();
            let revision = it.revision.clone().unwrap_or_default();
            format!("{:?} {} {revision} {} {}", it.kind, it.repository, it.path, it.name())
        };
        assert_eq!(parsed("org/model"), "Model org/model   model");
        assert_eq!(parsed("org/model@v1.0"), "Model org/model v1.0  model");
        assert_eq!(parsed("org/model@a%2Fb/dir/file"), "Model org/model a/b dir/file file");
        assert_eq!(parsed("org/model@refs/pr/7/x"), "Model org/model refs/pr/7 x x");
        assert_eq!(parsed("datasets/org/set/data/"), "Dataset org/set  data data");
        assert!(HubLocation::parse("org/model/").unwrap().means_contents);
        assert_eq!(HubLocation::parse("spaces/o/s").unwrap().cache_name(), "spaces--o--s");
        for wrong in [
            "",
            "model",
            "org/",
            "/model",
            "org/model@",
            "org/../x",
            "org/model/../x",
            "org/model//x",
            "o rg/m",
        ] {
            assert_eq!(HubLocation::parse(wrong), None, "{wrong}");
        }
    }
}
