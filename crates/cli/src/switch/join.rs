//! `rdmc switch join`: the host daemon.

use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::atomic::Ordering,
    time::Duration,
};

use control::watcher::Probing;
use host::DaemonSettings;

use super::setup;
use crate::{
    credentials::CredentialFiles,
    failure::{Failure, print_message},
    interrupt::Interrupt,
    logging,
};

/// All permissions of owner, group and others.
const MODE_MAX: u32 = 0o777;

const EXAMPLES: &str = "\
Example, at a host whose first switch is tor-a:
  rdmc switch join --listen 10.0.0.1:4789 --switch tor-a:4790 --cert host.pem --key host.key --ca ca.pem

Over the socket, applications on this host create groups, and listen for groups of others. The socket's permissions
decide who may act for this host: by default the daemon's user, with --socket-mode 660 also the socket's group.
The certificate must have the names and addresses by which other daemons connect to this one, and those of its
applications (subjectAltName).";

/// Let this host's applications create groups that switches copy
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Listen for other host daemons on this address (port 0: a free one, which is printed)
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,

    /// Agent of this host's first switch (`rdmc switch run`)
    #[arg(long, value_name = "HOST:PORT")]
    switch: String,

    /// Unix socket for applications on this host
    #[arg(long, value_name = "PATH", default_value = setup::SOCKET)]
    socket: PathBuf,

    /// Permissions of the socket, in octal digits
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
    socket_mode: u32,

    #[command(flatten)]
    credentials: CredentialFiles,

    /// Certificate name of a daemon that may request members for groups of any sender; may be given several
    /// times. Other daemons may do so only for their own addresses
    #[arg(long, value_name = "NAME")]
    trust: Vec<String>,

    /// Remove receivers that the switch suspects if their hosts do not answer within this time
    #[arg(long, value_name = "MS", default_value_t = Probing::default().timeout.as_millis() as u64,
          value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    answer_within_ms: u64,

    /// Log to stderr (RUST_LOG sets the level)
    #[arg(short, long)]
    verbose: bool,
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= MODE_MAX);
    mode.ok_or_else(|| "permissions are octal digits, such as 600 or 660".to_owned())
}

/// Serves applications and other daemons until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    let certificates = setup::certificates(&args.credentials)?;
    let stop = Interrupt::catch(false)?.begin().flag();
    logging::start(args.verbose, None);
    let listening = format!("listening on {}", args.listen);
    let listener = TcpListener::bind(args.listen).map_err(Failure::while_doing(&listening))?;
    let address = listener.local_addr().map_err(Failure::while_doing(&listening))?;
    let settings = DaemonSettings {
        agent: args.switch.clone(),
        socket: args.socket.clone(),
        socket_mode: args.socket_mode,
        trusted: args.trust.clone(),
        delegation_lasts: host::DELEGATION_LASTS,
        probing: Probing::within(Duration::from_millis(args.answer_within_ms)),
    };
    let served = setup::runtime()?.block_on(async {
        let prepared = host::prepare(&settings, &certificates)?;
        let socket = args.socket.display();
        print_message(format_args!("host daemon at {address}, applications at {socket}"));
        let stopped = setup::until(|| stop.load(Ordering::Relaxed));
        host::serve(prepared, listener, stopped).await
    });
    if served.is_ok() {
        print_message("ended; its groups were removed from the switches");
    }
    served.map_err(Failure::because)
}

#[cfg(test)]
mod tests {
    use super::mode;

    #[test]
    fn permissions_are_octal() {
        assert_eq!((mode("600"), mode("0660")), (Ok(0o600), Ok(0o660)));
        for text in ["", "u+rw", "1000", "888"] {
            assert!(mode(text).is_err(), "{text}");
        }
    }
}
