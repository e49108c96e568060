//! `rdmc status`: what is fetched from a server, and by whom.

use std::{io::Write, time::Duration};

use files::{FetchState, FetchStatus, ObjectStatus, ServerStatus, receiver};
use plan::size;
use serde::Serialize;

use crate::{
    credentials::CredentialFiles,
    failure::{Exit, Failure, plain_name},
    fetch::{ServerAddress, unreachable},
    json, output,
    this_machine::own_name,
};

/// How long the server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(20);

const EXAMPLES: &str = "\
Example:
  rdmc status node0 --secret-file secret
      /models/llama, 131 GiB: 3 hosts
        node1  has a copy, and sends it to others
        node2  receives, 61 %
        node3  has failed: no space left on device

A server lists a host from its first connection until the last host that fetches the same has left.";

/// Show what is fetched from a server (`rdmc serve`), and how far each host is
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The server: HOST or HOST:PORT [default port: 7700]
    #[arg(value_name = "HOST")]
    server: ServerAddress,

    #[command(flatten)]
    credentials: CredentialFiles,

    /// Print the result as JSON (docs/reference/exit-codes.md)
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Whether the result is printed as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }
}

/// The result as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    server: String,
    objects: Vec<ShownObject<'a>>,
    omitted_hosts: u64,
    exit_code: Exit,
}

#[derive(Serialize)]
struct ShownObject<'a> {
    path: &'a str,
    bytes: Option<u64>,
    hosts: Vec<ShownHost<'a>>,
}

#[derive(Serialize)]
struct ShownHost<'a> {
    host: &'a str,
    state: &'static str,
    received_bytes: u64,
    is_here: bool,
    error: Option<&'a str>,
}

/// Asks, and prints the answer.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let Some(credentials) = args.credentials.read(&[])? else {
        return Err(Failure::Usage("status needs --secret-file, or --cert, --key and --ca".into()));
    };
    let server = args.server.to_string();
    let status = receiver::status(&server, &credentials, &own_name(), TIMEOUT)
        .map_err(|error| Failure::Failed(format!("{server}: {}", unreachable(error))))?;
    output::print(|out| match args.json {
        true => json::write_line(out, &shown(server, &status)),
        false => print(out, &status),
    })?;
    Ok(Exit::Done)
}

impl<'a> From<&'a FetchStatus> for ShownHost<'a> {
    fn from(host: &'a FetchStatus) -> Self {
        let (state, error) = match &host.state {
            FetchState::Preparing => ("preparing", None),
            FetchState::Receiving => ("receiving", None),
            FetchState::Verifying => ("verifying", None),
            FetchState::Published => ("published", None),
            FetchState::Failed(reason) => ("failed", Some(&**reason)),
        };
        let (received_bytes, is_here) = (host.received_bytes, host.is_here);
        Self { host: &host.name, state, received_bytes, is_here, error }
    }
}

impl<'a> From<&'a ObjectStatus> for ShownObject<'a> {
    fn from(object: &'a ObjectStatus) -> Self {
        let hosts = object.hosts.iter().map(ShownHost::from).collect();
        Self { path: &object.path, bytes: object.bytes, hosts }
    }
}

fn shown(server: String, status: &ServerStatus) -> Shown<'_> {
    let objects = status.objects.iter().map(ShownObject::from).collect();
    Shown { server, objects, omitted_hosts: status.omitted, exit_code: Exit::Done }
}

fn print(out: &mut dyn Write, status: &ServerStatus) -> std::io::Result<()> {
    if status.objects.is_empty() {
        writeln!(out, "nothing is fetched")?;
    }
    for object in &status.objects {
        let bytes = object.bytes.map_or(String::new(), |bytes| format!(", {}", size::show(bytes)));
        let hosts = match object.hosts.len() {
            1 => "1 host".to_owned(),
            hosts => format!("{hosts} hosts"),
        };
        writeln!(out, "{}{bytes}: {hosts}", plain_name(&object.path))?;
        let width = object.hosts.iter().map(|host| host.name.chars().count()).max().unwrap_or(0);
        for host in &object.hosts {
            writeln!(out, "  {:width$}  {}", plain_name(&host.name), words(host, object.bytes))?;
        }
    }
    match status.omitted {
        0 => Ok(()),
        omitted => writeln!(out, "{omitted} more hosts"),
    }
}

/// How far a host is.
fn words(host: &FetchStatus, bytes: Option<u64>) -> String {
    match &host.state {
        FetchState::Preparing => "looks at what it has".to_owned(),
        FetchState::Receiving => {
            let percent = |bytes: u64| 100.0 * host.received_bytes as f64 / bytes.max(1) as f64;
            bytes.map_or("receives".into(), |bytes| format!("receives, {:.0} %", percent(bytes)))
        }
        FetchState::Verifying => "verifies its copy".to_owned(),
        FetchState::Published if host.is_here => "has a copy, and sends it to others".to_owned(),
        FetchState::Published => "has a copy, and has left".to_owned(),
        FetchState::Failed(reason) => format!("has failed: {}", plain_name(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_a_line() {
        let host = |name: &str, state, received_bytes, is_here| FetchStatus {
            name: name.into(),
            state,
            received_bytes,
            is_here,
        };
        let hosts = vec![
            host("a", FetchState::Published, 200, true),
            host("long", FetchState::Receiving, 50, true),
            host("b\n", FetchState::Failed("no\nspace".into()), 0, false),
            host("c", FetchState::Published, 200, false),
        ];
        let object = ObjectStatus { path: "/m".into(), bytes: Some(200), hosts };
        let empty = ObjectStatus { path: "/n".into(), bytes: None, hosts: Vec::new() };
        let text = |status: &ServerStatus| {
            let mut out = Vec::new();
            print(&mut out, status).unwrap();
            String::from_utf8(out).unwrap()
        };
        let status = ServerStatus { objects: vec![object, empty], omitted: 2 };
        let shown = text(&status);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "/m, 200 B: 4 hosts");
        assert_eq!(lines[1], "  a     has a copy, and sends it to others");
        assert_eq!(lines[2], "  long  receives, 25 %");
        assert!(lines[3].ends_with("has failed: no\\nspace"), "{shown}");
        assert_eq!(lines[4], "  c     has a copy, and has left");
        assert_eq!(lines[5..], ["/n: 0 hosts", "2 more hosts"]);
        assert_eq!(text(&ServerStatus::default()), "nothing is fetched\n");
    }
}
