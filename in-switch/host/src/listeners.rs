//! Listening applications of this host, and their offers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use control::{
    ControlError, ErrorKind,
    host::terms::{Acceptance, Terms, invalid, reason},
    proto::{self, listen_event::Event},
};
use tokio::sync::{Notify, mpsc, oneshot};
use tonic::Status;

/// Listening applications.
pub(crate) const SERVICES_MAX: usize = 256;
/// Open offers of an application.
pub(crate) const OFFERS_MAX: usize = 256;
/// Unread events of an application; one that exceeds it is disconnected.
pub(crate) const EVENTS_MAX: usize = 1024;

/// Events to a listening application.
pub(crate) type Events = mpsc::Sender<Result<proto::ListenEvent, Status>>;

/// Listening applications, by service name.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<BTreeMap<String, Arc<Application>>>);

/// A listening application.
pub(crate) struct Application {
    events: Events,
    state: Mutex<State>,
    overrun: Notify,
}

#[derive(Default)]
struct State {
    /// Number of the last offer.
    last: u64,
    offers: HashMap<u64, Offered>,
    is_gone: bool,
}

/// An open offer.
struct Offered {
    terms: Terms,
    /// `None` once it has been answered.
    answer: Option<oneshot::Sender<Result<Acceptance, String>>>,
    leave: oneshot::Sender<String>,
}

/// Registration of a listening application, until it is dropped.
pub(crate) struct Listening {
    listeners: Arc<Listeners>,
    service: String,
    pub(crate) application: Arc<Application>,
}

/// An offer, for the session that has made it. Dropping it notifies the application of its end.
pub(crate) struct Offer {
    application: Arc<Application>,
    number: u64,
    /// The application's answer. An error: the application has ended.
    pub(crate) answer: oneshot::Receiver<Result<Acceptance, String>>,
    /// The reason why it leaves, later. An error: the application has ended.
    pub(crate) left: oneshot::Receiver<String>,
    reason: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listeners {
    /// Registers an application.
    pub(crate) fn listen(
        self: &Arc<Self>,
        service: String,
        events: Events,
    ) -> Result<Listening, ControlError> {
        let mut all = lock(&self.0);
        if all.contains_key(&service) {
            let why = format!("another application listens as {service:?} here");
            return Err(ControlError::new(ErrorKind::Taken, why));
        }
        if all.len() >= SERVICES_MAX {
            let why = format!("{SERVICES_MAX} applications listen here already");
            return Err(ControlError::new(ErrorKind::Limit, why));
        }
        let (state, overrun) = (Mutex::default(), Notify::new());
        let application = Arc::new(Application { events, state, overrun });
        all.insert(service.clone(), Arc::clone(&application));
        Ok(Listening { listeners: Arc::clone(self), service, application })
    }

    /// Offers a group to the application of this service.
    pub(crate) fn offer(&self, service: &str, terms: Terms) -> Result<Offer, ControlError> {
        let application = lock(&self.0).get(service).cloned();
        let missing = || {
            let why = format!("no application listens as {service:?} there; start it first");
            ControlError::new(ErrorKind::Unknown, why)
        };
        application.ok_or_else(missing)?.offer(terms)
    }

    /// All of them, with the number of their offers.
    pub(crate) fn report(&self) -> Vec<proto::ListeningService> {
        let report = |(name, application): (&String, &Arc<Application>)| proto::ListeningService {
            name: name.clone(),
            offers: lock(&application.state).offers.len() as u32,
        };
        lock(&self.0).iter().map(report).collect()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&self.listeners.0).remove(&self.service);
        let mut state = lock(&self.application.state);
        state.is_gone = true;
        // Dropping them notifies their sessions.
        state.offers.clear();
    }
}

impl Application {
    fn offer(self: Arc<Self>, terms: Terms) -> Result<Offer, ControlError> {
        let (answer, answered) = oneshot::channel();
        let (leave, left) = oneshot::channel();
        let number = {
            let mut state = lock(&self.state);
            if state.is_gone {
                let why = "the application has just ended";
                return Err(ControlError::new(ErrorKind::Unknown, why));
            }
            if state.offers.len() >= OFFERS_MAX {
                let why = format!("the application has {OFFERS_MAX} offers already");
                return Err(ControlError::new(ErrorKind::Limit, why));
            }
            state.last += 1;
            let sent = Some(terms.to_proto());
            let offered = Offered { terms, answer: Some(answer), leave };
            let number = state.last;
            state.offers.insert(number, offered);
            self.send(Event::Offer(proto::Offer { offer: number, terms: sent }));
            number
        };
        let reason = "its sender's host no longer asks".to_owned();
        Ok(Offer { application: self, number, answer: answered, left, reason })
    }

