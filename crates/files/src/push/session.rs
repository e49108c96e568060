//! The public interface of a push.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use rdmc::{Algorithm, Fabric};

use super::{
    effects::Effects,
    host::Host,
    inbox::PushHandle,
    io::Io,
    prepared::Prepared,
    run::Run,
    settings::{HostReport, HostState, PushError, PushEvent, PushReport, PushSettings},
};
use crate::{Source, messages::PATTERNS_MAX};

/// A push that is ready to run and listens for receivers.
pub struct Push {
    prepared: Prepared,
}

impl Push {
    /// Starts to listen for receivers.
    ///
    /// Errors: a setting is out of range; too few file descriptors for this many hosts; the system refuses.
    pub fn open(source: Source, mut settings: PushSettings) -> Result<Self, PushError> {
        settings.check(source.manifest().bytes)?;
        check_patterns(&source)?;
        if source.read_by_hosts_in().is_some() {
            let others = [
                (!settings.source_hosts.is_empty(), "source hosts"),
                (settings.rate_min.is_some(), "a minimum rate"),
                (settings.algorithm == Some(Algorithm::InSwitch), "the algorithm in-switch"),
            ];
            if let Some((_, other)) = others.iter().find(|(is_set, _)| *is_set) {
                let what = format!("hosts that read the source themselves do not go with {other}");
                return Err(PushError::Setting(what));
            }
        }
        if settings.algorithm == Some(Algorithm::InSwitch) {
            // In-switch groups are part of the TCP transport.
            settings.fabric = Some(Fabric::Tcp);
        }
        let prepared = Prepared::listen(Some(Arc::new(source)), settings)?;
        Ok(Self { prepared })
    }

    /// The TCP port that receivers connect to.
    pub fn control_port(&self) -> u16 {
        self.prepared.control_port()
    }

    /// Where receivers that join connect, if they are admitted.
    pub fn admission_address(&self) -> Option<SocketAddr> {
        self.prepared.admission.as_ref().map(|acceptor| acceptor.address)
    }

    /// A handle for other threads.
    pub fn handle(&self) -> PushHandle {
        self.prepared.handle()
    }

    /// Replicates, verifies and publishes. Blocks until every host has a copy or has failed, and all receivers have
    /// the last message. Calls `observe` on this thread.
    pub fn run(self, observe: &mut dyn FnMut(PushEvent)) -> PushReport {
        let started = Instant::now();
        let mut run = Run::new(&self.prepared, observe);
        let is_tree = self.prepared.is_tree();
        let all = [(0, self.prepared.bytes())].into_iter().collect();
        // Of a tree only what hosts lack, once that is known.
        let digest = |io: &mut Io<'_>| if is_tree { Ok(()) } else { io.digest_source(&all) };
        let error = run.replicate(digest).err();
        run.io.stop.store(true, Ordering::Relaxed);
        run.end();
        let mut hosts: Vec<HostReport> = run.core.hosts.iter().map(Host::report).collect();
        settle_shared(&mut hosts);
        let replication = hosts.iter().filter_map(|host| host.replication).max();
        let (members, offload, choice) = (run.core.members, run.io.offload, run.core.choice);
        let fell_back = run.core.fell_back.take();
        let fabric = self.prepared.context.get().map(|context| context.fabric().clone());
        let total = started.elapsed();
        let address = run.core.hosts.reached_address(|_| true).map(|ip| ip.to_canonical());
        PushReport {
            hosts,
            members,
            choice,
            fabric,
            address,
            offload,
            fell_back,
            replication,
            total,
            error,
        }
    }
}

/// Errors: more patterns than receivers accept.
fn check_patterns(source: &Source) -> Result<(), PushError> {
    let deletion = source.tree().and_then(|(offer, _)| offer.deletion);
    let patterns = deletion.map_or(0, |deletion| deletion.patterns.len());
    if patterns > PATTERNS_MAX {
        return Err(PushError::Setting(format!(
            "{patterns} patterns; a push with --delete has at most {PATTERNS_MAX}"
        )));
    }
    Ok(())
}

/// A host that leaves the copy to another has failed if that one has none, or would get none in a dry run.
pub(super) fn settle_shared(hosts: &mut [HostReport]) {
    let has_result =
        |name: &String| hosts.iter().any(|host| host.name == *name && host.state.has_result());
    let without: Vec<usize> = (0..hosts.len())
        .filter(|&host| match &hosts[host].state {
            HostState::Shares(other) => !has_result(other),
            _ => false,
        })
        .collect();
    for host in without {
        if let HostState::Shares(other) = &hosts[host].state {
            let reason = format!("it shares a file system with {other}, which has no copy");
            hosts[host].state = HostState::Failed(reason);
        }
    }
}
