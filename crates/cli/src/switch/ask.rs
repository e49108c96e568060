//! `rdmc switch show`, `groups`, `counters` and `plan`: queries to an agent.

use std::{io, net::IpAddr, str::FromStr};

use control::{Agent, ControlError, proto};
use mcrdma::{Mac, plan::Member};
use serde::Serialize;

use super::{setup, text};
use crate::{credentials::CredentialFiles, failure::Failure, json, output};

/// Options of a query.
#[derive(Debug, clap::Args)]
pub struct Asked {
    /// Agent of a switch
    #[arg(value_name = "HOST:PORT")]
    agent: String,

    #[command(flatten)]
    credentials: CredentialFiles,

    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

impl Asked {
    /// Sends a query and prints the answer.
    pub fn answer<A: Serialize>(
        &self,
        ask: impl AsyncFnOnce(Agent) -> Result<A, ControlError>,
        show: impl FnOnce(&A, &mut io::StdoutLock<'_>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let answer = self.ask(async |agent| ask(agent).await.map_err(Failure::because))?;
        write(&answer, self.json, show)
    }

    /// Runs `ask` with a connection to the agent.
    pub fn ask<A>(&self, ask: impl AsyncFnOnce(Agent) -> Result<A, Failure>) -> Result<A, Failure> {
        let certificates = setup::certificates(&self.credentials)?;
        setup::runtime()?.block_on(async {
            let agent = Agent::new(&self.agent, &certificates).map_err(Failure::because)?;
            ask(agent).await
        })
    }
}

/// Prints an answer.
pub fn write<A: Serialize>(
    answer: &A,
    json: bool,
    show: impl FnOnce(&A, &mut io::StdoutLock<'_>) -> io::Result<()>,
) -> Result<(), Failure> {
    output::print(|out| match json {
        true => json::write_pretty(out, answer),
        false => show(answer, out),
    })
}

/// Show a switch: its ports, and the agents behind them
#[derive(Debug, clap::Args)]
pub struct Show {
    #[command(flatten)]
    pub asked: Asked,
}

impl Show {
    pub fn run(&self) -> Result<(), Failure> {
        self.asked.answer(async |agent| agent.show().await, |show, out| text::show(show, out))
    }
}

/// The answer to [`Groups`].
#[derive(Serialize)]
struct GroupList {
    groups: Vec<proto::GroupReport>,
}

/// Show a switch's groups: the copies for each group, and the progress of receivers
#[derive(Debug, clap::Args)]
pub struct Groups {
    #[command(flatten)]
    pub asked: Asked,

    /// Include the counters of each group: packets of its sender and answers of each receiver
    #[arg(long)]
    counters: bool,
}

impl Groups {
    pub fn run(&self) -> Result<(), Failure> {
        self.asked.answer(
            async |agent| {
                let groups = match self.counters {
                    true => agent.counted_groups().await?,
                    false => agent.groups().await?,
                };
                Ok(GroupList { groups })
            },
            |list, out| text::groups(&list.groups, out),
        )
    }
}

/// The answer to [`Counters`].
#[derive(Serialize)]
struct CounterList {
    counters: Vec<proto::Count>,
}

/// Show a switch's counters
#[derive(Debug, clap::Args)]
pub struct Counters {
    #[command(flatten)]
    pub asked: Asked,
}

impl Counters {
    pub fn run(&self) -> Result<(), Failure> {
        self.asked.answer(
            async |agent| Ok(CounterList { counters: agent.counters().await? }),
            |list, out| text::counts(&list.counters, out),
        )
    }
}

/// The answer to [`Plan`].
#[derive(Serialize)]
struct SwitchList {
    switches: Vec<proto::PlannedSwitch>,
}

/// Show where switches would copy for a group, by their current routes; changes nothing
///
/// The agent must be that of the sender's first switch. `rdmc plan --in-switch` does the same for a described topology.
#[derive(Debug, clap::Args)]
pub struct Plan {
    #[command(flatten)]
    pub asked: Asked,

    /// The sender's address
    #[arg(long, value_name = "IP")]
    sender: IpAddr,

    /// The receivers' addresses, with Ethernet addresses if bridges have no IP address
    /// (10.0.0.2=02:00:00:00:00:02)
    #[arg(long, value_name = "IP[=MAC],...", required = true, value_delimiter = ',')]
    receivers: Vec<Receiver>,
}

/// An argument of `--receivers`.
#[derive(Clone, Copy, Debug)]
struct Receiver {
    address: IpAddr,
    mac: Option<Mac>,
}

impl FromStr for Receiver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, mac) = match text.split_once('=') {
            Some((address, mac)) => {
                (address, Some(mac.parse().map_err(|error| format!("{mac}: {error}"))?))
            }
            None => (text, None),
        };
        Ok(Self { address: address.parse().map_err(|error| format!("{address}: {error}"))?, mac })
    }
}

impl Plan {
    pub fn run(&self) -> Result<(), Failure> {
        let member = |receiver: &Receiver| Member {
            address: receiver.address,
            mac: receiver.mac,
            qpn: 0,
            psn_offset: 0,
            regions: Vec::new(),
            delegation: Vec::new(),
        };
        let members: Vec<Member> = self.receivers.iter().map(member).collect();
        self.asked.answer(
            async |agent| Ok(SwitchList { switches: agent.plan(self.sender, &members).await? }),
            |list, out| text::plan(&list.switches, out),
        )
    }
}