    fn send(&self, event: Event) {
        if self.events.try_send(Ok(proto::ListenEvent { event: Some(event) })).is_err() {
            self.overrun.notify_one();
        }
    }

    /// Waits until the queue of events has overflowed.
    pub(crate) async fn overrun(&self) {
        self.overrun.notified().await;
    }

    /// Handles a request. Errors: it is invalid, and the stream should be closed.
    pub(crate) fn on_request(&self, request: proto::ListenRequest) -> Result<(), ControlError> {
        use proto::listen_request::Kind;
        match request.kind {
            Some(Kind::Accept(accept)) => self.accept(&accept),
            Some(Kind::Refuse(refuse)) => {
                let reason = reason(refuse.reason);
                self.answer(refuse.offer, |_| Ok(Err(reason)))
            }
            Some(Kind::Leave(leave)) => self.leave(leave),
            Some(Kind::Service(_)) => Err(invalid("one stream listens by one name")),
            None => Err(invalid("the application has sent an unknown request")),
        }
    }

    fn accept(&self, accept: &proto::Accept) -> Result<(), ControlError> {
        let joined = proto::Joined {
            address: accept.address.clone(),
            mac: accept.mac.clone(),
            qpn: accept.qpn,
            regions: accept.regions.clone(),
            delegation: Vec::new(),
        };
        let accepted = Acceptance::from_proto(&joined)?;
        self.answer(accept.offer, |terms| terms.check(&accepted).map(|()| Ok(accepted)))
    }

    /// Answers an offer. One that has ended meanwhile is ignored.
    fn answer(
        &self,
        number: u64,
        respond: impl FnOnce(&Terms) -> Result<Result<Acceptance, String>, ControlError>,
    ) -> Result<(), ControlError> {
        let mut state = lock(&self.state);
        let Some(offered) = state.find(number)? else { return Ok(()) };
        let response = respond(&offered.terms)?;
        let twice = || invalid(format!("offer {number} is answered a second time"));
        let answer = offered.answer.take().ok_or_else(twice)?;
        if response.is_err() {
            state.offers.remove(&number);
        }
        // The session may have ended, of which the application is notified.
        let _ = answer.send(response);
        Ok(())
    }

    fn leave(&self, leave: proto::Leave) -> Result<(), ControlError> {
        let mut state = lock(&self.state);
        let Some(offered) = state.find(leave.offer)? else { return Ok(()) };
        if offered.answer.is_some() {
            return Err(invalid(format!("offer {} has not been accepted", leave.offer)));
        }
        if let Some(offered) = state.offers.remove(&leave.offer) {
            let _ = offered.leave.send(reason(leave.reason));
        }
        Ok(())
    }
}

impl State {
    fn find(&mut self, number: u64) -> Result<Option<&mut Offered>, ControlError> {
        if number == 0 || number > self.last {
            return Err(invalid(format!("there was no offer {number}")));
        }
        Ok(self.offers.get_mut(&number))
    }
}

impl Offer {
    /// Notifies the application that the group is installed in the switches.
    pub(crate) fn ready(&self, id: u32) {
        self.application.send(Event::Ready(proto::Ready { offer: self.number, id }));
    }

