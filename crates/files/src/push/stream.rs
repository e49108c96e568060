//! Replicates a stream whose length is known at its end: what a reader gives goes to all hosts as messages of groups.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use rdmc::Fabric;

use super::{
    host::{Host, Step},
    inbox::PushHandle,
    prepared::Prepared,
    run::Run,
    session::settle_shared,
    settings::{HostReport, HostState, PushError, PushEvent, PushSettings},
    stream_settings::StreamSettings,
    stream_source::StreamSource,
};

/// How a stream ended.
#[derive(Debug)]
pub struct StreamReport {
    /// In the order of [`PushSettings::hosts`].
    pub hosts: Vec<StreamHost>,
    /// How much was read.
    pub bytes: u64,
    /// How much is at every host that was left when it ended, verified: the good prefix. 0 if none was left.
    pub prefix_bytes: u64,
    /// The BLAKE3 digest of everything, if the reader has ended.
    pub digest: Option<blake3::Hash>,
    /// The network that was used; `None` if none was chosen.
    pub fabric: Option<Fabric>,
    /// Including start and verification.
    pub total: Duration,
    /// Why it ended early, if one reason covers all hosts.
    pub error: Option<PushError>,
}

/// How a stream ended for one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamHost {
    /// Its name.
    pub name: String,
    /// [`HostState::Published`] (written out, and verified), [`HostState::Shares`], [`HostState::Failed`] or [`HostState::Unknown`].
    pub state: HostState,
    /// How much it has written out, as far as it has said.
    pub bytes: u64,
    /// The last line of output of its command, if that has succeeded.
    pub said: Option<String>,
}

impl StreamReport {
    /// How many hosts have everything, verified.
    pub fn published(&self) -> usize {
        self.hosts.iter().filter(|host| host.state.has_copy()).count()
    }
}

/// A stream that is ready to run and listens for receivers.
pub struct Stream {
    push: Prepared,
}

impl Stream {
    /// Starts to listen for receivers.
    ///
    /// Errors: a setting is out of range, or has no meaning for a stream; the system refuses.
    pub fn open(settings: PushSettings, stream: StreamSettings) -> Result<Self, PushError> {
        let refuse = |what: &str| Err(PushError::Setting(what.to_owned()));
        if settings.admission.is_some() || settings.retries > 0 {
            return refuse("hosts cannot join or rejoin a stream: earlier bytes are not kept");
        }
        if settings.dry_run {
            return refuse("a stream has no dry run: its contents are not known in advance");
        }
        if settings.algorithm == Some(rdmc::Algorithm::InSwitch) {
            return refuse("a stream cannot use switches, which in-switch needs");
        }
        settings.check(0)?;
        Ok(Self { push: Prepared::listen(None, settings)?.for_stream(stream) })
    }

    /// The TCP port that receivers connect to.
    pub fn control_port(&self) -> u16 {
        self.push.control_port()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> PushHandle {
        self.push.handle()
    }

    /// Replicates what `input` gives until it ends. Blocks until every host has everything or has failed, and all
    /// receivers have the last message. Reads on a thread of its own, which may outlive this call by one read. Calls
    /// `observe` on this thread.
    pub fn run(
        self,
        input: impl Read + Send + 'static,
        observe: &mut dyn FnMut(PushEvent),
    ) -> StreamReport {
        let started = Instant::now();
        let mut run = Run::new(&self.push, observe);
        let error = run.replicate(|io| io.start_reader(input)).err();
        run.end();
        let is_left = run.core.hosts.iter().any(|host| host.step == Step::Published);
        let none_left = || (!is_left).then(|| PushError::Group("no host is left".into()));
        let error = error.or_else(none_left);
        let mut reports: Vec<HostReport> = run.core.hosts.iter().map(Host::report).collect();
        settle_shared(&mut reports);
        let of_host = |(report, host): (HostReport, &Host)| {
            let bytes = host.has.prefix();
            StreamHost { name: report.name, state: report.state, bytes, said: host.said.clone() }
        };
        let hosts = reports.into_iter().zip(run.core.hosts.iter()).map(of_host).collect();
        let stream = run.core.stream();
        let bytes = stream.map_or(0, StreamSource::end);
        let prefix_bytes = stream.map_or(0, |stream| stream.prefix(&run.core.hosts));
        let digest = stream.and_then(StreamSource::digest);
        StreamReport {
            hosts,
            bytes,
            prefix_bytes,
            digest,
            fabric: self.push.context.get().map(|context| context.fabric().clone()),
            total: started.elapsed(),
            error,
        }
    }
}
