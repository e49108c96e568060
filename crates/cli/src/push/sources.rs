//! The sources of a push, and the names of their copies.

use std::path::{Path, PathBuf};

use files::{ListOptions, Source, SourceError};

use super::{
    remote::RemoteObject,
    url::{is_url, shown},
};
use crate::failure::Failure;

/// The sources that the arguments name.
pub struct Sources {
    paths: Vec<PathBuf>,
    kind: Kind,
    /// What the only one names, if it is a URL.
    remote: Option<RemoteObject>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// One file: the destination is the path of its copy.
    File,
    /// One directory: its copy goes into the destination under its name.
    Directory,
    /// One directory with `/` at its end: the destination becomes its copy.
    Contents,
    /// Standard input, or a growing file: the destination is the path of the copy.
    Stream,
    /// Several sources: their copies go into the destination under their names.
    Several,
}

/// The selection and comparison of directory entries.
#[derive(Debug)]
pub struct TreeOptions {
    /// The selection of entries that are sent.
    pub list: ListOptions,
    /// Files at receivers are compared by their contents.
    pub by_contents: bool,
    /// Existing directories are replaced as a whole.
    pub atomic: bool,
    /// Entries that only hosts have are removed.
    pub deletes: bool,
    /// Hosts list their changes.
    pub lists_changes: bool,
}

impl Sources {
    /// Examines the paths; at least one. Blocks while it asks for what a URL names.
    /// `as_hub_cache`: see `--hub-cache`.
    ///
    /// Errors: a URL that names nothing, or cannot be read.
    pub fn of(paths: &[PathBuf], as_hub_cache: bool) -> Result<Self, Failure> {
        if let [url] = paths
            && is_url(url)
        {
            let remote = RemoteObject::open(text_of(url)?, as_hub_cache)?;
            let kind = match (remote.is_directory(), remote.means_contents()) {
                (false, _) => Kind::File,
                (true, true) => Kind::Contents,
                (true, false) => Kind::Directory,
            };
            return Ok(Self { paths: paths.to_vec(), kind, remote: Some(remote) });
        }
        let kind = match paths {
            [path] if path.as_os_str() == "-" => Kind::Stream,
            [path] if !path.is_dir() => Kind::File,
            [path] if Source::means_contents(path) => Kind::Contents,
            [_] => Kind::Directory,
            _ => Kind::Several,
        };
        Ok(Self { paths: paths.to_vec(), kind, remote: None })
    }

    /// One file.
    pub fn of_file(path: &Path) -> Self {
        Self { paths: vec![path.to_owned()], kind: Kind::File, remote: None }
    }

    /// The first path, for messages.
    pub fn first(&self) -> &Path {
        &self.paths[0]
    }

    /// Opens the sources; blocks while directories are listed.
    ///
    /// Errors: a source is unreadable or cannot be replicated.
    pub fn open(&self, options: TreeOptions) -> Result<Source, Failure> {
        let is_directory = match &self.remote {
            Some(remote) => remote.is_directory(),
            None => self.paths.iter().any(|path| path.is_dir()),
        };
        if options.deletes && !is_directory {
            return Err(Failure::Usage(
                "--delete removes entries from copies of directories; give a directory as a source"
                    .into(),
            ));
        }
        let opened = match &self.remote {
            Some(remote) => remote.source(&options.list),
            None => Source::of(&self.paths, &options.list),
        };
        let source = opened.map_err(|error| match error {
            SourceError::NothingLeft(_) | SourceError::SameName { .. } => {
                Failure::Usage(error.to_string())
            }
            error => Failure::because(error),
        })?;
        let source = source.by_contents(options.by_contents).atomic(options.atomic);
        Ok(source.delete(options.deletes).lists_changes(options.lists_changes))
    }

