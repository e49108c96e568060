//! Control words: what comes in over the ring of slots and over the lifeline, and what goes out.

use super::*;

impl Link {
    /// The first words: where our control slots are.
    pub fn hello(&self, devices: &[Device]) -> Lifeline {
        let (key, address) = self.slots.for_peer(devices[0].info.virtual_addresses);
        Lifeline::Hello { key, address }
    }

    /// Where a control word may come in.
    pub(super) fn post_place(&mut self, slot: u64) -> Result<(), Errno> {
        let Some(endpoint) = self.endpoint(0) else { return Ok(()) };
        let way = self.way(0, CONTROL_TAG, true);
        let context = self.context(Op::Place);
        let span = match way {
            Way::Connected => Span::EMPTY,
            Way::Tagged { .. } => self.slots.span(slot_range(slot)),
        };
        // SAFETY: our own buffer, which outlives the endpoint; a slot is read only between its
        // completion and the next post.
        let posted = unsafe { sys::post_receive(&endpoint, way, span, context) };
        if posted.is_err() {
            self.forget(context);
        }
        posted
    }

    /// False if the peer has not read for megabytes.
    pub fn write_word(&mut self, word: &[u8]) -> bool {
        self.ring.push(Note::Word(word.to_vec()))
    }

    pub(super) fn advance_words(&mut self) {
        let Some((peer_key, peer_address)) = self.peer_slots else { return };
        while let Some((slot, bytes)) = self.ring.next(self.receives_to_tell()) {
            let Some(endpoint) = self.endpoint(0) else { return };
            let range = slot_range(slot);
            self.staging.copy_in(range.start, &bytes);
            let way = self.way(0, CONTROL_TAG, false);
            let data = self.theirs.number << 8 | slot as u32;
            let address = peer_address + range.start as u64;
            let context = self.context(Op::Word);
            let span = self.staging.span(range);
            // SAFETY: our own buffer, which outlives the endpoint, and whose slot nobody changes
            // before the peer has read it.
            let posted = unsafe {
                match way {
                    Way::Connected => {
                        sys::post_write(&endpoint, span, Some(data), address, peer_key, context)
                    }
                    Way::Tagged { .. } => sys::post_send(&endpoint, way, span, data, context),
                }
            };
            if let Err(error) = posted {
                self.forget(context);
                return self.refused(error);
            }
            if self.peer_wants.is_some_and(|wanted| wanted < self.receives_posted) {
                self.peer_wants = None;
            }
            self.ring.wrote();
        }
    }

    /// The receives that the peer should know of: from the one that it has asked for, or the last.
    pub(super) fn receives_to_tell(&self) -> Receives {
        let last = self.receives_posted.saturating_sub(LENGTHS_MAX as u64);
        let wanted = self.peer_wants.filter(|&wanted| wanted < self.receives_posted);
        let first = wanted.unwrap_or(last).max(self.lengths_first);
        let skip = (first - self.lengths_first) as usize;
        let count = LENGTHS_MAX.min(self.receives_posted.saturating_sub(first) as usize);
        Receives { first, lengths: self.lengths.iter().skip(skip).take(count).copied().collect() }
    }

    /// The peer has written this slot.
    pub fn read_slot(&mut self, slot: u64, round: &mut Round<'_>) {
        let bytes = self.slots.copy_out::<SLOT_BYTES>(slot_range(slot % SLOTS).start);
        match self.ring.read(slot, &bytes) {
            Ok(read) => self.take_note(read, round),
            Err(what) => self.break_by(Cause::Protocol(what.into())),
        }
    }

    pub(super) fn take_note(&mut self, slot: Slot, round: &mut Round<'_>) {
        let endpoint = self.id;
        for (index, length) in (slot.receives.first..).zip(slot.receives.lengths) {
            if index >= self.sends_started && self.peer_lengths.len() < PEER_LENGTHS_MAX {
                self.peer_lengths.insert(index, length);
            }
        }
        match slot.note {
            _ if !self.is_open() => {}
            Note::Word(word) => round.completed.push(Completion::Control { endpoint, word }),
            Note::Written(immediate) => {
                round.completed.push(Completion::Written { endpoint, immediate });
            }
            Note::Consumed => {}
            Note::Wants { index, bytes } => self.answer(index, bytes),
        }
    }

    /// The peer has a block and does not know that it fits.
    pub(super) fn answer(&mut self, index: u64, bytes: u64) {
        let known = index.checked_sub(self.lengths_first).and_then(|at| usize::try_from(at).ok());
        match known.and_then(|at| self.lengths.get(at)) {
            None => {
                let what = "sent a block that nobody asked for";
                self.break_by(Cause::Protocol(what.into()));
            }
            Some(&length) if bytes > u64::from(length) => {
                let what = format!(
                    "sent a block of {bytes} bytes, longer than the memory of {length} for it"
                );
                self.break_by(Cause::Protocol(what));
            }
            Some(_) => {
                // Told as soon as it is posted; see `receives_to_tell`.
                self.peer_wants = Some(index);
                if index < self.receives_posted {
                    self.ring.push(Note::Consumed);
                }
            }
        }
    }

    /// The peer says something over the lifeline. Words that come twice, or make no sense, break
    /// the link.
    pub fn hear(&mut self, word: Option<Lifeline>) {
        match word {
            Some(Lifeline::Hello { key, address })
                if self.peer_slots.is_none()
                    && address.checked_add(SLOTS * SLOT_BYTES as u64).is_some() =>
            {
                self.peer_slots = Some((key, address));
            }
            Some(Lifeline::Exposed { name, key, address, bytes })
                if self.exposed_there.len() < EXPOSED_MAX
                    && address.checked_add(bytes).is_some() =>
            {
                self.exposed_there.insert(name, Exposed { key, address, bytes });
            }
            Some(Lifeline::WhereIs { name }) => {
                if self.is_open() && !self.exposed_here.contains_key(&name) {
                    let what = format!("writes to memory {name}, which was not exposed to it");
                    self.break_by(Cause::Protocol(what));
                }
            }
            Some(Lifeline::Bye { words }) => self.peer_bye = Some(words),
            Some(Lifeline::ByeHeard) => {
                if let Phase::Closing { heard, .. } = &mut self.phase {
                    *heard = true;
                }
            }
            _ => self.break_by(Cause::Protocol("said something wrong on the lifeline".into())),
        }
    }
}
