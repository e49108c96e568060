//! A command that takes a stream as its standard input.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use super::error::ReceiveError;

/// The longest line of output that is kept, in bytes.
const LINE_BYTES_MAX: u64 = 1000;
/// How long output may come after the command has ended: what it has started may hold it open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// Kills the command's process group if this process ends without saying anything: the command would take a part of the stream
/// for the whole. Until it has killed it, or has received the end of the stream, it holds the command's input open.
/// `PR_SET_PDEATHSIG` would need `unsafe`.
const GUARD: &str = "read end && exec >&-; read said || kill -s KILL -- \"-$1\"";

/// The input of a command.
pub(super) struct Input {
    pipe: ChildStdin,
    /// The input of the guard, which is open until this process ends.
    guard: OwnedFd,
}

impl Input {
    /// Lets the command see the end of the stream.
    pub(super) fn end(self) {
        // If it fails, the guard has ended and holds nothing.
        let _ = File::from(self.guard).write_all(b"\n");
    }
}

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pipe.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}

/// A shell that runs the command, in a process group of its own, which is killed when this is dropped before it has ended.
pub(super) struct StreamCommand {
    shell: Child,
    input: Option<Input>,
    guard: Child,
    /// The last line of output so far; the channel is closed after the last.
    line: Arc<Mutex<String>>,
    output_ended: Receiver<()>,
    is_over: bool,
}

impl StreamCommand {
    /// Starts it with the host's name in the variable `RDMC_HOST`.
    ///
    /// Errors: no process; no thread.
    pub(super) fn start(text: &str, host: &str) -> Result<Self, ReceiveError> {
        let failed =
            |error: io::Error| ReceiveError::System(format!("cannot run a command: {error}"));
        let (output, writer) = io::pipe().map_err(failed)?;
        let mut command = Command::new("sh");
        command.args(["-c", text]).env("RDMC_HOST", host).process_group(0);
        command.stdin(Stdio::piped()).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
        let mut shell = command.spawn().map_err(failed)?;
        // Its copies of the pipe's writing end would keep it open.
        drop(command);
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "sh", &shell.id().to_string()]).process_group(0);
        guard.stdin(Stdio::piped()).stderr(Stdio::null());
        let (line, (ending, output_ended)) = (Arc::<Mutex<String>>::default(), channel());
        let started = start_guard(&mut shell, guard).map_err(|error| {
            kill(&shell);
            failed(error)
        });
        let (guard, input) = started?;
        let line_read = Arc::clone(&line);
        let own = Self { shell, input: Some(input), guard, line, output_ended, is_over: false };
        let read = move || {
            let _ending = ending;
            keep_last_line(output, &line_read);
        };
        thread::Builder::new().name("rdmc-output".into()).spawn(read).map_err(failed)?;
        Ok(own)
    }

    /// Its standard input; once.
    pub(super) fn take_input(&mut self) -> Option<Input> {
        self.input.take()
    }

    /// Whether it has ended with success. Errors: it has failed; says its last line of output.
    pub(super) fn has_ended(&self) -> Result<bool, ReceiveError> {
        // Unless this process waits for it, its process group stays its own.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Some(pid) = Pid::from_raw(self.shell.id() as i32) else { return Ok(false) };
        let status = waitid(WaitId::Pid(pid), options);
        let status = status.map_err(|error| {
            ReceiveError::System(format!("cannot wait for the command: {error}"))
        })?;
        match status.map(|status| failure_of(&status)) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(how)) => Err(ReceiveError::Command { how, line: self.last_line() }),
        }
    }

    /// The last line of its output. Blocks for a short time for the output of one that has ended.
    fn last_line(&self) -> String {
        let _ = self.output_ended.recv_timeout(OUTPUT_TIMEOUT);
        self.line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Leaves what it has started and still runs; returns the last line of output. For one that has ended.
    pub(super) fn finish(mut self) -> String {
        self.is_over = true;
        self.last_line()
    }
}

impl Drop for StreamCommand {
    fn drop(&mut self) {
        if !self.is_over {
            kill(&self.shell);
        }
        let _ = self.shell.wait();
        // Has nothing to do any more.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

/// Starts the guard of a command; its output is the command's input.
fn start_guard(shell: &mut Child, mut guard: Command) -> io::Result<(Child, Input)> {
    let pipe = shell.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    guard.stdout(pipe.as_fd().try_clone_to_owned()?);
    let guard = guard.spawn()?;
    let input = guard.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
    let input = Input { pipe, guard: input.as_fd().try_clone_to_owned()? };
    Ok((guard, input))
}

/// Kills a process group that has not been waited for.
fn kill(shell: &Child) {
    if let Some(pid) = Pid::from_raw(shell.id() as i32) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// How it has failed, if it has.
fn failure_of(status: &WaitIdStatus) -> Option<String> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit status {code}")),
        (None, Some(signal)) => Some(format!("signal {signal}")),
        (None, None) => Some("no exit status".to_owned()),
    }
}

/// Reads to the end, and keeps the last line that is not empty, of which a long one is cut.
fn keep_last_line(output: impl Read, last: &Mutex<String>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        if !text.is_empty() {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = text;
        }
    }
}
