//! Blocks and one-sided writes: from waiting, to the provider, to their completions.

use super::*;

impl Link {
    pub fn post_receive(&mut self, into: WriteLease, token: Token) {
        // Checked to be at most 2^32 - 1.
        self.lengths.push_back(into.bytes() as u32);
        self.receives.push_back((into, token));
    }

    pub fn post_send(&mut self, from: ReadLease, immediate: u32, token: Token) {
        self.sends.push_back(Send { from, immediate, token });
    }

    pub fn post_write(
        &mut self,
        from: ReadLease,
        name: u32,
        offset: u64,
        immediate: u32,
        token: Token,
    ) {
        self.writes.push_back(Write { from, name, offset, immediate, token });
    }

    /// Lets the peer write into memory. Errors: in words.
    pub fn expose(
        &mut self,
        name: u32,
        memory: PeerMemory,
        devices: &[Device],
    ) -> Result<Lifeline, String> {
        if self.exposed_here.contains_key(&name) || self.exposed_here.len() >= EXPOSED_MAX {
            return Err(format!("memory is exposed as {name} already, or in too many pieces"));
        }
        let (device, bytes) = (&devices[0], memory.len());
        let access = Access::Peers { key: wanted_key(self.number(), name.into()) };
        let start = memory.start();
        // SAFETY: the memory is kept beside the registration and dropped after it.
        let registration = unsafe { sys::register(&device.domain, start, bytes, access) }
            .map_err(|error| registration::explain(error, bytes))?;
        let address = if device.info.virtual_addresses { start as u64 } else { 0 };
        let (key, bytes) = (registration.key, bytes as u64);
        self.exposed_here.insert(name, (registration, memory));
        Ok(Lifeline::Exposed { name, key, address, bytes })
    }

    pub(super) fn advance_receives(&mut self, round: &mut Round<'_>) {
        let most = RECEIVES_POSTED_MAX.min(round.devices[0].info.receives_max) * self.rails();
        while self.receives_open < most && self.broken.is_none() {
            let Some((mut into, token)) = self.receives.pop_front() else { return };
            let path = 1 + (self.receives_posted % self.rails() as u64) as usize;
            let Some(endpoint) = self.endpoint(path) else { return };
            let (start, bytes) = (into.as_mut_ptr(), into.bytes());
            let registrar = &round.devices[Self::device_of(path)].registrar;
            let registration = match registrar.cover(&into.memory(), start, bytes) {
                Ok(registration) => registration,
                Err(error) => {
                    self.receives.push_front((into, token));
                    return self.fail_memory(error);
                }
            };
            let way = self.way(path, DATA_TAG, true);
            let context = self.context(Op::Receive(into, token, registration.clone()));
            let span = registration::span(start, bytes, registration.as_deref());
            // SAFETY: the op holds the write lease until the receive completes, or its endpoint is
            // closed (`take_ops`).
            if let Err(error) = unsafe { sys::post_receive(&endpoint, way, span, context) } {
                if let Some(Op::Receive(into, token, _)) = self.forget(context) {
                    self.receives.push_front((into, token));
                }
                return self.refused(error);
            }
            self.receives_open += 1;
            self.receives_posted += 1;
            if self.peer_wants.is_some_and(|wanted| wanted < self.receives_posted) {
                self.ring.push(Note::Consumed);
            }
        }
    }

    pub(super) fn advance_sends(&mut self, round: &mut Round<'_>) {
        while self.sends_posted < SENDS_POSTED_MAX * self.rails() && self.broken.is_none() {
            let Some(bytes) = self.sends.front().map(|send| send.from.bytes() as u64) else {
                return;
            };
            let index = self.sends_started;
            let room = self.peer_lengths.get(&index).copied().map(u64::from);
            if room.is_none_or(|room| room < bytes) {
                // The layer above says that there is a receive, and the word that told it so told
                // us as well. Otherwise the peer tells, or ends the link.
                if self.asked_for != Some(index) {
                    self.asked_for = Some(index);
                    self.ring.push(Note::Wants { index, bytes });
                }
                return;
            }
            let Some(Send { from, immediate, token }) = self.sends.pop_front() else { return };
            let path = 1 + (self.sends_started % self.rails() as u64) as usize;
            let Some(endpoint) = self.endpoint(path) else { return };
            let (start, bytes) = (from.as_ptr().cast_mut(), from.bytes());
            let registrar = &round.devices[Self::device_of(path)].registrar;
            let registration = match registrar.cover_to_read(&from) {
                Ok(registration) => registration,
                Err(error) => {
                    self.sends.push_front(Send { from, immediate, token });
                    return self.fail_memory(error);
                }
            };
            let way = self.way(path, DATA_TAG, false);
            let context = self.context(Op::Send(from, token, registration.clone()));
            let span = registration::span(start, bytes, registration.as_deref());
            // SAFETY: the op holds the read lease until the send completes, or its endpoint is
            // closed (`take_ops`).
            if let Err(error) = unsafe { sys::post_send(&endpoint, way, span, immediate, context) }
            {
                if let Some(Op::Send(from, token, _)) = self.forget(context) {
                    self.sends.push_front(Send { from, immediate, token });
                }
                return self.refused(error);
            }
            self.peer_lengths.remove(&index);
            self.sends_posted += 1;
            self.sends_started += 1;
        }
    }

