//! `rdmc launch`: starts receivers on this host and on others, for a push on another host.

use std::{
    io::{self, BufRead, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use zeroize::Zeroizing;

use super::{
    launcher::Launcher,
    logins::Login,
    order::{Callback, LINE_BYTES_MAX, Order},
    receivers::{Receivers, Superior},
};
use crate::{
    failure::{Exit, Failure},
    interrupt::Interrupt,
    invitation::Invitation,
};

const TICK: Duration = Duration::from_millis(20);

/// Start receivers on this host and on others, for launchers
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
`rdmc push` runs this command on some hosts if there are many. It reads an invitation and an order from standard \
input, and ends when all receivers have ended or standard input is closed.")]
pub struct Args {}

/// Runs until all receivers, or the push, have ended.
///
/// Errors: no invitation or order on standard input; no threads.
pub fn run(_: &Args) -> Result<Exit, Failure> {
    let invitation = Invitation::from_line(&read_line()?).map_err(Failure::Failed)?;
    let order = Order::from_line(&read_line()?).map_err(Failure::Failed)?;
    let interrupt = Interrupt::catch(false)?.begin();
    let is_over = when_input_ends()?;
    let Invitation { secret, addresses, networks, port, makes_directories, .. } = invitation;
    let callback = Callback { addresses, networks, port, secret, makes_directories };
    // An order has at least one host: this one.
    let (own, others) = order.hosts.split_at(1);
    let launcher = Launcher::of_order(&order)?;
    let superior = Superior::Launcher(order.depth);
    let mut receivers = Receivers::launch(&launcher, others, &callback, &superior)?;
    let own = Login::to(own.to_vec());
    let here = Launcher::local(order.verbose);
    receivers.add(&here, &own, &callback).map_err(Failure::Failed)?;
    while !is_over.load(Ordering::Relaxed) && !interrupt.happened() && !receivers.have_ended() {
        thread::sleep(TICK);
    }
    receivers.end(&|_| false);
    Ok(Exit::Done)
}

fn read_line() -> Result<Zeroizing<String>, Failure> {
    let mut line = Zeroizing::new(String::new());
    let failed = Failure::while_doing("standard input");
    io::stdin().lock().take(LINE_BYTES_MAX).read_line(&mut line).map_err(failed)?;
    Ok(line)
}

/// A flag that is set when standard input ends, as it does when the push ends in any way. The thread that waits for this
/// is not joined.
fn when_input_ends() -> Result<Arc<AtomicBool>, Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&is_over);
    let wait = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        set.store(true, Ordering::Relaxed);
    };
    thread::Builder::new()
        .name("rdmc-stdin".into())
        .spawn(wait)
        .map_err(Failure::while_doing("starting a thread"))?;
    Ok(is_over)
}
