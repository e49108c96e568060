//! What is fetched: `HOST:PATH`, `HOST:PORT:PATH`, and other servers that have it.

use std::{fmt, str::FromStr};

use rdmc::Error;

/// The port of servers.
pub const PORT: u16 = 7700;

/// A server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerAddress {
    /// A name or an address; an IPv6 address in brackets.
    host: String,
    port: u16,
}

/// A path at a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub server: ServerAddress,
    pub path: String,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Why a server could not be asked, and what to look at.
pub fn unreachable(error: Error) -> String {
    let cause = match error {
        Error::Peer { cause, .. } => cause,
        other => other.to_string(),
    };
    format!("{cause} (does `rdmc serve` run there?)")
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match split(text)? {
            (host, None | Some("")) => Ok(Self { host: host.to_owned(), port: PORT }),
            (host, Some(port)) => match port.parse() {
                Ok(port @ 1..) => Ok(Self { host: host.to_owned(), port }),
                _ => Err(format!("{port:?} is no port; use HOST or HOST:PORT")),
            },
        }
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "use HOST:PATH or HOST:PORT:PATH, such as node0:/models/llama".to_owned();
        let (host, Some(rest)) = split(text)? else { return Err(wrong()) };
        let port = rest.split_once(':').and_then(|(port, path)| Some((port.parse().ok()?, path)));
        let (port, path) = match port {
            Some((port @ 1.., path)) => (port, path),
            _ => (PORT, rest),
        };
        if path.is_empty() {
            return Err(wrong());
        }
        let server = ServerAddress { host: host.to_owned(), port };
        Ok(Self { server, path: path.to_owned() })
    }
}

impl Origin {
    /// The name of what is fetched: the last one of its path that is a name.
    ///
    /// Errors: it has none.
    pub fn name(&self) -> Result<&str, String> {
        let named = |name: &&str| !name.is_empty() && *name != ".";
        match self.path.rsplit('/').find(named) {
            Some(name) if name != ".." => Ok(name),
            _ => Err(format!(
                "{:?} has no name of its own: end DEST with one instead of /",
                self.path
            )),
        }
    }
}

/// The host, and what follows after a colon. Errors: no host.
fn split(text: &str) -> Result<(&str, Option<&str>), String> {
    let end = match text.strip_prefix('[') {
        Some(inner) => inner.find(']').map(|at| at + 2),
        None => Some(text.find(':').unwrap_or(text.len())),
    };
    let end = end.ok_or_else(|| format!("{text:?} has no ] after its address"))?;
    let (host, rest) = text.split_at(end);
    if host.is_empty() || host == "[]" {
        return Err(format!("{text:?} names no host"));
    }
    match rest.strip_prefix(':') {
        None if !rest.is_empty() => Err(format!("{text:?}: use a colon after the address")),
        rest => Ok((host, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_have_a_host_a_port_and_a_path() {
        let origin = |text: &str| text.parse::<Origin>().map(|it| (it.server.to_string(), it.path));
        let right = |server: &str, path: &str| Ok((server.to_owned(), path.to_owned()));
        assert_eq!(origin("node0:/models/a"), right("node0:7700", "/models/a"));
        assert_eq!(origin("node0:models"), right("node0:7700", "models"));
        assert_eq!(origin("node0:7000:/models/a:b"), right("node0:7000", "/models/a:b"));
        assert_eq!(origin("node0:/a:b"), right("node0:7700", "/a:b"));
        assert_eq!(origin("[fd00::1]:7000:a"), right("[fd00::1]:7000", "a"));
        assert_eq!(origin("[fd00::1]:/a"), right("[fd00::1]:7700", "/a"));
        for wrong in
            ["", "node0", "node0:", "node0:7000:", ":/a", "[fd00::1", "[]:/a", "[fd00::1]/a"]
        {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn servers_have_a_port() {
        let server = |text: &str| text.parse::<ServerAddress>().map(|it| it.to_string());
        assert_eq!(server("node0"), Ok("node0:7700".into()));
        assert_eq!(server("node0:7"), Ok("node0:7".into()));
        assert_eq!(server("[fd00::1]"), Ok("[fd00::1]:7700".into()));
        for wrong in ["node0:x", "node0:0", "node0:7:8", ""] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn copies_in_a_directory_have_the_last_name() {
        let name =
            |path: &str| format!("a:{path}").parse::<Origin>().unwrap().name().map(str::to_owned);
        assert_eq!(name("/models/llama"), Ok("llama".into()));
        assert_eq!(name("/models/llama/./"), Ok("llama".into()));
        assert!(name("/").is_err() && name("a/..").is_err());
    }
}
