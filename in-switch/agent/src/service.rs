//! The gRPC service of an agent.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use data_plane::MemberState;
use mcrdma::{
    AnswerCounters, Counter, GROUPS_MAX, GroupCounters, GroupKey, MEMBERS_MAX, Port, REGIONS_MAX,
    plan::Member,
};
use routes::Station;
use tokio::sync::{broadcast::error::RecvError, mpsc};
use tonic::{
    Request, Response, Status,
    codegen::{
        BoxStream,
        tokio_stream::{self, wrappers::ReceiverStream},
    },
};

use crate::{
    ports::Ports,
    registry::Registry,
    split::{Copied, Split},
    state::State,
    trace::Trace,
};
use control::{
    Claim, ControlError, ErrorKind, HOPS_MAX, InProgress, TRACE_PACKETS_MAX, TRACE_TIME_MS_MAX,
    convert::{self, address, key, key_to_proto},
    proto::{self, switch_server::Switch},
    tls::Trusted,
};

/// Unread reports of a stream.
const SUSPICIONS_MAX: usize = 64;
/// Unread reports of a trace.
const TRACE_REPORTS_MAX: usize = 4;
/// Longest name of a caller.
const CALLER_BYTES_MAX: usize = 255;

/// The service.
pub(crate) struct Service {
    pub(crate) registry: Arc<Registry>,
    pub(crate) ports: Ports,
    pub(crate) plane: &'static str,
    /// Callers that are authorized for groups of any sender.
    pub(crate) trusted: Trusted,
    pub(crate) started: Instant,
}

impl Service {
    /// Checks that the caller is authorized for this sender.
    fn check_caller<T>(&self, request: &Request<T>, sender: IpAddr) -> Result<(), ControlError> {
        if self.trusted.authorizes(request, sender) {
            return Ok(());
        }
        let why = format!(
            "the caller's certificate is not for the sender's address {sender}, nor for a name that this agent trusts (--trust)"
        );
        Err(self.registry.refused(ErrorKind::Denied, why))
    }

    fn claim<T>(
        &self,
        request: &Request<T>,
        named: Option<&proto::Key>,
        caller: &str,
        instance: u64,
    ) -> Result<Claim, ControlError> {
        let key = key(named)?;
        self.check_caller(request, key.sender)?;
        if caller.is_empty() || caller.len() > CALLER_BYTES_MAX {
            let why = format!("a caller has a name of 1 to {CALLER_BYTES_MAX} bytes");
            return Err(self.registry.refused(ErrorKind::Invalid, why));
        }
        Ok(Claim { key, caller: caller.to_owned(), instance })
    }

    fn hops_left(&self, hops_left: u32) -> Result<u32, ControlError> {
        if hops_left <= HOPS_MAX {
            return Ok(hops_left);
        }
        let why = format!("{hops_left} switches may not follow; at most {HOPS_MAX}");
        Err(self.registry.refused(ErrorKind::Invalid, why))
    }

    fn milliseconds_since(&self, start: Instant) -> u64 {
        self.registry.clock.since(start).as_millis() as u64
    }

    fn copy(&self, copied: &Copied, member: impl Fn(usize) -> Option<IpAddr>) -> proto::Copy {
        proto::Copy {
            ports: copied.hops.iter().map(|hop| self.ports.name(hop.port)).collect(),
            members: copied
                .members
                .iter()
                .filter_map(|&m| member(m))
                .map(|a| a.to_string())
                .collect(),
            is_rewritten: copied.members.len() == 1,
            agents: copied.agents.iter().cloned().collect(),
        }
    }

