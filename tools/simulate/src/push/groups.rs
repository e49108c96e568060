//! Groups at processes: joining, and events.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use engine::{Error, Event, GroupSettings};
use files::{
    machines::{Free, ListingMember, Member, MemberEvent, Start},
    receiver::ReceiveError,
};
use rdmc::{Application, Incoming};

use super::{
    process::{Joining, Note, Process, process_at},
    world::{Due, World},
};
use crate::node::MemberEngine;

impl World<'_> {
    /// Executes everything that a process can do now without its decision thread.
    pub(super) fn look(&mut self, index: usize) {
        let mut events = Vec::new();
        loop {
            let Some(engine) = &mut self.processes[index].engine else { return };
            engine.progress(Duration::ZERO, &mut events);
            if events.is_empty() {
                break;
            }
            for event in events.drain(..) {
                self.deliver_event(index, event);
            }
        }
        let breaches = self.processes[index].watch.take_breaches();
        self.facts.violations.extend(breaches);
        self.take_news(index);
        self.plan_storing(index);
        self.settle_disk(index);
        self.plan_deadline(index);
    }

    /// Schedules the end of the read or write of a copy that is in progress.
    fn plan_storing(&mut self, index: usize) {
        let process = &self.processes[index];
        if process.is_storing() && process.stores_until_ns.is_none() {
            let until_ns = self.now_ns() + self.host_of(index).store_ns;
            self.processes[index].stores_until_ns = Some(until_ns);
            self.plan(until_ns, Due::Stored(index));
        }
    }

    pub(super) fn end_storing(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.stores_until_ns = None;
        process.device.iter().for_each(|device| device.finish_one());
        self.look(index);
    }

    /// Gives messages of a receiver that wait for their place in its copy memory, if that is free now.
    pub(super) fn accept_deferred(&mut self, index: usize) {
        let now = self.network.now();
        let Process { engine: Some(engine), receiver: Some(receiver), standing, .. } =
            &mut self.processes[index]
        else {
            return;
        };
        let Some(copy) = receiver.copy.as_ref().filter(|_| receiver.session.is_some()) else {
            return;
        };
        match copy.deferred.take_free(now, |group| standing.contains(&group)) {
            Ok(free) => {
                for Free { group, message, region } in free {
                    if let Err(error) = engine.accept(group, message, region) {
                        // One that has ended reports that itself.
                        let _ = engine.abort(group, &error.to_string());
                    }
                }
                self.look(index);
            }
            Err(reason) => self.end_session(index, Some(&ReceiveError::Storage(reason))),
        }
    }

    fn plan_deadline(&mut self, index: usize) {
        let now_ns = self.now_ns();
        let process = &mut self.processes[index];
        let Some(deadline) = process.engine.as_ref().and_then(MemberEngine::next_deadline) else {
            return;
        };
        let at_ns = (deadline.as_nanos() as u64).max(now_ns);
        if process.deadline_ns.is_none_or(|planned| at_ns < planned) {
            process.deadline_ns = Some(at_ns);
            self.plan(at_ns, Due::Deadline(index));
        }
    }

    /// Delivers an event as the library's callback threads do.
    fn deliver_event(&mut self, index: usize, event: Event) {
        let number = match &event {
            Event::Failed { failure, .. } => failure.group,
            Event::Incoming { group, .. }
            | Event::Block { group, .. }
            | Event::Received { group, .. }
            | Event::Complete { group, .. }
            | Event::Closed { group } => *group,
            _ => 0,
        };
        if self.scenario.serves {
            return self.link_event(index, number, event);
        }
        let process = &mut self.processes[index];
        let Some(receiver) = &mut process.receiver else {
            match event {
                Event::Failed { failure, .. } => {
                    self.note(index, Note::Ended(number, Err(failure)));
                }
                Event::Closed { .. } => self.note(index, Note::Ended(number, Ok(()))),
                _ => {}
            }
            return;
        };
        if receiver.stream.groups.contains_key(&number) {
            return self.stream_event(index, number, event);
        }
        let (Some(member), Some(engine)) = (receiver.members.get_mut(&number), &mut process.engine)
        else {
            return;
        };
        match event {
            Event::Incoming { message, bytes, .. } => {
                let outcome = match member.incoming(message, bytes) {
                    Incoming::Into(region) => {
                        engine.accept(number, message, region).map_err(|error| match error {
                            Error::Failed(_) | Error::Closed(_) | Error::NoSuchGroup(_) => None,
                            error => Some(error.to_string()),
                        })
                    }
                    Incoming::Later => Ok(()),
                    Incoming::Refuse(reason) => Err(Some(reason)),
                };
                if let Err(Some(reason)) = outcome {
                    let _ = engine.abort(number, &reason);
                }
            }
            Event::Block { message, offset, bytes, .. } => member.block(message, offset, bytes),
            Event::Received { message, .. } => member.received(message),
            Event::Complete { message, region, .. } => member.complete(message, region),
            Event::Failed { failure, regions } => {
                member.failed(&failure, regions);
                receiver.members.remove(&number);
            }
            Event::Closed { .. } => {
                member.closed();
                receiver.members.remove(&number);
            }
            _ => {}
        }
    }

    /// Passes on what callbacks have reported.
    pub(super) fn take_news(&mut self, index: usize) {
        let Some(receiver) = &mut self.processes[index].receiver else { return };
        let news: Vec<MemberEvent> = receiver.news.receiver.try_iter().collect();
        let mut again = 0;
        if let Some(in_place) = &receiver.in_place {
            for (start, length) in in_place.try_iter() {
                again += length - receiver.known.add((start, start + length));
            }
        }
        let host = receiver.host;
        self.facts.hosts[host].bytes_again += again;
        news.into_iter().for_each(|news| self.note(index, Note::News(news)));
        self.start_hashing(index);
    }

    /// Schedules the end of hashing once all bytes are in place.
    pub(super) fn start_hashing(&mut self, index: usize) {
        let bytes = self.scenario.bytes;
        let Some(receiver) = &mut self.processes[index].receiver else { return };
        let is_whole = receiver.copy.is_some() && receiver.known.covers((0, bytes));
        if is_whole && !std::mem::replace(&mut receiver.is_hashing, true) {
            let at_ns = self.now_ns() + self.host_of(index).verify_ns;
            let now_ns = self.now_ns();
            if let Some(receiver) = &mut self.processes[index].receiver {
                receiver.hashes_since_ns = Some(now_ns);
            }
            self.plan(at_ns, Due::Hashed(index));
        }
    }

    /// Adds a note to the inbox of the decision thread.
    pub(super) fn note(&mut self, index: usize, note: Note) {
        self.remark(|| format!("process {index} notes {note:?}"));
        self.processes[index].inbox.push_back(note);
        self.plan_handling(index);
    }

    pub(super) fn plan_handling(&mut self, index: usize) {
        let process = &self.processes[index];
        if process.looks_ns.is_none() && !process.inbox.is_empty() {
            let late_ns = self.dice.between(0, self.scenario.look_ns_max);
            let at_ns = (self.now_ns() + late_ns).max(self.processes[index].busy_until_ns);
            self.processes[index].looks_ns = Some(at_ns);
            self.plan(at_ns, Due::Handle(index));
        }
    }

    /// Starts to connect to the neighbours in a group.
    pub(super) fn begin_join(&mut self, index: usize, start: Start) -> Result<(), String> {
        let settings = match self.scenario.stream {
            Some(_) => start.stream_settings(),
            None if self.scenario.serves => start.link_settings(),
            None => start.group.settings(),
        };
        let settings = settings.map_err(|error| error.to_string())?;
        let mut settings = GroupSettings::try_from(&settings).map_err(|error| error.to_string())?;
        let is_file = self.scenario.stream.is_none() && !self.scenario.serves;
        settings.report_blocks = self.processes[index].receiver.is_some() && is_file;
        let group = start.group.number;
        let joining = Joining { start, settings, links: BTreeMap::new(), is_complete: false };
        self.processes[index].joinings.insert(group, joining);
        let until_ns = self.now_ns() + self.join_timeout(index).as_nanos() as u64;
        self.plan(until_ns, Due::JoinTimeout(index, group));
        self.meet();
        Ok(())
    }

    /// Connects neighbours that are both joining the same group and can reach each other.
    pub(super) fn meet(&mut self) {
        let mut complete = Vec::new();
        for one in 0..self.processes.len() {
            let groups: Vec<u64> = self.processes[one].joinings.keys().copied().collect();
            for group in groups {
                self.meet_neighbours(one, group);
                let Some(joining) = self.processes[one].joinings.get_mut(&group) else { continue };
                let lacks = joining.links.len() < joining.settings.neighbours().len();
                if !lacks && !std::mem::replace(&mut joining.is_complete, true) {
                    complete.push((one, group));
                }
            }
        }
        for (one, group) in complete {
            let late_ns = self.dice.between(0, self.scenario.network.latency_ns * 2);
            self.plan(self.now_ns() + late_ns, Due::Create(one, group));
        }
    }

    fn meet_neighbours(&mut self, one: usize, group: u64) {
        let joining = &self.processes[one].joinings[&group];
        let rank = joining.settings.rank;
        let wanted: Vec<(u32, usize)> = joining
            .settings
            .neighbours()
            .into_iter()
            .filter(|other| !joining.links.contains_key(other))
            .map(|other| (other, process_at(joining.start.group.addresses[other as usize])))
            .collect();
        for (other_rank, other) in wanted {
            let can_connect = self.can_talk(one, other) && !self.has_firewall(one, other);
            if self.processes[other].joinings.contains_key(&group) && can_connect {
                let link = self.scenario.network.link(0, 0);
                let (near, far) = self.network.connect_with(one, other, link);
                let links = |process: &mut Process, rank, link| {
                    process.joinings.get_mut(&group).map(|it| it.links.insert(rank, link))
                };
                links(&mut self.processes[one], other_rank, near);
                links(&mut self.processes[other], rank, far);
            }
        }
    }

    fn has_firewall(&self, one: usize, other: usize) -> bool {
        let [one, other] = [one, other].map(|index| self.processes[index].machine as u32);
        self.scenario.has_firewall(one, other)
    }

    /// Creates a group all of whose neighbours are connected.
    pub(super) fn create(&mut self, index: usize, group: u64) {
        let process = &mut self.processes[index];
        let Some(joining) = process.joinings.remove(&group) else { return };
        let Joining { start, settings, links, .. } = joining;
        let Some(engine) = &mut process.engine else { return };
        let created = engine.create(settings, links.into_iter().collect());
        if let (Ok(()), Some(receiver), false) =
            (&created, &mut process.receiver, self.scenario.serves)
        {
            let news = receiver.news.sender.clone();
            let notify = move |what| drop(news.send(what));
            let member: Option<Box<dyn Application>> = match (&receiver.copy, &receiver.listing.1) {
                (Some(copy), _) => Some(Box::new(Member::new(&start, copy.clone(), notify))),
                (None, Some(region)) => Some(Box::new(ListingMember::new(
                    group,
                    region.clone(),
                    Arc::default(),
                    notify,
                ))),
                (None, None) => None,
            };
            receiver.members.extend(member.map(|member| (group, member)));
            if receiver.has_failed_disk {
                self.disk_fails(index);
            }
        }
        if created.is_ok() && self.scenario.serves {
            self.processes[index].links.entry(group).or_default();
        }
        if created.is_ok() && self.scenario.stream.is_some() {
            self.begin_stream_group(index, &start);
        }
        self.note(index, Note::Joined(group, created.map_err(rdmc::Error::from)));
        self.look(index);
    }

    /// How long a process may take to join a group.
    fn join_timeout(&self, index: usize) -> Duration {
        match self.processes[index].receiver {
            Some(_) => self.settings.member_join_timeout(),
            None => self.settings.root_join_timeout(),
        }
    }

    pub(super) fn time_out_join(&mut self, index: usize, group: u64) {
        let Some(joining) = self.processes[index].joinings.remove(&group) else { return };
        let mut unconnected = joining.settings.neighbours();
        unconnected.retain(|rank| !joining.links.contains_key(rank));
        if unconnected.is_empty() {
            // The group is about to be created.
            self.processes[index].joinings.insert(group, joining);
            return;
        }
        joining.links.into_values().for_each(|link| self.network.discard(link));
        let (what, timeout) = (format!("waiting for {unconnected:?}"), self.join_timeout(index));
        let error = rdmc::Error::Timeout { what, timeout, unconnected };
        self.note(index, Note::Joined(group, Err(error)));
    }

    /// Ends all groups after the decision thread has ended.
    pub(super) fn close_engine(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.is_over = true;
        process.standing.clear();
        self.end_groups(index);
    }

    /// Ends all groups, and takes no more of them.
    pub(super) fn end_groups(&mut self, index: usize) {
        let process = &mut self.processes[index];
        for (_, joining) in std::mem::take(&mut process.joinings) {
            joining.links.into_values().for_each(|link| self.network.discard(link));
        }
        if let Some(engine) = &mut process.engine {
            let groups: Vec<u64> = engine.groups().collect();
            for group in groups {
                let _ = engine.abort(group, "its context was closed");
            }
        }
        self.look(index);
    }
}
