//! Files on web servers: ranges of one version (RFC 9110, sections 13 and 14).

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use reqwest::{
    Client, Response, StatusCode, Url,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HeaderMap, HeaderValue, RANGE,
        RETRY_AFTER,
    },
    redirect::{Attempt, Policy},
};

use crate::{
    entry::{Entry, Kind},
    error::Fault,
    pin::{Pin, content_range},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// From a request until the headers of its answer, redirects included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
const REDIRECTS_MAX: usize = 10;

/// For sources that cannot be read in ranges.
const AS_STREAM: &str = "send it as a stream: curl -fL URL | rdmc push - ...";

/// A client of web servers, which keeps connections. Proxies are those of the environment (`HTTPS_PROXY`, `NO_PROXY`).
#[derive(Clone, Debug)]
pub(crate) struct Web(Client);

/// One version of a file.
#[derive(Debug)]
pub(crate) struct WebFile {
    url: Url,
    pin: Pin,
    /// Goes to the host of `url` only.
    credential: Option<HeaderValue>,
    /// Where the last request was redirected to: its URL may hold a signature that expires.
    target: Mutex<Option<Url>>,
}

impl Web {
    /// Errors: no certificates that could be trusted; the system's.
    pub(crate) fn new() -> Result<Self, Fault> {
        let client = Client::builder()
            .user_agent(concat!("rdmc/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::custom(follow))
            .referer(false)
            .build()?;
        Ok(Self(client))
    }

    /// Sends a request and waits for the headers of the answer. `credential` is sent to the host of the URL, and not to those that
    /// it redirects to.
    pub(crate) async fn get(
        &self,
        url: &Url,
        credential: Option<&HeaderValue>,
        headers: HeaderMap,
    ) -> Result<Response, Fault> {
        let mut request = self.0.get(url.clone()).headers(headers);
        if let Some(credential) = credential {
            request = request.header(AUTHORIZATION, credential);
        }
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, request.send()).await;
        Ok(answer.map_err(|_| Fault::again("the server does not answer"))??)
    }

    /// Finds out length and version of a file.
    pub(crate) async fn open(&self, url: &Url) -> Result<(WebFile, Entry), Fault> {
        let answer = self.get(url, None, headers_for(&(0..1), None)).await?;
        let status = answer.status();
        let total = content_range(answer.headers()).map(|(_, total)| total);
        let bytes = match (status, total, answer.content_length()) {
            (StatusCode::PARTIAL_CONTENT, Some(total), _) => total,
            (StatusCode::RANGE_NOT_SATISFIABLE, Some(0), _) | (StatusCode::OK, _, Some(0)) => 0,
            (StatusCode::OK | StatusCode::PARTIAL_CONTENT, ..) => {
                return Err(Fault::Refused(format!(
                    "the server does not send ranges of it, in which rdmc reads; {AS_STREAM}"
                )));
            }
            _ => return Err(fault_of(status, answer.headers())),
        };
        check_encoding(answer.headers())?;
        let pin = Pin::of(bytes, answer.headers());
        let modified = pin.modified().and_then(|text| httpdate::parse_http_date(text).ok());
        let modified_ns = modified
            .and_then(Entry::nanoseconds)
            .or_else(|| Some(Entry::time_of(pin.etag()?.as_bytes())));
        let Some(modified_ns) = modified_ns.filter(|_| pin.is_version()) else {
            return Err(Fault::Refused(format!(
                "the server says by neither ETag nor Last-Modified which version it sends, so that parts of two could be \
                 mixed; {AS_STREAM}"
            )));
        };
        let kind = Kind::File { bytes, checksum: None };
        Ok((WebFile::new(url.clone(), pin, None), Entry { path: String::new(), modified_ns, kind }))
    }
}

impl WebFile {
    /// What distinguishes it from other versions.
    pub(crate) fn version(&self) -> String {
        self.pin.etag().or(self.pin.modified()).unwrap_or_default().to_owned()
    }

    pub(crate) fn new(url: Url, pin: Pin, credential: Option<HeaderValue>) -> Self {
        Self { url, pin, credential, target: Mutex::default() }
    }

    /// Requests a range, which is not empty; what comes is of the pinned version. The body may be too long.
    pub(crate) async fn get(&self, web: &Web, range: &Range<u64>) -> Result<Response, Fault> {
        let target = self.target().clone();
        let url = target.as_ref().unwrap_or(&self.url);
        let is_own = url.origin() == self.url.origin();
        let credential = self.credential.as_ref().filter(|_| is_own);
        let answer = web.get(url, credential, headers_for(range, Some(&self.pin))).await;
        let checked = answer.and_then(|answer| {
            self.check(&answer, range)?;
            Ok(answer)
        });
        match checked {
            Ok(answer) => {
                *self.target() = (answer.url() != &self.url).then(|| answer.url().clone());
                Ok(answer)
            }
            Err(Fault::Refused(why)) if target.is_some() => {
                // A signature has expired, for example: from the start again.
                *self.target() = None;
                Err(Fault::again(why))
            }
            Err(fault) => {
                *self.target() = None;
                Err(fault)
            }
        }
    }

    /// Errors: the file is not this version any more; not reachable.
    pub(crate) async fn look_again(&self, web: &Web) -> Result<(), Fault> {
        if !self.pin.is_version() {
            return Ok(());
        }
        if self.pin.bytes > 0 {
            return self.get(web, &(0..1)).await.map(drop);
        }
        let answer = web
            .get(&self.url, self.credential.as_ref(), headers_for(&(0..1), Some(&self.pin)))
            .await?;
        let has_bytes = answer.status().is_success() && answer.content_length() != Some(0);
        match answer.status() {
            _ if has_bytes => Err(Fault::Changed("it was empty, and is not".into())),
            status if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE => {
                self.pin.check(answer.headers()).map_err(Fault::Changed)
            }
            status => Err(self.gone_or(fault_of(status, answer.headers()), status)),
        }
    }

    fn check(&self, answer: &Response, range: &Range<u64>) -> Result<(), Fault> {
        let (status, headers) = (answer.status(), answer.headers());
        let first = content_range(headers).and_then(|(first, _)| first);
        match status {
            StatusCode::PARTIAL_CONTENT if first == Some(range.start) => {}
            StatusCode::PARTIAL_CONTENT => {
                return Err(Fault::again("the server sent another range than the requested one"));
            }
            StatusCode::OK
                if answer.content_length().is_some_and(|bytes| bytes != self.pin.bytes) =>
            {
                return Err(Fault::Changed(format!(
                    "it had {} bytes and has {}",
                    self.pin.bytes,
                    answer.content_length().unwrap_or_default()
                )));
            }
            StatusCode::OK if range.start == 0 => {}
            StatusCode::OK => {
                return Err(Fault::again("the server sent the whole file instead of a range"));
            }
            StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE => {
                self.pin.check(headers).map_err(Fault::Changed)?;
                return Err(Fault::Changed("the server has another version".into()));
            }
            status => return Err(self.gone_or(fault_of(status, headers), status)),
        }
        check_encoding(headers)?;
        self.pin.check(headers).map_err(Fault::Changed)
    }

    /// What was there and is not any more has changed.
    fn gone_or(&self, fault: Fault, status: StatusCode) -> Fault {
        match status {
            StatusCode::NOT_FOUND | StatusCode::GONE if self.target().is_none() => {
                Fault::Changed("it was removed".into())
            }
            _ => fault,
        }
    }

    fn target(&self) -> std::sync::MutexGuard<'_, Option<Url>> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows a redirect, but not to where everybody on the way could read and change what is sent.
fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let came_protected = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    match attempt.url().scheme() {
        "http" | "https" if attempt.previous().len() > REDIRECTS_MAX => {
            attempt.error("too many redirects")
        }
        "https" => attempt.follow(),
        "http" if !came_protected => attempt.follow(),
        _ => attempt.error("it is redirected from https to what is not protected"),
    }
}

fn headers_for(range: &Range<u64>, pin: Option<&Pin>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Ok(value) = HeaderValue::from_str(&format!("bytes={}-{}", range.start, range.end - 1)) {
        headers.insert(RANGE, value);
    }
    if let Some((name, value)) = pin.and_then(Pin::condition)
        && let Ok(value) = HeaderValue::from_str(value)
    {
        headers.insert(name, value);
    }
    headers
}

/// Errors: the bytes that come are not those of the file.
fn check_encoding(headers: &HeaderMap) -> Result<(), Fault> {
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(Fault::Refused(format!(
            "the server sends it compressed ({}), although asked not to; {AS_STREAM}",
            encoding.to_str().unwrap_or("in an unknown way")
        ))),
        _ => Ok(()),
    }
}

/// Why an answer with this status has no contents.
pub(crate) fn fault_of(status: StatusCode, headers: &HeaderMap) -> Fault {
    let answered = format!("the server answered {status}");
    let remedy = match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            return Fault::Again { why: answered, after: retry_after(headers) };
        }
        status if status.is_server_error() => {
            return Fault::Again { why: answered, after: retry_after(headers) };
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => "check the spelling",
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "it needs credentials, or others (docs/guide/remote.md); a signed URL may have expired"
        }
        _ => "check the URL with curl -fL",
    };
    Fault::Refused(format!("{answered}; {remedy}"))
}

/// What a server asks for, as seconds or as a time (RFC 9110, section 10.2.3).
fn retry_after(headers: &HeaderMap) -> Duration {
    let text = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let until = || httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok();
    text.parse().ok().map(Duration::from_secs).or_else(until).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_say_when_to_come_again() {
        let after = |text: &str| {
            let headers = [(RETRY_AFTER, text.parse().unwrap())].into_iter().collect();
            match fault_of(StatusCode::TOO_MANY_REQUESTS, &headers) {
                Fault::Again { after, .. } => after,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(after("7"), Duration::from_secs(7));
        assert_eq!(after("soon"), Duration::ZERO);
        assert_eq!(after("Mon, 01 Jan 2001 00:00:00 GMT"), Duration::ZERO);
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
        assert!(after(&later) > Duration::from_secs(60));
    }
}
