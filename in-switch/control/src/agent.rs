//! Client of the agent at a switch.

use std::{net::IpAddr, time::Duration};

use mcrdma::{
    GroupKey,
    plan::{Group, Member},
};
use session::certificates::Certificates;
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming, transport::Channel};

use crate::{ControlError, ErrorKind, convert, proto, proto::switch_client::SwitchClient, tls};

/// Packets of a trace.
pub const TRACE_PACKETS_MAX: u32 = 100_000;
/// Time of a trace.
pub const TRACE_TIME_MS_MAX: u32 = 600_000;
/// Longest chain of switches of a group.
pub const HOPS_MAX: u32 = 16;
/// Deadline of calls that wait for no other switch.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Client of an agent. Clones share a connection, which is made when it is needed, and again when it has
/// broken. It belongs to the tokio runtime that it was made in.
#[derive(Clone, Debug)]
pub struct Agent {
    address: String,
    client: SwitchClient<Channel>,
}

/// A lease of a group in a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The group.
    pub key: GroupKey,
    /// The lease's holder: the sender's host, or the upstream switch.
    pub caller: String,
    /// Random number, drawn by the sender for this group.
    pub instance: u64,
}

/// State of a group, as the agent at its sender's first switch reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Why packets may not reach all members.
    pub trouble: Option<String>,
    /// Each member's progress.
    pub members: Vec<proto::MemberState>,
}

impl Agent {
    /// Client of the agent at `HOST:PORT`. Does not connect yet.
    ///
    /// Errors: that is no such address.
    ///
    /// Panics: this is no thread of a tokio runtime.
    pub fn new(address: &str, certificates: &Certificates) -> Result<Self, ControlError> {
        let client = SwitchClient::new(tls::channel(address, certificates)?);
        Ok(Self { address: address.to_owned(), client })
    }

    /// The agent's address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Installs a group in the sender's first switch and those downstream. Returns the lease's duration.
    ///
    /// Errors: it is installed nowhere then, or its lease will expire.
    pub async fn insert(
        &self,
        group: &Group,
        claim: &Claim,
        wait: Duration,
    ) -> Result<Duration, ControlError> {
        self.insert_at(group, claim, true, HOPS_MAX, wait).await
    }

    /// As [`Agent::insert`]. `is_first`: this is the sender's first switch. `hops_left`: how many switches
    /// may follow downstream.
    pub async fn insert_at(
        &self,
        group: &Group,
        claim: &Claim,
        is_first: bool,
        hops_left: u32,
        wait: Duration,
    ) -> Result<Duration, ControlError> {
        let request = proto::InsertRequest {
            group: Some(convert::group_to_proto(group)),
            caller: claim.caller.clone(),
            instance: claim.instance,
            is_first,
            hops_left,
        };
        let reply = self
            .ask(request, wait, async |mut client, request| client.insert(request).await)
            .await?;
        Ok(Duration::from_millis(reply.stale_after_ms.into()))
    }

    /// Renews the lease of a group, and asks for its state.
    ///
    /// Errors: among others [`ErrorKind::Unknown`], after which it should be inserted again.
    pub async fn keep(&self, claim: &Claim) -> Result<Kept, ControlError> {
        let request = proto::KeepRequest {
            key: Some(convert::key_to_proto(claim.key)),
            caller: claim.caller.clone(),
            instance: claim.instance,
        };
        let kept = self
            .ask(request, ANSWER_TIMEOUT, async |mut client, request| client.keep(request).await)
            .await?;
        let trouble = Some(kept.trouble).filter(|trouble| !trouble.is_empty());
        Ok(Kept { trouble, members: kept.members })
    }

    /// Members that may have failed, as long as the stream and the lease last. At the sender's first switch.
    ///
    /// Errors: among others [`ErrorKind::Unknown`], as for [`Agent::keep`].
    pub async fn watch(&self, claim: &Claim) -> Result<Streaming<proto::Suspicion>, ControlError> {
        let request = proto::KeepRequest {
            key: Some(convert::key_to_proto(claim.key)),
            caller: claim.caller.clone(),
            instance: claim.instance,
        };
        let mut client = self.client.clone();
        // A deadline of the call would end the stream.
        self.in_time(ANSWER_TIMEOUT, client.watch(request)).await
    }

    /// Removes a failed member; the group continues. Whether it was one, and not the last.
    pub async fn remove_member(&self, claim: &Claim, member: IpAddr) -> Result<bool, ControlError> {
        let request = proto::RemoveMemberRequest {
            key: Some(convert::key_to_proto(claim.key)),
            caller: claim.caller.clone(),
            instance: claim.instance,
            member: member.to_string(),
        };
        let ask =
            async |mut client: SwitchClient<Channel>, request| client.remove_member(request).await;
        Ok(self.ask(request, ANSWER_TIMEOUT, ask).await?.was_removed)
    }