    fn report(&self, key: GroupKey, state: &State) -> Option<proto::GroupReport> {
        let group = state.group.as_ref()?;
        let member = |index: usize| group.members.get(index).map(|member| member.address);
        let renewed = state.leases.values().map(|lease| lease.renewed).max();
        let members = self.registry.plane().members(key);
        Some(proto::GroupReport {
            key: Some(key_to_proto(key)),
            sender_qpn: group.sender_qpn,
            is_first: state.is_first,
            copies: state.split.copies.iter().map(|copied| self.copy(copied, member)).collect(),
            // Without removed members.
            members: members
                .iter()
                .filter(|state| group.members.iter().any(|member| member.address == state.address))
                .map(member_state)
                .collect(),
            trouble: state.trouble(),
            callers: state.leases.keys().cloned().collect(),
            since_renewal_ms: renewed.map_or(0, |renewed| self.milliseconds_since(renewed)),
            virtual_address: group.virtual_address.to_string(),
            counters: None,
        })
    }

    /// Report of a group that a former agent has left, and that no caller has inserted since.
    fn orphan(&self, group: GroupKey, since: Instant) -> Option<proto::GroupReport> {
        let plane = self.registry.plane();
        let (replication, merging) = plane.get(group)?;
        let copy = |branch: &mcrdma::Branch| proto::Copy {
            ports: vec![self.ports.name(branch.port)],
            members: vec![branch.target.to_string()],
            is_rewritten: branch.rewriting.is_some(),
            agents: Vec::new(),
        };
        Some(proto::GroupReport {
            key: Some(key_to_proto(group)),
            sender_qpn: replication.sender_qpn,
            is_first: merging.is_some(),
            copies: replication.branches.iter().map(copy).collect(),
            members: plane.members(group).iter().map(member_state).collect(),
            trouble: "no caller has inserted it since this agent started".to_owned(),
            callers: Vec::new(),
            since_renewal_ms: self.milliseconds_since(since),
            virtual_address: merging
                .map(|merging| merging.virtual_address.to_string())
                .unwrap_or_default(),
            counters: None,
        })
    }

    /// This switch's part of a plan.
    fn planned(&self, split: &Split, members: &[Member], is_first: bool) -> proto::PlannedSwitch {
        let member = |index: usize| members.get(index).map(|member| member.address);
        let copies = split.copies.iter().map(|copied| self.copy(copied, member));
        let copies = if split.needs_entry(is_first) { copies.collect() } else { Vec::new() };
        proto::PlannedSwitch { name: self.registry.paths.name.clone(), copies }
    }
}

/// Runs a change to completion even if its call is cancelled, so that it is never left half done.
async fn uncancelled<T: Send + 'static>(
    change: impl Future<Output = T> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::spawn(change).await;
    done.map_err(|error| Status::internal(format!("the change has failed: {error}")))
}

#[tonic::async_trait]
impl Switch for Service {
    async fn insert(
        &self,
        request: Request<proto::InsertRequest>,
    ) -> Result<Response<proto::InsertReply>, Status> {
        let asked = request.get_ref();
        let named = asked.group.as_ref().and_then(|group| group.key.as_ref());
        let claim = self.claim(&request, named, &asked.caller, asked.instance)?;
        let group = convert::group(asked.group.as_ref(), asked.instance)?;
        let hops_left = self.hops_left(asked.hops_left)?;
        if asked.is_first {
            self.registry.paths.check_first(group.key.sender, group.sender_mac).await?;
        }
        let (registry, is_first) = (Arc::clone(&self.registry), asked.is_first);
        let insert = async move { registry.insert(group, &claim, is_first, hops_left).await };
        uncancelled(insert).await??;
        let stale_after_ms = self.registry.stale_after.as_millis() as u32;
        Ok(Response::new(proto::InsertReply { stale_after_ms }))
    }

    async fn keep(
        &self,
        request: Request<proto::KeepRequest>,
    ) -> Result<Response<proto::KeepReply>, Status> {
        let asked = request.get_ref();
        let claim = self.claim(&request, asked.key.as_ref(), &asked.caller, asked.instance)?;
        let (trouble, members) = self.registry.keep(&claim).await?;
        let members = members.iter().map(member_state).collect();
        Ok(Response::new(proto::KeepReply { trouble, members }))
    }

