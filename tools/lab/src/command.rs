//! Running `ip` and `tc`.

use std::{
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, state::Lock};

/// For one command, with a thousand hosts and a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs commands of `ip` or `tc`, one a line, in a namespace or here, up to the first that fails.
/// They print nothing.
///
/// One process for all lines: a lab of 64 hosts takes about a thousand.
pub fn batch(
    lock: &Lock,
    program: &str,
    namespace: Option<&str>,
    lines: &[String],
) -> Result<(), Error> {
    let mut command = Command::new(program);
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    command.args(["-batch", "-"]);
    match run(lock, command, lines)? {
        (status, _) if status.success() => Ok(()),
        (status, error) => {
            // The program reports the number of the line.
            let number = error.rsplit_once("-:").map(|(_, rest)| rest.trim().parse::<usize>());
            let line = number.and_then(|number| lines.get(number.ok()?.checked_sub(1)?));
            let what = line.map_or("-batch", String::as_str);
            let why = error.lines().next().filter(|line| !line.is_empty());
            let why = why.map_or_else(|| status.to_string(), str::to_owned);
            Err(Error::Failed(format!("`{program} {what}` failed: {why}")))
        }
    }
}

/// Runs a shell script on a host.
pub fn script(lock: &Lock, namespace: &str, lines: &[String]) -> Result<(), Error> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "sh", "-e"]);
    match run(lock, command, lines)? {
        (status, _) if status.success() => Ok(()),
        (status, error) => {
            let error = error.trim();
            Err(Error::Failed(format!("setting up {namespace} failed: {error} ({status})")))
        }
    }
}

/// The standard output of a command.
pub fn output(program: &str, arguments: &[&str]) -> Result<Vec<u8>, Error> {
    let output = Command::new(program).args(arguments).output().map_err(missing(program))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Error::Failed(format!("`{program} {}` failed: {}", arguments.join(" "), error.trim())))
}

/// Runs a command with these lines as its input. Answers its status and its standard error.
fn run(lock: &Lock, mut command: Command, lines: &[String]) -> Result<(ExitStatus, String), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    // Not in the process group of a terminal: Ctrl-C would stop the command in the middle, and
    // with it the one that cleans up.
    command.process_group(0);
    command.stdin(Stdio::piped()).stdout(lock.to_output()?).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(missing(&program))?;
    let mut text = lines.join("\n");
    text.push('\n');
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has found an error reads no further, and reports the error.
        let _ = stdin.write_all(text.as_bytes());
    }
    let status =
        wait(&mut child).map_err(Error::while_doing(format_args!("waiting for {program}")))?;
    let mut error = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut error);
    }
    Ok((status, error))
}

fn missing(program: &str) -> impl FnOnce(io::Error) -> Error {
    Error::while_doing(format!("cannot run {program}, of the package iproute2"))
}

fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let deadline = Instant::now() + TIMEOUT;
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it did not end"));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}
