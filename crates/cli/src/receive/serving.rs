//! One session of a receiver, and how it ends.

use std::path::PathBuf;

use files::receiver::{self, ReceiveError, ReceiverSettings};
use session::Channel;

use crate::failure::{Failure, print_message};

/// Serves a push, a stream or, with `takes_part_in_benches`, a bench.
pub fn serve(
    channel: Channel,
    settings: &ReceiverSettings,
    takes_part_in_benches: bool,
) -> Result<Option<PathBuf>, ReceiveError> {
    match takes_part_in_benches {
        true => receiver::serve_with(channel, settings, measure::take_part),
        false => receiver::serve(channel, settings),
    }
}

/// The failure of the command for the error of a session.
pub fn failure(error: ReceiveError) -> Failure {
    match error {
        ReceiveError::Stopped => Failure::Interrupted,
        ReceiveError::Stream { cause, bytes } if matches!(*cause, ReceiveError::Stopped) => {
            print_message(format_args!(
                "{bytes} bytes of the stream were verified and written out"
            ));
            Failure::Interrupted
        }
        other => Failure::because(other),
    }
}
