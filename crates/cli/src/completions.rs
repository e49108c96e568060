//! `rdmc completions`: scripts that complete command lines.

use std::io::Write;

use clap::Command;
use clap_complete::Shell;

use crate::{
    failure::{Exit, Failure},
    output,
};

/// Print a script that completes commands, options and values in a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rdmc completions bash > ~/.local/share/bash-completion/completions/rdmc
  rdmc completions zsh > ~/.zfunc/_rdmc          with fpath+=~/.zfunc before compinit in ~/.zshrc
  rdmc completions fish > ~/.config/fish/completions/rdmc.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script for this grammar.
pub fn run(args: &Args, mut grammar: Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut grammar, "rdmc", &mut script);
    output::print(|out| out.write_all(&script))?;
    Ok(Exit::Done)
}