    pub(super) fn advance_writes(&mut self, round: &mut Round<'_>) {
        while let Some(Write { from, name, offset, immediate, token }) = self.writes.pop_front() {
            let again = |from| Write { from, name, offset, immediate, token };
            let Some(exposed) = self.exposed_there.get(&name) else {
                // Its announcement, on the lifeline, may still be on its way.
                if self.asked_where.replace(name) != Some(name) {
                    round.lifeline.push((self.lifeline, Lifeline::WhereIs { name }));
                }
                return self.writes.push_front(again(from));
            };
            let (start, bytes) = (from.as_ptr().cast_mut(), from.bytes());
            let end = offset.checked_add(bytes as u64);
            if end.is_none_or(|end| end > exposed.bytes) {
                self.writes.push_front(again(from));
                let what = format!("exposed {} bytes; a write ends beyond", exposed.bytes);
                return self.break_by(Cause::Protocol(what));
            }
            let (address, key) = (exposed.address + offset, exposed.key);
            let Some(endpoint) = self.endpoint(0) else { return };
            let registration = match round.devices[0].registrar.cover_to_read(&from) {
                Ok(registration) => registration,
                Err(error) => {
                    self.writes.push_front(again(from));
                    return self.fail_memory(error);
                }
            };
            let context = self.context(Op::Write(from, token, registration.clone()));
            let span = registration::span(start, bytes, registration.as_deref());
            // SAFETY: as for a send.
            let posted = unsafe { sys::post_write(&endpoint, span, None, address, key, context) };
            if let Err(error) = posted {
                if let Some(Op::Write(from, ..)) = self.forget(context) {
                    self.writes.push_front(again(from));
                }
                return self.refused(error);
            }
            // On the same endpoint behind the write itself: writes arrive in order.
            self.ring.push(Note::Written(immediate));
        }
    }

    pub(super) fn context(&mut self, op: Op) -> u64 {
        // Round and round; with few open at a time the next is free.
        while self.ops.contains_key(&self.next_op) {
            self.next_op = self.next_op.wrapping_add(1);
        }
        let number = self.next_op;
        self.next_op = number.wrapping_add(1);
        self.ops.insert(number, op);
        self.id.0 << 32 | u64::from(number)
    }

    pub(super) fn forget(&mut self, context: u64) -> Option<Op> {
        self.ops.remove(&(context as u32))
    }

    /// Something that the provider had is done, or failed.
    pub fn complete(&mut self, raw: &RawCompletion, round: &mut Round<'_>) {
        let Some(op) = self.forget(raw.context) else { return };
        let endpoint = self.id;
        let failed = raw.error != 0;
        self.answered += u64::from(!failed);
        if failed {
            self.note_error(raw, matches!(op, Op::Receive(..)), round.devices);
        }
        match op {
            Op::Send(lease, token, _) => {
                self.sends_posted -= 1;
                drop(lease);
                round.completed.push(if failed {
                    Completion::Cancelled { endpoint, token }
                } else {
                    Completion::Sent { endpoint, token }
                });
            }
            Op::Write(lease, token, ..) => {
                drop(lease);
                round.completed.push(if failed {
                    Completion::Cancelled { endpoint, token }
                } else {
                    Completion::Sent { endpoint, token }
                });
            }
            Op::Receive(mut lease, token, pinned) => {
                self.receives_open -= 1;
                if let Some(pinned) = pinned.filter(|_| !failed) {
                    let (start, room) = (lease.as_mut_ptr(), lease.bytes());
                    // SAFETY: the lease is for writing, and the provider is done.
                    unsafe { pinned.after_writing(start, room.min(raw.bytes as usize)) }
                }
                // Rails may be ahead of one another, by as much as they have posted.
                let keep = 2 * (self.receives_open + self.receives.len()) + LENGTHS_MAX;
                while self.lengths.len() > keep {
                    self.lengths.pop_front();
                    self.lengths_first += 1;
                }
                drop(lease);
                let (bytes, immediate) = (raw.bytes, raw.data as u32);
                round.completed.push(if failed {
                    Completion::Cancelled { endpoint, token }
                } else {
                    Completion::Received { endpoint, token, bytes, immediate }
                });
            }
            Op::Word => {}
            Op::Place if failed => {}
            Op::Place => {
                let slot = self.ring.next_slot();
                self.read_slot(slot, round);
                if let Err(error) = self.post_place(slot) {
                    self.refused(error);
                }
            }
        }
    }

    pub fn note_error(&mut self, raw: &RawCompletion, receiving: bool, devices: &[Device]) {
        let error = Errno(raw.error);
        let verbs = devices[0].info.provider == "verbs";
        let too_long =
            error == Errno::TRUNCATED || (verbs && raw.provider_error == VERBS_LENGTH_ERROR);
        self.break_by(if receiving && too_long {
            Cause::Protocol("sent a block that is longer than the memory for it".into())
        } else {
            Cause::Lost(format!("{} ({})", error.text(), raw.provider_error))
        });
    }

    /// A post was refused: for now, or for good.
    pub(super) fn refused(&mut self, error: Errno) {
        if error == Errno::AGAIN {
            self.retry = true;
        } else {
            self.break_by(Cause::Lost(format!("posting failed: {}", error.text())));
        }
    }

    pub(super) fn fail_memory(&mut self, error: String) {
        self.break_by(Cause::Memory { access: "registered", error });
    }
}
