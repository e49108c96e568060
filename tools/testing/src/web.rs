//! A web server whose answers a test decides, with faults.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, BufWriter, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// No client of a test is silent for longer.
const TIMEOUT: Duration = Duration::from_secs(50);

/// What a client has asked for.
#[derive(Clone, Debug)]
pub struct WebRequest {
    /// Such as `GET`.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// By their names in lower case.
    pub headers: BTreeMap<String, String>,
}

/// What it gets.
#[derive(Clone, Default, Debug)]
pub struct WebAnswer {
    /// Such as 200.
    pub status: u16,
    /// Besides the length.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The connection ends after so many bytes of the body.
    pub cut_after: Option<usize>,
    /// The length that is claimed instead of the body's.
    pub claimed_bytes: Option<usize>,
    /// A pause after each 4 KiB of the body.
    pub pause: Duration,
}

/// A server on this machine, which ends when it is dropped.
pub struct WebServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    requests: Arc<Mutex<Vec<WebRequest>>>,
    connections: Arc<AtomicU64>,
}

impl WebServer {
    /// Starts a server that answers each request with what `answer` returns for it.
    pub fn start(answer: impl Fn(&WebRequest) -> WebAnswer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (is_over, sent, requests): (Arc<AtomicBool>, Arc<AtomicU64>, Arc<Mutex<Vec<_>>>) =
            Default::default();
        let (over, count, log) = (Arc::clone(&is_over), Arc::clone(&sent), Arc::clone(&requests));
        let answer = Arc::new(answer);
        let connections = Arc::new(AtomicU64::new(0));
        let accepted = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                accepted.fetch_add(1, Ordering::Relaxed);
                let (answer, count, log) =
                    (Arc::clone(&answer), Arc::clone(&count), Arc::clone(&log));
                // A client that goes away is no fault of the server.
                thread::spawn(move || drop(serve(&stream, &*answer, &count, &log)));
            }
        });
        Self { address, is_over, sent, requests, connections }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL of it.
    pub fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.address)
    }

    /// How many bytes of bodies it has sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// How many connections it has accepted.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// What it was asked for so far.
    pub fn requests(&self) -> Vec<WebRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

impl WebRequest {
    /// The first byte and the end of the requested range.
    pub fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.headers.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse::<usize>().ok()? + 1))
    }

    /// What a correct server answers that has these contents under this tag: the whole, a range, or that it has another version.
    pub fn answer(&self, contents: &[u8], tag: &str) -> WebAnswer {
        let mut answer = WebAnswer { status: 200, body: contents.to_vec(), ..WebAnswer::default() };
        answer.add("ETag", tag);
        answer.add("Last-Modified", "Tue, 01 Sep 2026 12:00:00 GMT");
        if self.headers.get("if-match").is_some_and(|wanted| wanted != tag) {
            (answer.status, answer.body) = (412, Vec::new());
            return answer;
        }
        let Some((start, end)) = self.range() else { return answer };
        let end = end.min(contents.len());
        if start >= contents.len() {
            (answer.status, answer.body) = (416, Vec::new());
            answer.add("Content-Range", &format!("bytes */{}", contents.len()));
            return answer;
        }
        (answer.status, answer.body) = (206, contents[start..end].to_vec());
        answer.add("Content-Range", &format!("bytes {start}-{}/{}", end - 1, contents.len()));
        answer
    }
}

impl WebAnswer {
    /// Without a body.
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// With a body.
    pub fn text(text: impl Into<String>) -> Self {
        Self { status: 200, body: text.into().into_bytes(), ..Self::default() }
    }

    /// Adds a header.
    pub fn add(&mut self, name: &str, value: &str) {
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    /// The same with a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.add(name, value);
        self
    }
}

/// Answers the requests of one connection.
fn serve(
    stream: &TcpStream,
    answer: &dyn Fn(&WebRequest) -> WebAnswer,
    sent: &AtomicU64,
    log: &Mutex<Vec<WebRequest>>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(first) = lines.next() {
        let first = first?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = BTreeMap::new();
        for line in lines.by_ref() {
            let line = line?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let request = WebRequest { method, target, headers };
        log.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let answer = answer(&request);
        let length = answer.claimed_bytes.unwrap_or(answer.body.len());
        let mut head = format!("HTTP/1.1 {} Status\r\nContent-Length: {length}\r\n", answer.status);
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        // Its head goes with the first bytes of the body: a client that has the head finds those counted.
        let mut out = BufWriter::new(stream);
        out.write_all((head + "\r\n").as_bytes())?;
        if request.method == "HEAD" {
            out.flush()?;
            continue;
        }
        let body = &answer.body[..answer.cut_after.unwrap_or(usize::MAX).min(answer.body.len())];
        for part in body.chunks(if answer.pause.is_zero() { 64 << 10 } else { 4 << 10 }) {
            // Before a client can have it.
            sent.fetch_add(part.len() as u64, Ordering::Relaxed);
            out.write_all(part)?;
            out.flush()?;
            thread::sleep(answer.pause);
        }
        out.flush()?;
        if answer.cut_after.is_some() || length != answer.body.len() {
            stream.shutdown(std::net::Shutdown::Both)?;
            return Ok(());
        }
    }
    Ok(())
}