    /// Ends the offer with a reason.
    pub(crate) fn end(mut self, reason: String) {
        self.reason = reason;
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // Not notified of what it has ended itself.
        if lock(&self.application.state).offers.remove(&self.number).is_some() {
            let reason = std::mem::take(&mut self.reason);
            self.application.send(Event::Ended(proto::OfferEnded { offer: self.number, reason }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::listen_request::Kind;

    fn terms() -> Terms {
        Terms {
            sender: "10.0.0.1".parse().unwrap(),
            sender_qpn: 5,
            psn_first: 6,
            mtu_bytes: 1024,
            regions: Vec::new(),
            application_data: Vec::new(),
            instance: 8,
        }
    }

    fn accept(offer: u64) -> proto::ListenRequest {
        let (address, mac) = ("10.0.0.2".to_owned(), "02:00:00:00:00:02".to_owned());
        let accept = proto::Accept { offer, address, mac, qpn: 7, regions: Vec::new() };
        proto::ListenRequest { kind: Some(Kind::Accept(accept)) }
    }

    fn leave(offer: u64) -> proto::ListenRequest {
        let leave = proto::Leave { offer, reason: "done".into() };
        proto::ListenRequest { kind: Some(Kind::Leave(leave)) }
    }

    type Received = mpsc::Receiver<Result<proto::ListenEvent, Status>>;

    fn next(received: &mut Received) -> Event {
        received.try_recv().unwrap().unwrap().event.unwrap()
    }

    #[test]
    fn an_offer_is_answered_once_and_ends_once() {
        let listeners = Arc::new(Listeners::default());
        let (events, mut received) = mpsc::channel(EVENTS_MAX);
        let listening = listeners.listen("s".into(), events).unwrap();
        let application = &listening.application;
        let mut offer = listeners.offer("s", terms()).unwrap();
        assert!(matches!(next(&mut received), Event::Offer(proto::Offer { offer: 1, .. })));
        assert!(
            application.on_request(leave(1)).unwrap_err().message.contains("not been accepted")
        );
        application.on_request(accept(1)).unwrap();
        assert_eq!(offer.answer.try_recv().unwrap().unwrap().qpn, 7);
        assert!(application.on_request(accept(1)).unwrap_err().message.contains("second time"));
        offer.ready(0x80_0001);
        assert!(matches!(next(&mut received), Event::Ready(_)));
        offer.end("enough".into());
        let Event::Ended(ended) = next(&mut received) else { panic!("not ended") };
        assert_eq!((ended.offer, &*ended.reason), (1, "enough"));
        // Both ends may have ended it at the same time.
        application.on_request(leave(1)).unwrap();
        assert!(application.on_request(accept(2)).unwrap_err().message.contains("no offer 2"));
        assert!(application.on_request(accept(0)).is_err());
        assert!(received.try_recv().is_err());
    }

    #[test]
    fn leaving_and_ending_is_reported_to_the_other_side() {
        let listeners = Arc::new(Listeners::default());
        let (events, mut received) = mpsc::channel(EVENTS_MAX);
        let listening = listeners.listen("s".into(), events).unwrap();
        let mut offers: Vec<Offer> =
            (0..2).map(|_| listeners.offer("s", terms()).unwrap()).collect();
        listening.application.on_request(accept(1)).unwrap();
        listening.application.on_request(leave(1)).unwrap();
        assert_eq!(offers[0].left.try_recv().unwrap(), "done");
        drop(listening);
        assert!(offers[1].answer.try_recv().is_err());
        drop(offers);
        (0..2).for_each(|_| assert!(matches!(next(&mut received), Event::Offer(_))));
        assert!(received.try_recv().is_err(), "not notified of what it has ended itself");
        assert_eq!(listeners.offer("s", terms()).err().unwrap().kind, ErrorKind::Unknown);
    }

    #[test]
    fn names_and_places_are_limited() {
        let listeners = Arc::new(Listeners::default());
        let (events, mut received) = mpsc::channel(EVENTS_MAX);
        let first = listeners.listen("s".into(), events.clone()).unwrap();
        let again = listeners.listen("s".into(), events.clone()).err().unwrap();
        assert_eq!(again.kind, ErrorKind::Taken);
        let offers: Vec<Offer> =
            (0..OFFERS_MAX).map(|_| listeners.offer("s", terms()).unwrap()).collect();
        assert_eq!(listeners.offer("s", terms()).err().unwrap().kind, ErrorKind::Limit);
        drop((offers, first));
        while received.try_recv().is_ok() {}
        let all: Vec<_> = (0..SERVICES_MAX)
            .map(|at| listeners.listen(at.to_string(), events.clone()).unwrap())
            .collect();
        assert_eq!(listeners.listen("x".into(), events).err().unwrap().kind, ErrorKind::Limit);
        assert_eq!(listeners.report().len(), all.len());
    }

    #[tokio::test]
    async fn an_application_that_does_not_read_overruns() {
        let listeners = Arc::new(Listeners::default());
        let (events, _received) = mpsc::channel(1);
        let listening = listeners.listen("s".into(), events).unwrap();
        let _offers = [(); 2].map(|()| listeners.offer("s", terms()).unwrap());
        let overrun = listening.application.overrun();
        tokio::time::timeout(std::time::Duration::from_secs(5), overrun).await.unwrap();
    }

    #[test]
    fn two_names_or_none_are_refused() {
        let listeners = Arc::new(Listeners::default());
        let (events, _received) = mpsc::channel(EVENTS_MAX);
        let listening = listeners.listen("s".into(), events).unwrap();
        for kind in [None, Some(Kind::Service("t".into()))] {
            let error =
                listening.application.on_request(proto::ListenRequest { kind }).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
        }
    }
}
