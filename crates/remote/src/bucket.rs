//! Objects in stores that speak S3.

use std::{collections::BTreeSet, ops::Range, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::BoxStream};
use object_store::{
    BackoffConfig, ClientConfigKey, Error, GetOptions, GetRange, ObjectMeta, ObjectStore,
    ObjectStoreExt, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    path::Path,
};

use crate::{
    entry::{Entry, Kind},
    environment::Environment,
    error::{Fault, reasons},
    profile,
};

/// Attempts of the store's client, which is asked again if they fail.
const ATTEMPTS: usize = 2;
const ATTEMPTS_TIMEOUT: Duration = Duration::from_secs(15);
/// From a request until its answer, the client's attempts included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// More than these are no tree (`tree::ENTRIES_MAX`).
const OBJECTS_MAX: usize = 1 << 24;

const CREDENTIALS: &str = "check the names and the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials, \
                           `eval \"$(aws configure export-credentials --format env)\"`, or AWS_SKIP_SIGNATURE=true for a public \
                           bucket (docs/guide/remote.md)";

/// The body of an object.
pub(crate) type ObjectBody = BoxStream<'static, object_store::Result<bytes::Bytes>>;

/// A bucket.
#[derive(Clone, Debug)]
pub(crate) struct Bucket(Arc<dyn ObjectStore>);

/// One version of an object.
#[derive(Debug)]
pub(crate) struct BucketObject {
    path: Path,
    bytes: u64,
    etag: Option<String>,
}

/// What was found under a key.
#[derive(Debug)]
pub(crate) enum Objects {
    /// An object of this name.
    One(BucketObject, Entry),
    /// Those that begin with the key and `/`.
    Several(Vec<(BucketObject, Entry)>),
}

