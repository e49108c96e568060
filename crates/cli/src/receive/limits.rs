//! Options for what roots may ask of a receiver.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use files::receiver::{IN_SWITCH, Listings, RootLimits};
use plan::size;
use rdmc::{CompletionMode, Fabric, Protection};
use session::Peers;

use crate::{failure::Failure, help::LISTENING, hosting::protections};

/// What roots may ask of a receiver that they have not started.
#[derive(Debug, clap::Args)]
pub struct LimitOptions {
    /// The least protection of blocks that is accepted: none, authenticate or encrypt
    ///
    /// encrypt implies the fabric tcp. [default: authenticate; none where all members are on this machine]
    #[arg(long, value_name = "MINIMUM", value_parser = protections(), hide_possible_values = true,
          conflicts_with = "session", help_heading = LISTENING)]
    protect: Option<Protection>,

    /// Networks that blocks may come over, such as tcp,verbs or tcp,in-switch
    ///
    /// tcp authenticates and encrypts blocks; libfabric's providers (verbs, efa, cxi and others) and switches that copy (in-switch)
    /// do neither. [default: tcp; with --protect none all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = network, conflicts_with = "session",
          help_heading = LISTENING)]
    fabric: Vec<String>,

    /// Networks of the hosts that this receiver connects to and answers, such as 10.1.0.0/16,fd00::/8
    ///
    /// [default: all that roots name]
    #[arg(long, value_name = "NETWORKS", conflicts_with = "session", help_heading = LISTENING)]
    peers: Option<Peers>,

    /// How this receiver waits for completions: event, hybrid or polling
    ///
    /// polling occupies a processor core for as long as a push lasts. Whatever the root has as its --completion.
    #[arg(long, value_name = "MODE", value_parser = completion_modes(), hide_possible_values = true,
          default_value = "event", conflicts_with = "session", help_heading = LISTENING)]
    completion: CompletionMode,

    /// Hold lists of files of at most this length in memory, those of all pushes together
    ///
    /// As they are sent, some 30 bytes for each file; a list takes several times as much while its push lasts. A push that needs
    /// more is refused. [default: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, conflicts_with = "session", help_heading = LISTENING)]
    max_lists: Option<u64>,
}

impl LimitOptions {
    /// For the lists of files of all pushes.
    pub fn listings(&self) -> Listings {
        Listings::new(self.max_lists.unwrap_or(Listings::BYTES_MAX))
    }

    /// Errors: options that exclude each other.
    pub fn limits(&self) -> Result<RootLimits, Failure> {
        let unprotected = self.fabric.iter().find(|network| *network != "tcp");
        if let (Some(Protection::Encrypt), Some(network)) = (self.protect, unprotected) {
            let why = format!(
                "--protect encrypt needs --fabric tcp: nothing encrypts blocks over {network}"
            );
            return Err(Failure::Usage(why));
        }
        let networks = (!self.fabric.is_empty()).then(|| self.fabric.clone());
        let (protection_min, completion) = (self.protect, self.completion);
        Ok(RootLimits { protection_min, networks, peers: self.peers.clone(), completion })
    }
}

fn completion_modes() -> impl TypedValueParser<Value = CompletionMode> {
    PossibleValuesParser::new(CompletionMode::ALL.map(CompletionMode::name))
        .try_map(|name| name.parse())
}

/// Errors: no name of a network; names devices, which the system or the provider chooses.
fn network(text: &str) -> Result<String, String> {
    if text == IN_SWITCH {
        return Ok(text.to_owned());
    }
    let fabric: Fabric = text.parse().map_err(|error: rdmc::Error| error.to_string())?;
    match fabric.name() {
        name if name == text => Ok(name),
        name => Err(format!("a network without devices: {name}")),
    }
}
