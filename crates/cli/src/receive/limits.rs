//! Options that limit what roots may request of a receiver.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use files::receiver::{IN_SWITCH, Listings, RootLimits};
use plan::size;
use rdmc::{CompletionMode, Fabric, Protection};
use session::Peers;

use crate::{failure::Failure, help::LISTENING, hosting::protections};

/// Limits of what roots may request of a receiver that they have not started.
#[derive(Debug, clap::Args)]
pub struct LimitOptions {
    /// Required protection of blocks: encrypt or none
    ///
    /// encrypt implies the fabric tcp. [default: encrypt; none if all members are on this machine]
    #[arg(long, value_name = "MINIMUM", value_parser = protections(), hide_possible_values = true,
          conflicts_with = "session", help_heading = LISTENING)]
    protect: Option<Protection>,

    /// Networks that blocks may use, such as tcp,verbs or tcp,in-switch
    ///
    /// Blocks over tcp can be encrypted; libfabric providers (verbs, efa, cxi and others) and switches that copy
    /// (in-switch) cannot. [default: tcp; with --protect none: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = network, conflicts_with = "session",
          help_heading = LISTENING)]
    fabric: Vec<String>,

    /// Networks of the hosts that this receiver may connect to or accept, such as 10.1.0.0/16,fd00::/8
    ///
    /// [default: all hosts that roots name]
    #[arg(long, value_name = "NETWORKS", conflicts_with = "session", help_heading = LISTENING)]
    peers: Option<Peers>,

    /// How this receiver waits for completions: event, hybrid or polling
    ///
    /// polling occupies a processor core during a push. Replaces the --completion of roots.
    #[arg(long, value_name = "MODE", value_parser = completion_modes(), hide_possible_values = true,
          default_value = "event", conflicts_with = "session", help_heading = LISTENING)]
    completion: CompletionMode,

    /// Maximum total length of the file lists in memory, for all pushes together
    ///
    /// Counts the encoded lists, about 30 bytes per file; a list takes several times as much during its push. A push that needs
    /// more is refused. [default: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, conflicts_with = "session", help_heading = LISTENING)]
    max_lists: Option<u64>,
}

impl LimitOptions {
    /// The memory for the file lists of all pushes.
    pub fn listings(&self) -> Listings {
        Listings::new(self.max_lists.unwrap_or(Listings::BYTES_MAX))
    }

    /// The limits for roots. Errors: options that exclude each other.
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

/// Parses the name of a network. Errors: unknown names; names with devices, which the system or the provider chooses.
fn network(text: &str) -> Result<String, String> {
    if text == IN_SWITCH {
        return Ok(text.to_owned());
    }
    let fabric: Fabric = text.parse().map_err(|error: rdmc::Error| error.to_string())?;
    match fabric.name() {
        name if name == text => Ok(name),
        name => Err(format!("use the network's name without devices: {name}")),
    }
}
