//! A stream between two ends.

use std::{
    cell::RefCell,
    io::{IoSlice, IoSliceMut},
    os::fd::BorrowedFd,
    rc::Rc,
};

use rustix::io::Errno;
use transport_tcp::{ByteStream, Readiness};

use super::{line::Line, scenario::WireNetworkPlan};
use crate::dice::Dice;

/// Both directions of a stream.
pub(super) struct Wire {
    /// By their writers.
    pub(super) lines: [Line; 2],
    plan: WireNetworkPlan,
    dice: Dice,
    /// Virtual time, as it was told.
    pub(super) now_ns: u64,
    /// Whether each end has closed it.
    is_closed: [bool; 2],
    /// A planted bug: writes take one byte more than they say.
    pub(super) repeats: bool,
}

/// An end of a stream, which is closed when it is dropped.
pub(super) struct Pipe {
    wire: Rc<RefCell<Wire>>,
    end: usize,
}

impl Wire {
    pub(super) fn new(plan: &WireNetworkPlan, dice: Dice) -> Self {
        Self {
            lines: Default::default(),
            plan: plan.clone(),
            dice,
            now_ns: 0,
            is_closed: [false; 2],
            repeats: false,
        }
    }

    pub(super) fn ends(this: &Rc<RefCell<Self>>) -> [Pipe; 2] {
        [0, 1].map(|end| Pipe { wire: Rc::clone(this), end })
    }

    /// Returns what has changed for an end since the last call, if anything has.
    pub(super) fn take_news(&mut self, end: usize) -> Option<Readiness> {
        let can_read = std::mem::take(&mut self.lines[1 - end].is_news_to_reader);
        let can_write = std::mem::take(&mut self.lines[end].is_news_to_writer);
        let is_read_closed = self.lines[1 - end].has_ended();
        (can_read || can_write).then_some(Readiness { can_read, can_write, is_read_closed })
    }

    pub(super) fn has_news(&self, end: usize) -> bool {
        self.lines[1 - end].is_news_to_reader || self.lines[end].is_news_to_writer
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.lines.iter().filter_map(Line::next_ns).min()
    }

    pub(super) fn advance(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.lines.iter_mut().for_each(|line| line.advance(now_ns));
        // A system answers bytes for a socket that is closed by a reset.
        for end in [0, 1] {
            let is_wasted = self.is_closed[end] && self.lines[1 - end].unread() > 0;
            if is_wasted && !self.lines[end].is_reset() {
                self.lines[end].reset(now_ns + self.plan.latency_ns);
            }
        }
    }

    pub(super) fn reset(&mut self) {
        let now_ns = self.now_ns;
        self.lines.iter_mut().for_each(|line| line.reset(now_ns));
    }

    fn close(&mut self, end: usize) {
        self.is_closed[end] = true;
        let at_ns = self.now_ns + self.plan.latency_ns;
        if self.lines[1 - end].unread() > 0 {
            self.lines[end].reset(at_ns);
        } else {
            self.lines[end].close(at_ns);
        }
    }

    fn is_interrupted(&mut self) -> bool {
        self.dice.percent(self.plan.interrupts_percent)
    }
}

impl ByteStream for Pipe {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let wire = &mut *self.wire.borrow_mut();
        if wire.is_interrupted() {
            return Err(Errno::INTR);
        }
        let bytes_max = into.iter().map(|slice| slice.len()).sum();
        let mut rest = wire.lines[1 - self.end].read(bytes_max, wire.now_ns)?;
        let bytes = rest.len();
        for slice in into {
            let part = slice.len().min(rest.len());
            slice[..part].copy_from_slice(&rest[..part]);
            rest = &rest[part..];
        }
        Ok(bytes)
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let wire = &mut *self.wire.borrow_mut();
        if wire.is_interrupted() {
            return Err(Errno::INTR);
        }
        if wire.is_closed[1 - self.end] && wire.lines[1 - self.end].has_ended() {
            return Err(Errno::PIPE);
        }
        let mut bytes = Vec::with_capacity(from.iter().map(|slice| slice.len()).sum());
        from.iter().for_each(|slice| bytes.extend_from_slice(slice));
        let line = &mut wire.lines[self.end];
        let accepted = line.write(&bytes, &wire.plan, &mut wire.dice, wire.now_ns)?;
        let repeated = usize::from(wire.repeats && accepted > 1 && wire.dice.percent(5));
        Ok(accepted - repeated)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.wire.borrow_mut().close(self.end);
    }
}
