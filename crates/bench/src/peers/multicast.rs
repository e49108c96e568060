//! udpcast: udp-sender and udp-receiver over IP multicast, from a pipe to pipes.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::param::clock_ticks_per_second;

use super::own::{Args, Transfer};
use crate::Outcome;

/// The multicast address at which sender and receivers find each other. By default receivers call
/// the network's broadcast address.
const MEETING_ADDRESS: &str = "239.77.0.1";
/// What udp-sender says when all receivers are there.
const STARTING: &str = "Starting transfer";

/// One member's process of udpcast, started anew for each transfer.
pub struct Udpcast {
    is_root: bool,
    receivers: u32,
    device: String,
    running: Option<Running>,
}

struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
}

impl Udpcast {
    pub fn new(args: &Args) -> Self {
        Self {
            is_root: args.rank == 0,
            receivers: args.members - 1,
            device: args.device.clone(),
            running: None,
        }
    }

    fn start(&self) -> Outcome<Running> {
        let program = if self.is_root { "udp-sender" } else { "udp-receiver" };
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program, "--nokbd", "--no-progress"]);
        command.args(["--interface", &self.device, "--mcast-rdv-address", MEETING_ADDRESS]);
        if self.is_root {
            command.args(["--min-receivers", &self.receivers.to_string()]);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        } else {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        }
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let errors = child.stderr.take();
        let running = Running { child, input, output };
        if let Some(errors) = errors {
            await_start(BufReader::new(errors))?;
        }
        Ok(running)
    }
}

/// Returns when all receivers are there; from then on somebody else reads what is said.
fn await_start(mut errors: impl BufRead + Send + 'static) -> Outcome<()> {
    let mut line = String::new();
    while errors.read_line(&mut line)? > 0 {
        if line.contains(STARTING) {
            std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
            return Ok(());
        }
    }
    Err(format!("udp-sender ended: {}", line.trim()).into())
}

impl Transfer for Udpcast {
    fn prepare(&mut self) -> Outcome<()> {
        // A receiver lingers for half a second after its last byte.
        if let Some(mut last) = self.running.take() {
            last.child.wait()?;
        }
        self.running = Some(self.start()?);
        Ok(())
    }

    fn transfer(&mut self, object: &mut [u8]) -> Outcome<()> {
        let running = self.running.as_mut().ok_or("udpcast was not started")?;
        if let Some(mut input) = running.input.take() {
            input.write_all(object)?;
        }
        if let Some(output) = &mut running.output {
            output.read_exact(object)?;
        }
        Ok(())
    }

    /// That of udpcast's process; pipes are ours.
    fn cpu_ns(&self) -> Outcome<u64> {
        let running = self.running.as_ref().ok_or("udpcast was not started")?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", running.child.id()))?;
        // After the name, which may contain anything: state and then numbers.
        let (_, numbers) = stat.rsplit_once(')').ok_or("no processor time")?;
        let ticks = |index| numbers.split_whitespace().nth(index)?.parse::<u64>().ok();
        let (user, system) = ticks(11).zip(ticks(12)).ok_or("no processor time")?;
        Ok((user + system) * 1_000_000_000 / clock_ticks_per_second())
    }
}
