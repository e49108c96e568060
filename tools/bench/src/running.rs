//! Child processes that do not outlive this program.

use std::{
    io::Read,
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use crate::{interrupt::Interrupt, outcome::Outcome};

/// A child process, killed when dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Outcome<Self> {
        Ok(Self(command.spawn()?))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Calls `poll` at this interval until the process has ended.
    ///
    /// Errors: those of `poll`; an interrupt; the process runs longer than `timeout`.
    pub fn wait(
        &mut self,
        interval: Duration,
        timeout: Duration,
        interrupt: &Interrupt,
        mut poll: impl FnMut(&mut Child) -> Outcome<()>,
    ) -> Outcome<ExitStatus> {
        let start = Instant::now();
        loop {
            interrupt.check()?;
            poll(&mut self.0)?;
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > timeout {
                return Err(format!("process {} has not ended after {timeout:?}", self.id()).into());
            }
            thread::sleep(interval);
        }
    }

    /// What the process has written to a piped standard output. Blocks until it closes that.
    pub fn output(&mut self) -> Outcome<String> {
        let mut text = String::new();
        if let Some(mut pipe) = self.0.stdout.take() {
            pipe.read_to_string(&mut text)?;
        }
        Ok(text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