    /// Removes a group from this switch and those downstream. Whether it was there.
    pub async fn remove(&self, claim: &Claim) -> Result<bool, ControlError> {
        let request = proto::RemoveRequest {
            key: Some(convert::key_to_proto(claim.key)),
            caller: claim.caller.clone(),
            instance: claim.instance,
        };
        let ask = async |mut client: SwitchClient<Channel>, request| client.remove(request).await;
        Ok(self.ask(request, ANSWER_TIMEOUT, ask).await?.was_there)
    }

    /// The switch: its ports and limits.
    pub async fn show(&self) -> Result<proto::ShowReply, ControlError> {
        let ask = async |mut client: SwitchClient<Channel>, request| client.show(request).await;
        self.ask(proto::ShowRequest {}, ANSWER_TIMEOUT, ask).await
    }

    /// Its groups.
    pub async fn groups(&self) -> Result<Vec<proto::GroupReport>, ControlError> {
        self.ask_groups(false).await
    }

    /// Its groups, with their counters.
    pub async fn counted_groups(&self) -> Result<Vec<proto::GroupReport>, ControlError> {
        self.ask_groups(true).await
    }

    async fn ask_groups(
        &self,
        with_counters: bool,
    ) -> Result<Vec<proto::GroupReport>, ControlError> {
        let ask = async |mut client: SwitchClient<Channel>, request| {
            let mut stream = client.groups(request).await?.into_inner();
            let mut all = Vec::new();
            while let Some(group) = stream.message().await? {
                all.push(group);
            }
            Ok(Response::new(all))
        };
        self.ask(proto::GroupsRequest { with_counters }, ANSWER_TIMEOUT, ask).await
    }

    /// Each packet of a group and what was decided, until this many packets or for this long; it ends when the stream is dropped.
    /// At most [`TRACE_PACKETS_MAX`] packets and [`TRACE_TIME_MS_MAX`].
    ///
    /// Errors: among others [`ErrorKind::Unknown`], and [`ErrorKind::Limit`] if another caller traces it.
    pub async fn trace(
        &self,
        key: GroupKey,
        packets: u32,
        time_ms: u32,
    ) -> Result<Streaming<proto::TraceReport>, ControlError> {
        let key = Some(convert::key_to_proto(key));
        let mut client = self.client.clone();
        // A deadline of the call would end the stream.
        let request = proto::TraceRequest { key, packets, time_ms };
        self.in_time(ANSWER_TIMEOUT, client.trace(request)).await
    }

    /// The next report of a trace. `None`: it has ended.
    ///
    /// Errors: the agent has ended, or its switch has failed.
    pub async fn next(
        &self,
        reports: &mut Streaming<proto::TraceReport>,
    ) -> Result<Option<proto::TraceReport>, ControlError> {
        let next = reports.message().await;
        next.map_err(|status| {
            ControlError::from_status(&format!("the agent at {}", self.address), &status)
        })
    }

    /// Its counters, by name.
    pub async fn counters(&self) -> Result<Vec<proto::Count>, ControlError> {
        let ask = async |mut client: SwitchClient<Channel>, request| client.counters(request).await;
        Ok(self.ask(proto::CountersRequest {}, ANSWER_TIMEOUT, ask).await?.counts)
    }

    /// Where a group's paths would diverge; of members only addresses are used. This switch is the first of
    /// the answer.
    pub async fn plan(
        &self,
        sender: IpAddr,
        members: &[Member],
    ) -> Result<Vec<proto::PlannedSwitch>, ControlError> {
        self.plan_at(sender, members, true, HOPS_MAX).await
    }

    /// As [`Agent::plan`], at any switch: see [`Agent::insert_at`].
    pub async fn plan_at(
        &self,
        sender: IpAddr,
        members: &[Member],
        is_first: bool,
        hops_left: u32,
    ) -> Result<Vec<proto::PlannedSwitch>, ControlError> {
        let members = members.iter().map(convert::member_to_proto).collect();
        let request =
            proto::PlanRequest { sender: sender.to_string(), members, is_first, hops_left };
        let ask = async |mut client: SwitchClient<Channel>, request| client.plan(request).await;
        Ok(self.ask(request, ANSWER_TIMEOUT, ask).await?.switches)
    }

    /// Calls with a deadline at both ends.
    async fn ask<Q, A>(
        &self,
        request: Q,
        wait: Duration,
        call: impl AsyncFnOnce(SwitchClient<Channel>, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, ControlError> {
        let mut request = Request::new(request);
        request.set_timeout(wait);
        self.in_time(wait, call(self.client.clone(), request)).await
    }

    async fn in_time<A>(
        &self,
        wait: Duration,
        call: impl Future<Output = Result<Response<A>, Status>>,
    ) -> Result<A, ControlError> {
        match timeout(wait, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => {
                Err(ControlError::from_status(&format!("the agent at {}", self.address), &status))
            }
            Err(_) => {
                let message = format!(
                    "the agent at {} has not answered within {} s",
                    self.address,
                    wait.as_secs()
                );
                Err(ControlError::new(ErrorKind::Late, message))
            }
        }
    }
}
