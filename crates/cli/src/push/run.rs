//! Runs `rdmc push`.

use std::sync::Arc;

use files::{ListOptions, PushEvent, PushReport, PushSettings, Reach, Source};
use rdmc::Algorithm;
use session::Credentials;

use super::{
    args::Args,
    destinations,
    progress::Progress,
    selection::warn_of,
    sources::{Sources, TreeOptions},
    summary,
    url::is_url,
};
use crate::{
    failure::{Exit, Failure, print_message},
    hosts,
    interrupt::Interrupt,
    launch::Launcher,
    output::InUse,
    progress::Mode,
    recording::{self, Recording},
    replicate::replicate,
    switches,
};

/// Replicates and prints the summary.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interrupt = Interrupt::catch(args.json)?;
    let ready = Ready::of(args)?;
    let in_use = ready.in_use(args)?;
    let interrupt = interrupt.begin();
    let (bwlimit, lists) = (args.transfer.bwlimit, args.hosting.verbose);
    let facts = summary::Facts::new(&ready.source, bwlimit, lists);

    let hosting = &args.hosting;
    let trace = hosting.trace.as_ref();
    let (report, traced) = recording::around(trace, &in_use, hosting.verbose, |recording| {
        ready.push(args, recording, &interrupt)
    })?;
    let exit = summary::exit(&report, interrupt.happened()).and(traced);
    facts.print(&report, exit, args.json, args.quiet);
    Ok(exit)
}

/// The parts of a push, checked as far as possible before it starts.
struct Ready {
    source: Source,
    settings: PushSettings,
    launcher: Launcher,
}

impl Ready {
    fn of(args: &Args) -> Result<Self, Failure> {
        let sources = Sources::of(&args.sources, args.hub_cache)?;
        let list = ListOptions::new(args.patterns.selection()?).any_links(args.links);
        let list = list.keeps(args.attributes.kept());
        let source = sources.open(TreeOptions {
            list: list.without(destinations::local_copies_root(args, &sources)),
            by_contents: args.checksum,
            atomic: args.atomic,
            deletes: args.delete,
            lists_changes: args.hosting.verbose,
        })?;
        let source = match &args.sources[..] {
            [url] if args.together => source.read_by_hosts(&url.to_string_lossy(), args.hub_cache),
            _ => source,
        };
        let settings = settings(args, &sources)?;
        destinations::refuse_overlap(args, &settings.hosts)?;
        let launcher = launcher(args)?;
        if !args.quiet {
            source.unmatched().iter().for_each(warn_of);
        }
        Ok(Self { source, settings, launcher })
    }

    /// Errors: a copy on this machine would replace the source.
    fn in_use(&self, args: &Args) -> Result<InUse, Failure> {
        let mut in_use = InUse::default();
        for path in args.sources.iter().filter(|source| !is_url(source)) {
            in_use.add("the file to replicate", path);
        }
        if args.hosting.trace.is_some() {
            self.source.files().for_each(|path| in_use.add("a file to replicate", path));
        }
        add_to(&mut in_use, args, &self.settings)?;
        Ok(in_use)
    }

    fn push(
        self,
        args: &Args,
        recording: Option<&Arc<Recording>>,
        interrupt: &Interrupt,
    ) -> Result<PushReport, Failure> {
        let Self { source, settings, launcher } = self;
        let bytes = source.manifest().bytes;
        let names: Vec<String> = settings.hosts.iter().map(|host| host.name.clone()).collect();
        let mode = if args.quiet { Mode::None } else { args.progress };
        let mut progress = Progress::start(mode, &names, bytes, args.hosting.verbose);
        let launcher = launcher.recorded(recording);
        let report = replicate(source, settings, &launcher, interrupt, &mut |event| {
            progress.show(&event);
            if let PushEvent::Stopping { publishing } = event
                && interrupt.happened()
            {
                print_message(format_args!(
                    "waiting up to 10 s for {publishing} hosts that are publishing; interrupt again to end now"
                ));
            }
        });
        progress.finish();
        report
    }
}

/// Adds the files of options and the copies on this machine. Errors: one would replace a file in use.
pub fn add_to(in_use: &mut InUse, args: &Args, settings: &PushSettings) -> Result<(), Failure> {
    in_use.add_hosts_file(args.hosts_file.as_ref());
    args.hosting.add_to(in_use);
    let is_copied = args.local.is_some() && args.pipe_to.is_none();
    let copies = settings.hosts.iter().filter(|_| is_copied);
    copies.into_iter().try_for_each(|host| in_use.add_copy(&host.name, host.destination.as_ref()))
}

/// The launcher of the receivers.
pub fn launcher(args: &Args) -> Result<Launcher, Failure> {
    let launcher = match args.slurm {
        true => args.hosting.slurm_launcher(),
        false => args.hosting.launcher(args.local.is_some()),
    }?;
    // The default destinations of copies on this machine are in separate directories.
    Ok(launcher.making_directories(args.mkdir || args.local.is_some() && args.dest.is_none()))
}

pub fn settings(args: &Args, sources: &Sources) -> Result<PushSettings, Failure> {
    let local = args.local.is_some();
    let mut settings = args.hosting.settings(destinations::hosts(args, sources)?, local)?;
    destinations::find_own_rack(&mut settings);
    if args.exclude_self {
        destinations::exclude_this_machine(&mut settings, args)?;
    }
    if args.mkdir && settings.hosts.iter().any(|host| host.reach != Reach::Calls) {
        let what = "--mkdir is for receivers that this push starts; one that listens (HOST:PORT) creates no directories";
        return Err(Failure::Usage(what.into()));
    }
    destinations::put_into_racks(&mut settings, args)?;
    args.transfer.apply(&mut settings);
    settings.fabric = args.fabric.0.clone();
    settings.oversubscription = args.oversubscription;
    settings.offload = args.offload;
    settings.dry_run = args.dry_run;
    settings.all_or_none = args.all_or_none;
    if let Some(hosts) = &args.source_hosts {
        let hosts = hosts::parse(hosts).map_err(Failure::Usage)?;
        settings.source_hosts = hosts.into_iter().map(|host| host.name).collect();
    }
    settings.retries = args.retry;
    settings.rate_min = args.min_rate.map(|bits| bits / 8);
    settings.admission = destinations::admission(args, sources)?;
    if let Some(agent) = &args.switch {
        let Some(Credentials::Certificates(certificates)) = &settings.credentials else {
            return Err(Failure::Usage("--switch needs --cert, --key and --ca".into()));
        };
        settings.switches = switches::ask(agent, certificates)?;
        let algorithm = *settings.algorithm.get_or_insert(Algorithm::InSwitch);
        if algorithm != Algorithm::InSwitch {
            let what = format!("--switch needs --algorithm in-switch or auto, not {algorithm}");
            return Err(Failure::Usage(what));
        }
    }
    if args.transfer.is_in_switch() && !settings.switches.is_some() {
        return Err(Failure::Usage(
            "--algorithm in-switch needs the agent of a switch that copies (--switch HOST:PORT); with \
             --algorithm auto the receivers relay"
                .into(),
        ));
    }
    Ok(settings)
}
