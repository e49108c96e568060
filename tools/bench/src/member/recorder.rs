//! The callbacks of one group, which send events to the main thread.

use std::{
    process::Command,
    sync::mpsc::{Receiver, Sender},
};

use rdmc::{Application, Failure, Incoming, Region, RegionPool};
use rustix::process::{Signal, getpid, kill_process};

use super::{
    lines::reply,
    orders::{Answer, Fault, Memory, PlannedFault},
    state::TRANSFER_TIMEOUT,
};
use crate::{
    clock::{ClockId, now_ns},
    outcome::Outcome,
};

pub enum Event {
    Received(u64),
    Complete(u64, Region),
    Failed(String),
}

/// Where the memory for messages comes from; the message that warms up takes it from the pool.
pub struct Supply {
    memory: Memory,
    pool: RegionPool,
    /// Never touched.
    ahead: Vec<Region>,
}

impl Supply {
    /// For messages of this length, this many of which may need memory that is allocated ahead.
    pub fn new(memory: Memory, pool: RegionPool, messages: u64, message_bytes: u64) -> Self {
        let count = if memory == Memory::Ahead { messages } else { 0 };
        let ahead = (0..count).map(|_| Region::zeroed(message_bytes as usize)).collect();
        Self { memory, pool, ahead }
    }

    fn take(&mut self, message: u64, bytes: u64) -> Option<Region> {
        match self.memory {
            _ if message == 0 => self.pool.take(),
            Memory::OnArrival => Some(Region::zeroed(bytes as usize)),
            Memory::Ahead => self.ahead.pop(),
            Memory::AheadTouched => self.pool.take(),
        }
    }
}

pub struct Recorder {
    pub supply: Supply,
    pub events: Sender<Event>,
    pub fault: Option<PlannedFault>,
    pub block_bytes: u64,
    pub blocks: u64,
}

impl Application for Recorder {
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        let region = self.supply.take(message, bytes);
        region.map_or(Incoming::Refuse("no memory is left".into()), Incoming::Into)
    }

    fn block(&mut self, message: u64, _offset: u64, bytes: u64) {
        let is_warm_up = message == 0;
        // Several at once, if they came during a callback.
        self.blocks += if is_warm_up { 0 } else { bytes.div_ceil(self.block_bytes) };
        if let Some(planned) = self.fault.take_if(|fault| fault.after_blocks <= self.blocks)
            && let Err(error) = fail(&planned.fault)
        {
            let _ = self.events.send(Event::Failed(format!("fault injection failed: {error}")));
        }
    }

    fn received(&mut self, _message: u64) {
        let _ = self.events.send(Event::Received(now_ns(ClockId::Monotonic)));
    }

    fn complete(&mut self, message: u64, region: Region) {
        let _ = self.events.send(Event::Complete(message, region));
    }

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        let _ = self.events.send(Event::Failed(failure.to_string()));
    }
}

fn fail(fault: &Fault) -> Outcome<()> {
    reply(&Answer::Failing)?;
    match fault {
        Fault::Kill => kill_process(getpid(), Signal::KILL)?,
        Fault::Stop => kill_process(getpid(), Signal::STOP)?,
        Fault::Run(command) => {
            let status = Command::new("sh").args(["-c", command]).status()?;
            if !status.success() {
                return Err(format!("{command}: {status}").into());
            }
        }
    }
    Ok(())
}

#[derive(Default)]
pub struct Messages {
    pub received_ns: Option<u64>,
    pub completed: Vec<(u64, Region)>,
}

/// Waits until this many more messages are complete here.
pub fn await_completion(events: &Receiver<Event>, messages: u64) -> Outcome<Messages> {
    let mut all = Messages::default();
    while (all.completed.len() as u64) < messages {
        match events.recv_timeout(TRANSFER_TIMEOUT) {
            Ok(Event::Received(at_ns)) => all.received_ns = Some(at_ns),
            Ok(Event::Complete(message, region)) => all.completed.push((message, region)),
            Ok(Event::Failed(failure)) => return Err(failure.into()),
            Err(_) => return Err("nothing came for ten minutes".into()),
        }
    }
    Ok(all)
}
