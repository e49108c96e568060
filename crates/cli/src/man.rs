//! `rdmc man`: manual pages of all commands.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use clap::Command;
use clap_mangen::Man;

use crate::{
    failure::{Exit, Failure},
    output,
};

/// Write manual pages, one for each command, and print their paths
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  rdmc man /usr/local/share/man/man1")]
pub struct Args {
    /// Directory for the pages; created if missing; pages of an earlier version are replaced
    directory: PathBuf,
}

/// Writes the pages of all commands of this grammar.
pub fn run(args: &Args, grammar: Command) -> Result<Exit, Failure> {
    let directory = &args.directory;
    fs::create_dir_all(directory)
        .map_err(Failure::while_doing(format_args!("creating {}", directory.display())))?;
    let mut grammar = grammar.disable_help_subcommand(true);
    grammar.build();
    let mut written = Vec::new();
    write_pages(&grammar, directory, &mut written)?;
    output::print(|out| written.iter().try_for_each(|path| writeln!(out, "{}", path.display())))?;
    Ok(Exit::Done)
}

/// Writes the pages of a command and of its subcommands.
fn write_pages(
    command: &Command,
    directory: &Path,
    written: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    let page = Man::new(command.clone());
    let path = directory.join(page.get_filename());
    page.generate_to(directory).map_err(Failure::while_doing(path.display()))?;
    written.push(path);
    // Hidden commands are for launchers.
    let mut shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.try_for_each(|command| write_pages(command, directory, written))
}