    type WatchStream = BoxStream<proto::Suspicion>;

    async fn watch(
        &self,
        request: Request<proto::KeepRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let in_progress = InProgress::of(&request);
        let asked = request.get_ref();
        let claim = self.claim(&request, asked.key.as_ref(), &asked.caller, asked.instance)?;
        // Before the check, so that a group without reports is one whose members have not failed since.
        let mut reports = self.registry.reports.subscribe();
        self.registry.check_lease(&claim).await?;
        let (events_tx, events) = mpsc::channel(SUSPICIONS_MAX);
        tokio::spawn(async move {
            let _in_progress = in_progress;
            loop {
                let next = tokio::select! {
                    next = reports.recv() => next,
                    () = events_tx.closed() => return,
                };
                match next {
                    // A full queue: it is repeated.
                    Ok(suspected) if suspected.key == claim.key => {
                        let _ = events_tx.try_send(Ok(suspected.suspicion));
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(events))))
    }

    async fn remove_member(
        &self,
        request: Request<proto::RemoveMemberRequest>,
    ) -> Result<Response<proto::RemoveMemberReply>, Status> {
        let asked = request.get_ref();
        let claim = self.claim(&request, asked.key.as_ref(), &asked.caller, asked.instance)?;
        let (registry, member) = (Arc::clone(&self.registry), address(&asked.member)?);
        let remove = async move { registry.remove_member(&claim, member).await };
        let was_removed = uncancelled(remove).await??;
        Ok(Response::new(proto::RemoveMemberReply { was_removed }))
    }

    async fn remove(
        &self,
        request: Request<proto::RemoveRequest>,
    ) -> Result<Response<proto::RemoveReply>, Status> {
        let asked = request.get_ref();
        let claim = self.claim(&request, asked.key.as_ref(), &asked.caller, asked.instance)?;
        let registry = Arc::clone(&self.registry);
        let was_there = uncancelled(async move { registry.remove(&claim).await }).await?;
        Ok(Response::new(proto::RemoveReply { was_there }))
    }

    async fn show(
        &self,
        _: Request<proto::ShowRequest>,
    ) -> Result<Response<proto::ShowReply>, Status> {
        let port = |(name, number): &(String, Port)| proto::Port {
            name: name.clone(),
            number: *number,
            agents: self.registry.paths.downstream.at_port(*number),
        };
        let groups = self.registry.plane().count();
        Ok(Response::new(proto::ShowReply {
            name: self.registry.paths.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plane: self.plane.to_owned(),
            ports: self.ports.iter().map(port).collect(),
            groups: groups as u32,
            groups_max: GROUPS_MAX as u32,
            members_max: MEMBERS_MAX as u32,
            regions_max: REGIONS_MAX as u32,
            stale_after_ms: self.registry.stale_after.as_millis() as u32,
            uptime_ms: self.started.elapsed().as_millis() as u64,
            agents_by_prefix: self.registry.paths.downstream.prefixes(),
        }))
    }

    type GroupsStream = BoxStream<proto::GroupReport>;

    async fn groups(
        &self,
        request: Request<proto::GroupsRequest>,
    ) -> Result<Response<Self::GroupsStream>, Status> {
        let mut reports = Vec::new();
        for (group, entry) in self.registry.all() {
            // A change may take as long as its call's deadline.
            let report = match entry.try_lock() {
                Ok(state) => self.report(group, &state),
                Err(_) => Some(proto::GroupReport {
                    key: Some(key_to_proto(group)),
                    trouble: "it is being changed".to_owned(),
                    ..Default::default()
                }),
            };
            reports.extend(report.map(|report| (group, report)));
        }
        for (group, since) in self.registry.orphans() {
            reports.extend(self.orphan(group, since).map(|report| (group, report)));
        }
        if request.get_ref().with_counters {
            for (group, report) in &mut reports {
                let counted = self.registry.plane().group_counters(*group);
                let counted =
                    counted.map_err(|error| self.registry.refused(ErrorKind::Failed, error))?;
                report.counters = counted.as_ref().map(group_counters);
            }
        }
        reports.sort_by_key(|(group, _)| *group);
        let in_progress = InProgress::of(&request);
        let reports = reports.into_iter().map(move |(_, report)| {
            let _until_all_are_read = &in_progress;
            Ok(report)
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(reports))))
    }

    type TraceStream = BoxStream<proto::TraceReport>;

    async fn trace(
        &self,
        request: Request<proto::TraceRequest>,
    ) -> Result<Response<Self::TraceStream>, Status> {
        let asked = request.get_ref();
        let key = key(asked.key.as_ref())?;
        for (what, number, most) in [
            ("packets", asked.packets, TRACE_PACKETS_MAX),
            ("milliseconds", asked.time_ms, TRACE_TIME_MS_MAX),
        ] {
            if !(1..=most).contains(&number) {
                let why = format!("a trace of {number} {what} is not possible: 1 to {most}");
                return Err(self.registry.refused(ErrorKind::Invalid, why).into());
            }
        }
        let trace = Trace::begin(Arc::clone(&self.registry), self.ports.clone(), key)?;
        let (reports_tx, reports) = mpsc::channel(TRACE_REPORTS_MAX);
        let time = Duration::from_millis(asked.time_ms.into());
        let (packets, in_progress) = (asked.packets, InProgress::of(&request));
        tokio::spawn(async move {
            trace.run(packets, time, reports_tx).await;
            drop(in_progress);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(reports))))
    }

