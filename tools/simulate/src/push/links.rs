//! Links at processes: what is fetched moves in them, chunk by chunk.
//!
//! The library's threads at both ends of a link ([`files::machines::Owed`]) are replaced by what they do when something has arrived.

use std::collections::BTreeMap;

use engine::Event;
use files::machines::{ALTERED, MemberEvent, Owed, Ranges};
use rdmc::{Failure, FailureKind, Region};

use super::{
    link_end::Link,
    process::{Note, Process, Receiver},
    receiver::contents,
    world::World,
};

impl World<'_> {
    /// Sends what the other member lacks from now on, each chunk once it is here.
    pub(super) fn send_in_link(&mut self, index: usize, group: u64, missing: &Ranges) {
        let owed = Owed::new(self.cut(), missing);
        self.begin_link(index, group, Some(owed));
        self.send_arrived(index);
    }

    /// Takes what comes in a link from now on.
    pub(super) fn receive_in_link(&mut self, index: usize, group: u64) {
        self.begin_link(index, group, None);
        if let Some(engine) = &mut self.processes[index].engine {
            // A group that has ended reports that itself.
            let _ = engine.close(group);
        }
        self.take_chunks(index);
    }

    fn begin_link(&mut self, index: usize, group: u64, owed: Option<Owed>) {
        if let Some(link) = self.processes[index].links.get_mut(&group) {
            (link.has_begun, link.owed) = (true, owed);
        }
        self.end_links(index);
    }

    /// Sends in all links what is here and lacked there.
    pub(super) fn send_arrived(&mut self, index: usize) {
        let (cut, all) = (self.cut(), Region::from_shared(std::sync::Arc::clone(&self.source)));
        let lies = self.lies(index);
        let process = &mut self.processes[index];
        let (region, has) = match &process.receiver {
            None => (all, [(0, cut.bytes)].into_iter().collect()),
            Some(receiver) => match (&receiver.region, &receiver.copy) {
                (Some(region), Some(copy)) => (region.clone(), copy.has()),
                _ => return,
            },
        };
        let Process { links, engine: Some(engine), .. } = process else { return };
        for (&group, link) in links {
            let Some(owed) = link.owed.as_mut().filter(|owed| !owed.is_empty()) else { continue };
            while let Some(chunk) = owed.take(&has) {
                let (start, end) = cut.range(chunk);
                let part = region.slice(start as usize..end as usize).expect("it is in the object");
                let part = match lies {
                    true => Region::from_vec(contents(&part).iter().map(|byte| !byte).collect()),
                    false => part,
                };
                // A group that has failed reports that itself.
                let _ = engine.send(group, Region::from_vec(chunk.to_le_bytes().to_vec()));
                let _ = engine.send(group, part);
            }
            if owed.is_empty() {
                let _ = engine.close(group);
            }
        }
    }

    fn lies(&self, index: usize) -> bool {
        self.processes[index].receiver.is_some()
            && self.is_first()
            && self.host_of(index).faults.lies
    }

    /// Delivers an event of a link.
    pub(super) fn link_event(&mut self, index: usize, group: u64, event: Event) {
        let process = &mut self.processes[index];
        let (Some(link), Some(engine)) = (process.links.get_mut(&group), &mut process.engine)
        else {
            return;
        };
        match event {
            Event::Incoming { message, bytes, .. } => {
                // One that has ended reports that itself.
                let _ = engine.accept(group, message, Region::zeroed(bytes as usize));
            }
            Event::Complete { region, .. } if link.owed.is_none() => {
                link.incoming.take(contents(&region));
                self.take_chunks(index);
            }
            Event::Failed { failure, .. } => {
                link.ended = Some(Err(failure));
                self.take_chunks(index);
            }
            Event::Closed { .. } => {
                link.ended.get_or_insert(Ok(()));
                self.take_chunks(index);
            }
            _ => {}
        }
    }

    /// Takes nothing more of a link whose chunks wait for their digests.
    pub(super) fn leave_link(&mut self, index: usize, group: u64, reason: &str) {
        let link = self.processes[index].links.get_mut(&group);
        if let Some(link) = link.filter(|link| link.ended.is_some()) {
            link.ended = Some(Err(failure(group, reason)));
            self.end_links(index);
        }
    }

    /// Reports links that have ended, and of which nothing is left to take.
    fn end_links(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let none = BTreeMap::new();
        let digests = process.receiver.as_ref().map_or(&none, |receiver| &receiver.digests);
        let is_over = |link: &Link| {
            let is_failed = matches!(link.ended, Some(Err(_)));
            link.has_begun && link.ended.is_some() && link.incoming.is_done(digests, is_failed)
        };
        let over = process.links.iter().filter(|(_, link)| is_over(link));
        let over: Vec<u64> = over.map(|(&group, _)| group).collect();
        for group in over {
            let Some(Link { ended: Some(ended), .. }) = self.processes[index].links.remove(&group)
            else {
                continue;
            };
            let note = match self.processes[index].receiver {
                None => Note::Ended(group, ended),
                Some(_) => Note::News(MemberEvent::Ended(group, ended)),
            };
            self.note(index, note);
        }
    }

    /// Takes chunks whose digests are known, and passes them on.
    pub(super) fn take_chunks(&mut self, index: usize) {
        let (cut, mut news) = (self.cut(), Vec::new());
        if let Process { links, receiver: Some(receiver), .. } = &mut self.processes[index] {
            let Receiver { digests, region: Some(region), copy: Some(copy), .. } = &**receiver
            else {
                return;
            };
            for (&group, link) in links.iter_mut().filter(|(_, link)| link.has_begun) {
                while let Some((chunk, bytes)) = link.incoming.next(digests) {
                    let (start, end) = cut.range(chunk);
                    let is_right = digests[&chunk] == *blake3::hash(&bytes).as_bytes();
                    if !is_right || end - start != bytes.len() as u64 {
                        link.incoming.is_altered = true;
                        link.ended = Some(Err(failure(group, ALTERED)));
                        news.push(MemberEvent::Altered(group, start));
                        continue;
                    }
                    // A part of it was there, and is being sent on: it is taken a moment later.
                    let lease = region.write(start as usize..end as usize);
                    let Ok(mut lease) = lease else {
                        link.incoming.put_back(chunk, bytes);
                        break;
                    };
                    lease.copy_from_slice(&bytes);
                    drop(lease);
                    if copy.add((start, end)) {
                        news.push(MemberEvent::Complete);
                    }
                }
            }
        }
        news.into_iter().for_each(|news| self.note(index, Note::News(news)));
        self.end_links(index);
        self.take_news(index);
        self.send_arrived(index);
    }
}

/// How a link ends that this member ends.
fn failure(group: u64, reason: &str) -> Failure {
    let (member, kind, delivered) = (None, FailureKind::Application, 0);
    Failure { group, member, reporter: 1, kind, detail: reason.into(), delivered }
}