impl Bucket {
    /// A bucket of S3, or of another store that `AWS_ENDPOINT_URL` names. Errors: an invalid setting.
    pub(crate) fn open(name: &str, environment: &Environment) -> Result<Self, Fault> {
        let mut builder = AmazonS3Builder::new();
        let stored = profile::variables(environment);
        let stored = stored.iter().map(|(name, value)| (*name, value.as_str()));
        for (key, value) in environment.beginning("AWS_").chain(stored) {
            if let Ok(key) = key.to_ascii_lowercase().parse() {
                builder = builder.with_config(key, value);
            }
        }
        let endpoint =
            environment.get("AWS_ENDPOINT_URL_S3").or(environment.get("AWS_ENDPOINT_URL"));
        if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
            // Whoever names it means it.
            builder = builder.with_allow_http(true);
        }
        // Reads have deadlines of their own.
        let client = |key| AmazonS3ConfigKey::Client(key);
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: ATTEMPTS,
            retry_timeout: ATTEMPTS_TIMEOUT,
        };
        let built = builder
            .with_config(client(ClientConfigKey::ConnectTimeout), "10 seconds")
            .with_config(client(ClientConfigKey::Timeout), "1 hour")
            .with_bucket_name(name)
            .with_retry(retry)
            .build();
        built.map(|store| Self(Arc::new(store))).map_err(|error| Fault::Refused(reasons(&error)))
    }

    /// Finds an object of this key, or those below it.
    pub(crate) async fn find(&self, key: &str) -> Result<Objects, Fault> {
        let path = Path::parse(key).map_err(|error| Fault::Refused(reasons(&error)))?;
        if !key.is_empty() && !key.ends_with('/') {
            match within(self.0.head(&path)).await? {
                Ok(meta) => {
                    let (object, entry) = described(meta, String::new());
                    return Ok(Objects::One(object, entry));
                }
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(fault_of(error)),
            }
        }
        let objects = self.list(&path).await?;
        if objects.is_empty() {
            return Err(Fault::Refused(format!(
                "no object has this key, and none begins with it and /; {CREDENTIALS}"
            )));
        }
        Ok(Objects::Several(objects))
    }

    /// Requests a range, which is not empty, of the version that was found.
    pub(crate) async fn get(
        &self,
        object: &BucketObject,
        range: &Range<u64>,
    ) -> Result<ObjectBody, Fault> {
        let if_match = object.etag.clone();
        let options = GetOptions {
            if_match,
            range: Some(GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let found = within(self.0.get_opts(&object.path, options)).await?.map_err(changed_or)?;
        object.check(&found.meta)?;
        if found.range.start != range.start {
            return Err(Fault::again("the store sent another range than the requested one"));
        }
        Ok(found.into_stream())
    }

    /// Errors: the object is not this version any more.
    pub(crate) async fn look_again(&self, object: &BucketObject) -> Result<(), Fault> {
        object.check(&within(self.0.head(&object.path)).await?.map_err(changed_or)?)
    }

    /// Errors: below the key are not these versions of these objects any more.
    pub(crate) async fn list_again(
        &self,
        key: &str,
        objects: &[&BucketObject],
    ) -> Result<(), Fault> {
        let path = Path::parse(key).map_err(|error| Fault::Refused(reasons(&error)))?;
        let now = self.list(&path).await?;
        let of = |object: &BucketObject| (object.path.clone(), object.bytes, object.etag.clone());
        let before: BTreeSet<_> = objects.iter().map(|object| of(object)).collect();
        let after: BTreeSet<_> = now.iter().map(|(object, _)| of(object)).collect();
        match before.symmetric_difference(&after).next() {
            Some((path, ..)) => {
                Err(Fault::Changed(format!("{path} was written, added or removed")))
            }
            None => Ok(()),
        }
    }

    async fn list(&self, prefix: &Path) -> Result<Vec<(BucketObject, Entry)>, Fault> {
        let mut found = Vec::new();
        let mut listed = self.0.list(Some(prefix));
        while let Some(meta) = within(listed.next()).await? {
            let meta = meta.map_err(fault_of)?;
            if found.len() == OBJECTS_MAX {
                return Err(Fault::Refused(format!(
                    "more than {OBJECTS_MAX} objects; push parts of it"
                )));
            }
            let below = meta.location.as_ref().strip_prefix(prefix.as_ref()).unwrap_or_default();
            let below = below.trim_start_matches('/').to_owned();
            found.push(described(meta, below));
        }
        // Tools make empty objects that stand for directories.
        let directories: BTreeSet<String> = found
            .iter()
            .flat_map(|(_, entry)| {
                entry.path.match_indices('/').map(|(end, _)| entry.path[..end].to_owned())
            })
            .collect();
        let is_marker = |object: &BucketObject, entry: &Entry| {
            object.bytes == 0 && (entry.path.is_empty() || directories.contains(&entry.path))
        };
        found.retain(|(object, entry)| !is_marker(object, entry));
        Ok(found)
    }
}

impl BucketObject {
    /// What distinguishes it from other versions; its time is in its entry.
    pub(crate) fn version(&self) -> String {
        self.etag.clone().unwrap_or_default()
    }

    fn check(&self, now: &ObjectMeta) -> Result<(), Fault> {
        let changed = match () {
            () if now.size != self.bytes => {
                format!("it had {} bytes and has {}", self.bytes, now.size)
            }
            () if self.etag.is_some() && now.e_tag.is_some() && now.e_tag != self.etag => {
                "its ETag is another one".to_owned()
            }
            () => return Ok(()),
        };
        Err(Fault::Changed(changed))
    }
}

fn described(meta: ObjectMeta, path: String) -> (BucketObject, Entry) {
    let ObjectMeta { location, last_modified, size: bytes, e_tag: etag, .. } = meta;
    let derived = || Entry::time_of(etag.as_deref().unwrap_or_default().as_bytes());
    let modified_ns = last_modified.timestamp_nanos_opt().unwrap_or_else(derived);
    let entry = Entry { path, modified_ns, kind: Kind::File { bytes, checksum: None } };
    (BucketObject { path: location, bytes, etag }, entry)
}

/// Errors: no answer.
async fn within<T>(request: impl Future<Output = T>) -> Result<T, Fault> {
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, request).await;
    answer.map_err(|_| Fault::again("the store does not answer"))
}

/// What was there and is not any more has changed.
fn changed_or(error: Error) -> Fault {
    match error {
        Error::NotFound { .. } => Fault::Changed("it was removed".into()),
        Error::Precondition { .. } => Fault::Changed("the store has another version".into()),
        error => fault_of(error),
    }
}

pub(crate) fn fault_of(error: Error) -> Fault {
    match error {
        Error::NotFound { .. } | Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            Fault::Refused(format!("{}; {CREDENTIALS}", reasons(&error)))
        }
        Error::InvalidPath { .. } | Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            Fault::Refused(reasons(&error))
        }
        error => {
            let why = reasons(&error);
            let has = |parts: &[&str]| parts.iter().any(|part| why.contains(part));
            // The client has no type for others: a bucket that does not exist, another region, and no credentials, which it then
            // asks an instance for.
            let is_refused = has(&["/latest/api/token", "/latest/meta-data"])
                || has(&["status code: 4"]) && !has(&["status code: 408", "status code: 429"]);
            if is_refused {
                Fault::Refused(format!("{why}; {CREDENTIALS}"))
            } else {
                Fault::again(why)
            }
        }
    }
}
