//! At a sender: members that the agent of its first switch suspects, and whether their hosts still answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind::{ConnectionRefused, ConnectionReset},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use tokio::{
    net::{TcpStream, lookup_host},
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

use crate::{Agent, Claim, proto::Suspicion, suspicions::Suspicions};
use mcrdma::GroupKey;

/// How the host of a suspected member is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probing {
    /// Attempts to connect to its daemon. The kernel would repeat a lost one only after a second.
    pub attempts: u32,
    /// Time between them.
    pub interval: Duration,
    /// It has failed if none is answered within this time after the first. A host without a daemon refuses,
    /// which is an answer.
    pub timeout: Duration,
}

impl Default for Probing {
    fn default() -> Self {
        let (interval, timeout) = (Duration::from_millis(100), Duration::from_millis(300));
        Self { attempts: 3, interval, timeout }
    }
}

impl Probing {
    /// With as many attempts and proportional intervals.
    #[must_use]
    pub fn within(timeout: Duration) -> Self {
        let attempts = Self::default().attempts;
        Self { attempts, interval: timeout / attempts, timeout }
    }

    /// Whether any of these addresses answers. A slow host whose kernel works does.
    async fn is_answered(self, host: &[SocketAddr]) -> bool {
        let mut asked = JoinSet::new();
        for attempt in 0..self.attempts {
            for &address in host {
                asked.spawn(async move {
                    sleep(self.interval * attempt).await;
                    match TcpStream::connect(address).await {
                        Ok(_) => true,
                        Err(error) => matches!(error.kind(), ConnectionRefused | ConnectionReset),
                    }
                });
            }
        }
        let any = async {
            while let Some(answer) = asked.join_next().await {
                if answer.unwrap_or(false) {
                    return true;
                }
            }
            false
        };
        timeout(self.timeout, any).await.unwrap_or(false)
    }
}

/// Watches a group's members until it is dropped.
pub struct Watcher {
    /// Members that have failed, and why; each once.
    pub failures: mpsc::UnboundedReceiver<(IpAddr, String)>,
    task: JoinHandle<()>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Watching {
    suspicions: Suspicions,
    key: GroupKey,
    /// By member: addresses of its host's daemon.
    hosts: BTreeMap<IpAddr, Vec<SocketAddr>>,
    probing: Probing,
    /// Members that have failed, or are being asked.
    judged: BTreeSet<IpAddr>,
    asked: JoinSet<(IpAddr, Option<String>)>,
    failed: mpsc::UnboundedSender<(IpAddr, String)>,
}

impl Watcher {
    /// Starts watching a group that has been inserted. `hosts`: by member, HOST:PORT of its host's daemon.
    ///
    /// Panics: this is no thread of a tokio runtime.
    pub fn start(
        agent: Agent,
        claim: Claim,
        hosts: BTreeMap<IpAddr, String>,
        probing: Probing,
    ) -> Self {
        let (failed, failures) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut resolved = BTreeMap::new();
            for (member, host) in hosts {
                // Without an address it cannot be asked; then only its connection tells.
                let found = lookup_host(&host).await.map_or_else(|_| Vec::new(), Iterator::collect);
                resolved.insert(member, found);
            }
            let (key, suspicions) = (claim.key, Suspicions::start(agent, claim));
            let (judged, asked) = (BTreeSet::new(), JoinSet::new());
            let watching =
                Watching { suspicions, key, hosts: resolved, probing, judged, asked, failed };
            watching.run().await;
        });
        Self { failures, task }
    }
}

impl Watching {
    async fn run(mut self) {
        loop {
            tokio::select! {
                Some(suspicion) = self.suspicions.reports.recv() => self.take(suspicion),
                Some(answer) = self.asked.join_next() => {
                    // A task fails only if the runtime shuts down.
                    if let Ok((member, failure)) = answer {
                        self.judge(member, failure);
                    }
                }
                else => return,
            }
        }
    }

    fn take(&mut self, suspicion: Suspicion) {
        let Ok(member) = suspicion.member.parse::<IpAddr>() else { return };
        let Some(host) = self.hosts.get(&member).filter(|_| !self.judged.contains(&member)) else {
            return;
        };
        self.judged.insert(member);
        if suspicion.is_cut_off {
            return self.judge(member, Some(suspicion.reason));
        }
        let (host, probing) = (host.clone(), self.probing);
        self.asked.spawn(async move {
            if host.is_empty() || probing.is_answered(&host).await {
                return (member, None);
            }
            let (reason, ms) = (suspicion.reason, probing.timeout.as_millis());
            let why = format!("{reason}, and its host ({}) has not answered for {ms} ms", host[0]);
            (member, Some(why))
        });
    }

    fn judge(&mut self, member: IpAddr, failure: Option<String>) {
        match failure {
            // The receiver has gone if the group has ended.
            Some(why) => _ = self.failed.send((member, why)),
            None => {
                tracing::debug!(group = %self.key, %member, "is slow; its host answers");
                self.judged.remove(&member);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn answered(address: SocketAddr, probing: Probing) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(probing.is_answered(&[address]))
    }

    #[test]
    fn a_host_answers_with_and_without_a_daemon() {
        let long = Probing::within(Duration::from_secs(60));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(answered(address, long));
        drop(listener);
        assert!(answered(address, long), "it refuses");
    }

    /// Connections beyond its backlog stay without an answer.
    #[test]
    fn a_host_without_an_answer_is_given_up() {
        let listener = socket2::Socket::new(
            socket2::Domain::IPV4,
            socket2::Type::STREAM,
            Some(socket2::Protocol::TCP),
        );
        let listener = listener.unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let timeout = Duration::from_millis(50);
        let _waits = std::net::TcpStream::connect(address).unwrap();
        assert!(!answered(address, Probing::within(timeout)));
    }
}
