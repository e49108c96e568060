//! Log output.

use std::io::IsTerminal;

/// Logs to standard error, filtered by RUST_LOG, or at level debug with --verbose, but without logs of the TLS library. Trace
/// events go to the trace, if there is one.
pub fn start(verbose: bool, trace: Option<&trace::Writer>) {
    use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};
    let wanted = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let wanted = wanted.or_else(|| verbose.then(|| "debug,rustls=warn".to_owned()));
    if wanted.is_none() && trace.is_none() {
        return;
    }
    let logs = wanted.map(|filter| {
        tracing_subscriber::fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            .with_filter(EnvFilter::new(filter))
    });
    tracing_subscriber::registry().with(logs).with(trace.map(trace::Writer::layer)).init();
}
