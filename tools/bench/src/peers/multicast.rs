//! udpcast and uftp: programs that send files by IP multicast.
//!
//! udpcast goes from a pipe to pipes. uftp goes from a file to files, which are kept in memory.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
};

use super::transfer::{Args, Transfer};
use crate::{
    clock::{ClockId, now_ns},
    outcome::Outcome,
    procfs::cpu_ns,
};

/// The multicast address at which sender and receivers of udpcast find each other. By default
/// receivers use the network's broadcast address, which may not be set.
const MEETING_ADDRESS: &str = "239.77.0.1";
/// What receivers buffer, in bytes: by default too little for processes that wait for a core.
const RECEIVE_BUFFER: &str = "4194304";
/// Printed by udp-sender when all receivers are there.
const UDPCAST_STARTS: &str = "Starting transfer";
/// Printed by uftp when all receivers are there.
const UFTP_STARTS: &str = "Sending file";
/// Printed by uftpd when it has a whole file.
const UFTP_HAS_IT: &str = "RESULT;";

/// A running program, killed when dropped.
struct Program(Child);

impl Program {
    /// Starts a program that is killed when this process ends.
    fn start(command: &mut Command) -> Outcome<Self> {
        let mut all = Command::new("setpriv");
        all.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
        all.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = command.get_program().display();
        Ok(Self(all.spawn().map_err(|error| format!("cannot start {name}: {error}"))?))
    }

    /// User and system, also of one that has ended.
    fn cpu_ns(&self) -> Outcome<u64> {
        cpu_ns(self.0.id()).ok_or_else(|| "no processor time".into())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads until a line has this part. Answers the rest of the output.
fn await_line<R: Read>(output: Option<R>, part: &str) -> Outcome<BufReader<R>> {
    let mut output = BufReader::new(output.ok_or("the program has no output")?);
    let (mut line, mut last) = (Vec::new(), String::new());
    while output.read_until(b'\n', &mut line)? > 0 {
        last = String::from_utf8_lossy(&line).trim().to_owned();
        if last.contains(part) {
            return Ok(output);
        }
        line.clear();
    }
    Err(format!("ended before it printed \"{part}\": {last}").into())
}

/// Reads on, so that a full pipe does not stop the program.
fn ignore(mut output: impl Read + Send + 'static) {
    thread::spawn(move || io::copy(&mut output, &mut io::sink()));
}

/// One member's process of udpcast, started anew for each transfer.
pub struct Udpcast {
    is_root: bool,
    receivers: u32,
    device: String,
    program: Option<Program>,
    input: Option<ChildStdin>,
}

impl Udpcast {
    pub fn new(args: &Args) -> Self {
        Self {
            is_root: args.rank == 0,
            receivers: args.members - 1,
            device: args.device.clone(),
            program: None,
            input: None,
        }
    }
}

impl Transfer for Udpcast {
    fn prepare(&mut self, _object: &[u8]) -> Outcome<()> {
        let mut command = Command::new(if self.is_root { "udp-sender" } else { "udp-receiver" });
        command.args(["--nokbd", "--no-progress", "--interface", &self.device]);
        command.args(["--mcast-rdv-address", MEETING_ADDRESS]);
        if self.is_root {
            command.args(["--min-receivers", &self.receivers.to_string()]);
        } else {
            command.args(["--rcvbuf", RECEIVE_BUFFER]);
        }
        // The one before lingers for half a second after its last byte: it is not needed any more.
        self.program = None;
        let mut program = Program::start(&mut command)?;
        if self.is_root {
            ignore(await_line(program.0.stderr.take(), UDPCAST_STARTS)?);
            self.input = program.0.stdin.take();
        }
        self.program = Some(program);
        Ok(())
    }

    fn transfer(&mut self, object: &mut [u8]) -> Outcome<u64> {
        let started_ns = now_ns(ClockId::Monotonic);
        if let Some(mut input) = self.input.take() {
            input.write_all(object)?;
        } else {
            let output = self.program.as_mut().and_then(|program| program.0.stdout.as_mut());
            output.ok_or("udp-receiver was not started")?.read_exact(object)?;
        }
        Ok(started_ns)
    }

    fn cpu_ns(&self) -> Outcome<u64> {
        self.program.as_ref().map_or(Ok(0), Program::cpu_ns)
    }
}

/// One member's process of uftp, started anew for each transfer.
pub struct Uftp {
    rank: u32,
    device: String,
    rate_kbit: u64,
    object: PathBuf,
    directory: PathBuf,
    program: Option<Program>,
}

impl Uftp {
    /// Files go below `args.memory`.
    pub fn new(args: &Args) -> Outcome<Self> {
        let directory = args.memory.join(args.rank.to_string());
        fs::create_dir_all(&directory)?;
        Ok(Self {
            rank: args.rank,
            device: args.device.clone(),
            rate_kbit: args.rate_kbit,
            object: directory.join("object"),
            directory,
            program: None,
        })
    }
}

impl Transfer for Uftp {
    fn prepare(&mut self, object: &[u8]) -> Outcome<()> {
        self.program = None;
        if self.rank == 0 {
            fs::write(&self.object, object)?;
            return Ok(());
        }
        let mut command = Command::new("uftpd");
        command.args(["-d", "-q", "-F", "@LOG", "-B", RECEIVE_BUFFER, "-I", &self.device]);
        command.arg("-D").arg(&self.directory);
        self.program = Some(Program::start(&mut command)?);
        Ok(())
    }

    fn transfer(&mut self, _object: &mut [u8]) -> Outcome<u64> {
        if let Some(program) = &mut self.program {
            let started_ns = now_ns(ClockId::Monotonic);
            ignore(await_line(program.0.stderr.take(), UFTP_HAS_IT)?);
            return Ok(started_ns);
        }
        let mut command = Command::new("uftp");
        let kbit = self.rate_kbit.to_string();
        command.args(["-q", "-R", &kbit, "-I", &self.device, "-D", "object"]).arg(&self.object);
        let mut program = Program::start(&mut command)?;
        let mut output = await_line(program.0.stderr.take(), UFTP_STARTS)?;
        let started_ns = now_ns(ClockId::Monotonic);
        io::copy(&mut output, &mut io::sink())?;
        self.program = Some(program);
        Ok(started_ns)
    }

    fn finish(&mut self, object: &mut [u8]) -> Outcome<()> {
        fs::File::open(&self.object)?.read_exact(object)?;
        Ok(fs::remove_file(&self.object)?)
    }

    fn cpu_ns(&self) -> Outcome<u64> {
        self.program.as_ref().map_or(Ok(0), Program::cpu_ns)
    }
}