    async fn counters(
        &self,
        _: Request<proto::CountersRequest>,
    ) -> Result<Response<proto::CountersReply>, Status> {
        let counted = self.registry.plane().counters();
        let counted = counted.map_err(|error| self.registry.refused(ErrorKind::Failed, error))?;
        Ok(Response::new(proto::CountersReply { counts: counts(counted.iter()) }))
    }

    async fn plan(
        &self,
        request: Request<proto::PlanRequest>,
    ) -> Result<Response<proto::PlanReply>, Status> {
        let asked = request.get_ref();
        let (sender, members) = (address(&asked.sender)?, convert::members(&asked.members)?);
        let hops_left = self.hops_left(asked.hops_left)?;
        if asked.is_first {
            self.registry.paths.check_first(sender, None).await?;
        }
        let stations: Vec<Station> = members
            .iter()
            .map(|member| Station { address: member.address, mac: member.mac })
            .collect();
        let split = self.registry.paths.split(&stations).await?;
        let mut switches = vec![self.planned(&split, &members, asked.is_first)];
        for (agent, places) in &split.downstream {
            let part: Vec<Member> = places.iter().map(|&place| members[place].clone()).collect();
            switches.extend(self.registry.plan_downstream(agent, sender, &part, hops_left).await?);
        }
        Ok(Response::new(proto::PlanReply { switches }))
    }
}

fn counts<'a>(counted: impl Iterator<Item = (&'a str, u64)>) -> Vec<proto::Count> {
    counted.map(|(name, count)| proto::Count { name: name.to_owned(), count }).collect()
}

fn group_counters(counted: &GroupCounters) -> proto::GroupCounters {
    let packets = Counter::OF_GROUPS.map(|of| (of.name(), counted.packets.counted(of)));
    let of_group = packets.into_iter().chain([("request_bytes", counted.request_bytes)]);
    let member = |(address, answers): &(IpAddr, AnswerCounters)| proto::MemberCounters {
        address: address.to_string(),
        counts: counts(answers.iter()),
    };
    proto::GroupCounters {
        counts: counts(of_group),
        members: counted.members.iter().map(member).collect(),
    }
}

fn member_state(state: &MemberState) -> proto::MemberState {
    proto::MemberState {
        address: state.address.to_string(),
        expected_psn: state.expected.get(),
        msn: state.msn.get(),
    }
}