    /// The path of the copy, or the directory that copies go into, for a `--dest` in which the host's name is filled
    /// in.
    pub fn named(&self, dest: String) -> Result<String, Failure> {
        Ok(match self.kind {
            Kind::Stream if dest.ends_with('/') => {
                let what = format!("{dest} names a directory; name the file for the stream");
                return Err(Failure::Usage(what));
            }
            Kind::File if dest.ends_with('/') => dest + self.name()?,
            Kind::Directory if dest.ends_with('/') => dest + self.name()?,
            Kind::Directory => dest + "/" + self.name()?,
            Kind::File | Kind::Contents | Kind::Several | Kind::Stream => dest,
        })
    }

    /// The `--dest` of receivers on this machine.
    pub fn local_default(&self) -> &'static str {
        match self.kind {
            Kind::Stream => "./rdmc-local/{host}/stream",
            _ => "./rdmc-local/{host}/",
        }
    }

    /// The default destination at receivers that have their own directory.
    pub fn name_below(&self) -> Result<&str, Failure> {
        match self.kind {
            Kind::Several => Ok("."),
            // For receivers that write files; others write to standard output.
            Kind::Stream => Ok("stream"),
            _ => self.name(),
        }
    }

    /// The default destination at other receivers: the same absolute path.
    pub fn same_path(&self) -> Result<String, Failure> {
        if self.kind == Kind::Stream {
            return Err(Failure::Usage("name the file for the stream with --dest".into()));
        }
        if self.remote.is_some() {
            let url = shown(self.first());
            return Err(Failure::Usage(format!(
                "{url} has no path at the hosts; give one with --dest"
            )));
        }
        if self.kind != Kind::Several {
            return Ok(text_of(&absolute(self.first())?)?.to_owned());
        }
        let parents = self.paths.iter().map(|path| {
            let path = absolute(path)?;
            let parent =
                if Source::means_contents(&path) { Some(path.as_path()) } else { path.parent() };
            Ok(parent.unwrap_or(&path).to_owned())
        });
        let mut parents = parents.collect::<Result<Vec<PathBuf>, Failure>>()?;
        parents.dedup();
        match &parents[..] {
            [parent] => Ok(text_of(parent)?.to_owned()),
            _ => Err(Failure::Usage(
                "the sources are in different directories; give one for their copies with --dest"
                    .into(),
            )),
        }
    }

    fn name(&self) -> Result<&str, Failure> {
        if let Some(remote) = &self.remote {
            return remote.name();
        }
        let file = self.first();
        file.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Failure::Usage(format!(
                "the name of {} is not UTF-8, or not a name; name the copy with --dest, with / at the end of a directory",
                file.display()
            ))
        })
    }
}

pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(Failure::while_doing(path.display()))
}

pub fn text_of(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::Usage(format!("the path {} is not UTF-8; give one with --dest", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_named_as_by_rsync() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("dir")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        let of = |names: &[&str]| {
            let paths: Vec<PathBuf> = names
                .iter()
                .map(|name| format!("{}/{name}", directory.path().display()).into())
                .collect();
            Sources::of(&paths, false).unwrap()
        };
        let named = |names: &[&str], dest: &str| of(names).named(dest.to_owned()).unwrap();
        assert_eq!(named(&["file"], "/d"), "/d");
        assert_eq!(named(&["file"], "/d/"), "/d/file");
        assert_eq!(named(&["dir"], "/d"), "/d/dir");
        assert_eq!(named(&["dir"], "/d/"), "/d/dir");
        assert_eq!(named(&["dir/"], "/d"), "/d");
        assert_eq!(named(&["dir/."], "/d"), "/d");
        assert_eq!(named(&["dir/.."], "/d"), "/d");
        assert_eq!(named(&["dir", "file"], "/d"), "/d");
        assert_eq!(of(&["dir", "file"]).name_below().unwrap(), ".");
        assert_eq!(of(&["dir/"]).name_below().unwrap(), "dir");
        let here = directory.path().to_str().unwrap();
        assert_eq!(of(&["dir", "file"]).same_path().unwrap(), here);
        assert_eq!(of(&["dir"]).same_path().unwrap(), at("dir").to_str().unwrap());
        assert!(of(&["dir/x", "file"]).same_path().is_err());
    }
}
