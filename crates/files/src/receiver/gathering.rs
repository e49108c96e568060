//! A receiver in a session of an application above this crate ([`crate::Gathering`]).

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use rdmc::{Context, Error, GroupSettings, Secret};

use super::{
    dispatch::unexpected_event,
    error::ReceiveError,
    root_link::{Event, Explainer, RootLink},
};
use crate::{
    changes::Changes,
    control::Control,
    group_terms::GroupTerms,
    messages::{Terms, ToReceiver, ToRoot},
    ranges::RangeList,
};

/// The receiver's end of a session of an application.
pub struct GatheringReceiver<'a> {
    root: &'a RootLink<'a>,
    terms: &'a Terms,
    context: Arc<Context>,
}

impl GatheringReceiver<'_> {
    /// This host's context, on the network that the root has chosen.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Errors: messages of this length are longer than this receiver accepts.
    pub fn check_size(&self, bytes: u64) -> Result<(), ReceiveError> {
        self.root.settings.check_size(bytes)
    }

    /// The group that the root asks this host to join.
    ///
    /// Errors: terms that make no group, or that this receiver does not accept.
    pub fn group_settings(&self, group: &GroupTerms) -> Result<GroupSettings, String> {
        self.root.check_group(self.terms, group)?;
        group.settings().map_err(|error| error.to_string())
    }

    /// Before a team of these members is joined, in which this receiver has this rank.
    ///
    /// Errors: this receiver does not accept it.
    pub fn check_members(&self, members: &[SocketAddr], own_rank: u32) -> Result<(), String> {
        self.root.check_members(self.terms, members, own_rank)
    }

    /// Waits for a message of the root; `None` at the end of the session.
    ///
    /// Errors: the root is lost, or gives this host up; the receiver was stopped.
    pub fn next(&self) -> Result<Option<Vec<u8>>, ReceiveError> {
        loop {
            match self.root.next()? {
                Event::Root(Ok(ToReceiver::Application(message))) => {
                    // What its bytes are for, only the application knows.
                    self.root.settings.reception.stepped();
                    return Ok(Some(message));
                }
                Event::Root(Ok(ToReceiver::Finish)) => return Ok(None),
                event => unexpected_event(event)?,
            }
        }
    }

    /// The session's secret, which authenticates its members to each other.
    pub fn secret(&self) -> &Secret {
        &self.terms.secret
    }

    /// Whether the root has no other rights on this host than its program gives it.
    pub fn is_limited(&self) -> bool {
        self.root.settings.limits.is_some()
    }

    /// Counts a group or team as being joined until what is returned is dropped. Errors: too many are.
    pub fn joining(&self) -> Result<Arc<()>, String> {
        self.root.join(0)
    }

    /// Sends messages from any thread.
    pub fn sender(&self) -> GatheringSender {
        GatheringSender {
            control: Arc::clone(&self.root.control),
            explainer: self.root.explainer(),
        }
    }
}

/// Sends messages of an application to the root.
#[derive(Clone, Debug)]
pub struct GatheringSender {
    control: Arc<Control>,
    explainer: Explainer,
}

impl GatheringSender {
    /// Queues a message; does not block.
    ///
    /// Errors: the root is lost.
    pub fn send(&self, message: Vec<u8>) -> Result<(), ReceiveError> {
        self.control.send(&ToRoot::Application(message)).map_err(ReceiveError::Root)
    }

    /// What may be reported to the root about an error of joining a group.
    pub fn explain(&self, error: &Error) -> String {
        self.explainer.explain(error)
    }
}

/// An application's part in a session. It runs until the last message ([`GatheringReceiver::next`]), or an error, which
/// the root is told.
pub type TakePart = fn(&GatheringReceiver<'_>) -> Result<(), ReceiveError>;

/// Joins the session and runs the application's part until it returns.
pub(super) fn take_part(
    root: &RootLink<'_>,
    terms: &Terms,
    kept: &OnceLock<Arc<Context>>,
    application: Option<TakePart>,
) -> Result<(), ReceiveError> {
    let Some(application) = application else {
        return Err(ReceiveError::Refused(
            "this receiver takes no part in measurements; start it with --bench".into(),
        ));
    };
    let context = agree_on_fabric(root, terms, kept)?;
    application(&GatheringReceiver { root, terms, context })
}

/// Sends the list of fabrics and starts the one that the root chooses.
fn agree_on_fabric(
    root: &RootLink<'_>,
    terms: &Terms,
    kept: &OnceLock<Arc<Context>>,
) -> Result<Arc<Context>, ReceiveError> {
    let fabrics = root.fabrics();
    root.send(&ToRoot::Prepared {
        fabrics,
        kept: RangeList::default(),
        digests: None,
        changes: Changes::default(),
    })?;
    let fabric = loop {
        match root.next()? {
            Event::Root(Ok(ToReceiver::Use { fabric, .. })) => break fabric,
            event => unexpected_event(event)?,
        }
    };
    let context = Arc::new(root.start_context(&fabric, terms)?);
    let _ = kept.set(Arc::clone(&context));
    root.send(&ToRoot::Ready { port: context.address().port() })?;
    Ok(context)
}
