//! A receiver's side of a measurement: messages stay in memory.

mod available;
mod groups;
mod reach;
mod team;

use files::receiver::{GatheringReceiver, ReceiveError};

use crate::messages::{Request, decode};
use groups::Measuring;

/// Takes part in measurements, and in checks of connections, until the root ends the session: for [`files::receiver::serve_with`].
///
/// Errors: the root is lost, gives this host up, or sends what is no measurement; a measurement is longer than this
/// receiver accepts.
pub fn take_part(session: &GatheringReceiver<'_>) -> Result<(), ReceiveError> {
    let mut measuring: Option<Measuring> = None;
    let mut _reaching = None;
    while let Some(message) = session.next()? {
        let request =
            decode(&message).map_err(|why| ReceiveError::System(format!("the root {why}")))?;
        match request {
            Request::Measure(measure) => {
                // The previous one has closed or failed.
                drop(measuring.take());
                session.check_size(measure.bytes)?;
                measuring = groups::join(measure, session)?;
            }
            Request::Collective(request) => {
                session.check_size(request.plan.sizes.iter().copied().max().unwrap_or(0))?;
                team::take_part(request, session)?;
            }
            Request::Reach(request) => {
                // At most one at a time.
                _reaching = None;
                _reaching = reach::take_part(request, session)?;
            }
            Request::Leave { number } => {
                if measuring.as_ref().is_some_and(|measuring| measuring.number == number) {
                    measuring.take().iter().for_each(Measuring::leave);
                }
            }
        }
    }
    Ok(())
}
