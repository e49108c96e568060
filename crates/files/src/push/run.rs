//! One session: the coordinator, and the thread that drives it.

use std::time::{Duration, Instant};

use rdmc::bootstrap::Deadline;

use super::{
    coordinator::Coordinator,
    dispatch::{farewell, handle, step},
    inbox::{Event, Input},
    prepared::Prepared,
    scene::Scene,
    settings::{PushError, PushEvent},
    stage::Stage,
};

/// How long nothing may happen before everything is looked at anyway.
const IDLE: Duration = Duration::from_secs(60);

/// A session that is running: a push, or a bench.
pub(super) struct Run<'a> {
    pub(super) push: &'a Prepared,
    started: Instant,
    pub(super) core: Coordinator<'a>,
    pub(super) scene: Scene<'a>,
}

impl<'a> Run<'a> {
    pub(super) fn new(push: &'a Prepared, observe: &'a mut dyn FnMut(PushEvent)) -> Self {
        let core = Coordinator::new(&push.settings, push.bytes());
        Self { push, started: Instant::now(), core, scene: Scene::new(push, observe) }
    }

    pub(super) fn replicate(&mut self) -> Result<(), PushError> {
        let begun = self.scene.start().and_then(|()| self.scene.digest());
        begun.unwrap_or_else(|error| self.core.stop(&mut self.scene, error));
        while !self.core.is_over() {
            let event = match self.next(None) {
                Some(Input::Event(event)) => Some(event),
                // Nothing is measured.
                Some(Input::Measured(..)) | None => None,
            };
            step(&mut self.core, &mut self.scene, self.started.elapsed(), event);
        }
        self.core.outcome()
    }

    /// Until every host is ready or has failed; for a bench.
    pub(super) fn gather(&mut self) -> Result<(), PushError> {
        self.scene.start()?;
        while self.core.is_gathering() {
            if let Some(Input::Event(event)) = self.next(None) {
                self.handle(event)?;
            }
            self.core.gather(&mut self.scene)?;
        }
        Ok(())
    }

    /// Tells receivers that it is over, and waits a little for them to hang up.
    pub(super) fn end(&mut self) {
        self.scene.say_farewell();
        let since = Instant::now();
        while let Some(patience) = farewell(&self.core, &self.scene)
            && let left = patience.saturating_sub(since.elapsed())
            && !left.is_zero()
        {
            if let Ok(Input::Event(Event::Gone { host, connection, .. })) =
                self.push.inbox.recv_timeout(left)
            {
                self.scene.hang_up(host, connection);
            }
        }
        self.scene.close();
    }

    /// Waits for what comes next, until then or until the coordinator wants to look at the clock.
    pub(super) fn next(&mut self, deadline: Option<Deadline>) -> Option<Input> {
        // The coordinator's time passes while nothing happens, too.
        let now = self.started.elapsed();
        let until = self.core.deadline().map_or(IDLE, |at| at.saturating_sub(now).min(IDLE));
        let wait = deadline.map_or(until, |deadline| deadline.left().min(until));
        let input = self.push.inbox.recv_timeout(wait).ok();
        self.core.now = self.started.elapsed();
        input
    }

    /// One event of a bench.
    pub(super) fn handle(&mut self, event: Event) -> Result<(), PushError> {
        handle(&mut self.core, &mut self.scene, event)
    }
}
