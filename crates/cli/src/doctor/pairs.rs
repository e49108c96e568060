//! Runs `rdmc doctor --to`.

use files::PushSettings;
use measure::{ReachCheck, ReachReport};

use super::pairs_report::PairsReport;
use crate::{
    failure::{Exit, Failure, print_message},
    hosting::Hosting,
    interrupt::Interrupt,
    json,
    launch::Launcher,
    named_hosts::NamedHosts,
    output::{self, InUse},
    recording,
    replicate::{Start, add_last_line},
};

/// Lets all machines connect to each other and prints the report.
///
/// Errors: the check cannot start; the report cannot be written.
pub fn run(hosts: &NamedHosts, hosting: &Hosting, as_json: bool) -> Result<Exit, Failure> {
    let interrupt = Interrupt::catch(as_json)?;
    let local = hosts.is_local();
    let settings = hosting.settings(hosts.plans()?, local)?;
    let launcher = hosting.launcher(local)?;
    let mut in_use = InUse::default();
    in_use.add_hosts_file(hosts.hosts_file.as_ref());
    hosting.add_to(&mut in_use);
    let interrupt = interrupt.begin();
    let (trace, verbose) = (hosting.trace.as_ref(), hosting.verbose);
    let (report, traced) = recording::around(trace, &in_use, verbose, |recording| {
        check(settings.clone(), &launcher.recorded(recording), &interrupt)
    })?;
    let names = settings.hosts.iter().map(|host| host.name.clone()).collect();
    let mut report = PairsReport::new(names, settings.ports, report);
    report.failures().for_each(print_message);
    report.exit_code = report.exit().and(traced);
    let written = output::print(|out| {
        if as_json {
            return json::write_pretty(out, &report);
        }
        report.write(out)
    });
    match written {
        Err(failure) if report.exit_code != Exit::Done => print_message(failure),
        other => other?,
    }
    Ok(report.exit_code)
}

fn check(
    mut settings: PushSettings,
    launcher: &Launcher,
    interrupt: &Interrupt,
) -> Result<ReachReport, Failure> {
    let start = Start::of(&mut settings, launcher)?;
    let check = ReachCheck::open(settings).map_err(|error| Failure::of_push(&error))?;
    interrupt.watch(check.handle());
    let (mut receivers, _) = start.receivers(launcher, check.control_port(), &check.handle())?;
    let mut report = check.run(&mut |host| receivers.has_connected(host));
    receivers.end(&|host| report.failures[host].is_some());
    interrupt.check()?;
    if report.error.is_none() {
        for (host, reason) in report.failures.iter_mut().enumerate() {
            if let Some(reason) = reason {
                add_last_line(reason, host, &receivers);
            }
        }
    }
    Ok(report)
}
