//! iperf3 servers on all hosts, and clients that measure to them.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read},
    process::{Child, Command, Stdio},
    sync::{
        atomic::AtomicBool,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use lab::{Error, Host, Lab};
use serde_json::Value;

use crate::terminal::check_stop;

/// For a server to listen, and for a client beyond the flow itself.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a flow got, in bits per second of payload at its receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Got {
    pub there: f64,
    /// The other direction, if it was measured too.
    pub back: Option<f64>,
}

/// A server on each host of a lab, ended when this is dropped.
pub struct Servers {
    hosts: Vec<Host>,
    running: Vec<Running>,
}

/// A process that is ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Servers {
    /// Starts them, and waits until all listen.
    pub fn start(lab: &Lab, stop: &AtomicBool) -> Result<Self, Error> {
        if let Err(error) = Command::new("iperf3").arg("--version").stdout(Stdio::null()).status() {
            return Err(Error::Failed(match error.kind() {
                ErrorKind::NotFound => "iperf3 is not installed; install the package iperf3".into(),
                _ => format!("cannot run iperf3: {error}"),
            }));
        }
        let mut servers = Self { hosts: lab.hosts(), running: Vec::new() };
        let (sender, listening) = mpsc::channel();
        for (number, host) in servers.hosts.iter().enumerate() {
            let mut command = host.command("iperf3");
            command.args(["--server", "--forceflush"]);
            let mut child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
            let output = child.stdout.take();
            servers.running.push(Running(child));
            let sender = sender.clone();
            // Reads on, since a full pipe would stop the server. Ends with the server.
            thread::spawn(move || {
                for line in BufReader::new(output?).lines().map_while(Result::ok) {
                    if line.contains("Server listening") {
                        let _ = sender.send(number);
                    }
                }
                Some(())
            });
        }
        drop(sender);
        let deadline = Instant::now() + TIMEOUT;
        let mut ready = 0;
        while ready < servers.running.len() {
            check_stop(stop)?;
            match listening.recv_timeout(POLL_INTERVAL) {
                Ok(_) => ready += 1,
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => {
                    let why = "is one running there already? `rdmc-lab down` ends it";
                    return Err(Error::Failed(format!(
                        "not all iperf3 servers could start; {why}"
                    )));
                }
            }
        }
        Ok(servers)
    }

    /// Flows between these pairs, all at the same time, and back as well if both ways are wanted.
    /// No host may be the target of two.
    pub fn measure(
        &self,
        pairs: &[[u32; 2]],
        both: bool,
        seconds: u32,
        stop: &AtomicBool,
    ) -> Result<Vec<Got>, Error> {
        let mut clients = Vec::new();
        for &[from, to] in pairs {
            let mut command = self.hosts[from as usize].command("iperf3");
            command.args(["--json", "--client", &self.hosts[to as usize].address.to_string()]);
            command
                .args(["--omit", "1", "--time", &seconds.to_string()])
                .args(both.then_some("--bidir"));
            let mut child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
            let output = child.stdout.take();
            let reader = thread::spawn(move || {
                let mut text = String::new();
                output?.read_to_string(&mut text).ok()?;
                Some(text)
            });
            clients.push((Running(child), reader));
        }
        let deadline = Instant::now() + TIMEOUT + Duration::from_secs(seconds.into());
        let mut all = Vec::new();
        for ((mut client, reader), [from, to]) in clients.into_iter().zip(pairs) {
            while client.0.try_wait().map_err(|error| Error::Failed(error.to_string()))?.is_none() {
                check_stop(stop)?;
                if Instant::now() > deadline {
                    return Err(Error::Failed(format!("iperf3 from {from} to {to} does not end")));
                }
                thread::sleep(POLL_INTERVAL);
            }
            let text = reader.join().ok().flatten().unwrap_or_default();
            let got = parse(&text, both)
                .map_err(|why| Error::Failed(format!("iperf3 from {from} to {to}: {why}")))?;
            all.push(got);
        }
        Ok(all)
    }
}

fn spawn(command: &mut Command) -> Result<Child, Error> {
    command.spawn().map_err(|error| Error::Failed(format!("cannot run ip or iperf3: {error}")))
}

/// Reads the client's report.
fn parse(text: &str, both: bool) -> Result<Got, String> {
    let report: Value =
        serde_json::from_str(text).map_err(|_| "it printed no report".to_owned())?;
    if let Some(error) = report["error"].as_str() {
        return Err(error.to_owned());
    }
    let of = |name: &str| {
        let rate = report["end"][name]["bits_per_second"].as_f64();
        rate.ok_or_else(|| format!("its report has no {name}"))
    };
    let back = if both { Some(of("sum_received_bidir_reverse")?) } else { None };
    Ok(Got { there: of("sum_received")?, back })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_receivers() {
        let report = r#"{"end": {"sum_received": {"bits_per_second": 5e6},
                         "sum_received_bidir_reverse": {"bits_per_second": 4e6}}}"#;
        assert_eq!(parse(report, false), Ok(Got { there: 5e6, back: None }));
        assert_eq!(parse(report, true), Ok(Got { there: 5e6, back: Some(4e6) }));
    }

    #[test]
    fn errors_of_iperf3_are_returned() {
        let error = r#"{"error": "unable to connect"}"#;
        assert_eq!(parse(error, false), Err("unable to connect".to_owned()));
        assert!(parse("", false).is_err() && parse("{}", false).is_err());
    }
}
