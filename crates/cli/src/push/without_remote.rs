//! Instead of sources at URLs where they are not built in.

use std::{path::Path, sync::Arc};

use files::{ListOptions, Source, SourceError, receiver::ReadsUrls};

use super::url::shown;
use crate::failure::Failure;

/// There is none.
pub enum RemoteObject {}

/// Nothing reads URLs.
pub fn reads_urls() -> Option<Arc<dyn ReadsUrls>> {
    None
}

impl RemoteObject {
    /// Errors: always.
    pub fn open(url: &str, _as_hub_cache: bool) -> Result<Self, Failure> {
        Err(Failure::Usage(format!(
            "{}: this rdmc was built without the feature remote, by which it reads URLs; send a stream: \
             curl -fL URL | rdmc push - ...",
            shown(Path::new(url))
        )))
    }

    pub fn is_directory(&self) -> bool {
        match *self {}
    }

    pub fn means_contents(&self) -> bool {
        match *self {}
    }

    pub fn name(&self) -> Result<&str, Failure> {
        match *self {}
    }

    pub fn source(&self, _options: &ListOptions) -> Result<Source, SourceError> {
        match *self {}
    }
}
