//! Sessions of an application, between a root and receivers that are threads of this process.

use std::{
    net::Ipv4Addr,
    path::PathBuf,
    thread::{self, JoinHandle},
    time::Duration,
};

use files::{
    Gathering, GatheringRoot, HostPlan, HostState, PushError, PushSettings, Reach,
    receiver::{self, GatheringReceiver, Placement, ReceiveError, ReceiverSettings, TakePart},
};
use rdmc::Secret;
use session::Deadline;

const TIMEOUT: Duration = Duration::from_secs(30);

type Reception = JoinHandle<Result<Option<PathBuf>, ReceiveError>>;

fn open(secret: &Secret, hosts: usize) -> Gathering {
    let plan = |host| HostPlan {
        name: format!("host-{host}"),
        destination: String::new(),
        rack: 0,
        reach: Reach::Calls,
    };
    let hosts = (0..hosts).map(plan).collect();
    let settings = PushSettings { local_only: true, ..PushSettings::new(hosts, secret.clone()) };
    Gathering::open(settings, 1 << 20).unwrap()
}

/// A receiver that takes part like this, or in files and streams only.
fn receive(
    gathering: &Gathering,
    secret: &Secret,
    host: usize,
    part: Option<TakePart>,
) -> Reception {
    let (port, secret) = (gathering.control_port(), secret.clone());
    let settings = ReceiverSettings::new(format!("host-{host}"), Placement::Anywhere);
    thread::spawn(move || {
        let own = [Ipv4Addr::LOCALHOST.into()];
        let channel = receiver::call(&own, port, &secret, TIMEOUT).unwrap();
        match part {
            Some(part) => receiver::serve_with(channel, &settings, part),
            None => receiver::serve(channel, &settings),
        }
    })
}

/// Returns each message with a byte more, from another thread.
fn echo(session: &GatheringReceiver<'_>) -> Result<(), ReceiveError> {
    assert!(session.check_size(1 << 40).is_ok());
    assert_ne!(session.context().address().port(), 0);
    while let Some(mut message) = session.next()? {
        let sender = session.sender();
        message.push(0);
        thread::spawn(move || sender.send(message)).join().unwrap()?;
    }
    Ok(())
}

fn answers(root: &mut GatheringRoot<'_>, count: usize) -> Vec<(usize, Vec<u8>)> {
    let deadline = Deadline::after(TIMEOUT);
    let mut answers = Vec::new();
    while answers.len() < count {
        assert!(!deadline.left().is_zero(), "only {answers:?} came");
        answers.extend(root.next(deadline).unwrap());
    }
    answers.sort();
    answers
}

#[test]
fn hosts_gather_on_one_network_and_exchange_messages() {
    let secret = Secret::random().unwrap();
    let gathering = open(&secret, 2);
    let receptions = [0, 1].map(|host| receive(&gathering, &secret, host, Some(echo)));
    let mut observe = |_| {};
    let mut root = gathering.root(&mut observe);
    assert!(gathering.context().is_none());
    root.gather().unwrap();
    assert_eq!(root.ready(), [0, 1]);
    let addresses = root.addresses(&[1, 0]);
    assert_eq!(addresses.len(), 3);
    assert_eq!(addresses[0].port(), gathering.context().unwrap().address().port());
    assert_ne!(root.number().unwrap(), root.number().unwrap());
    root.send(0, vec![7]);
    root.send(1, Vec::new());
    assert_eq!(answers(&mut root, 2), [(0, vec![7, 0]), (1, vec![0])]);
    assert!(root.end().is_none());
    for reception in receptions {
        assert!(matches!(reception.join().unwrap(), Ok(None)));
    }
}

#[test]
fn a_host_that_is_given_up_or_lost_is_named_and_the_others_go_on() {
    let secret = Secret::random().unwrap();
    let gathering = open(&secret, 3);
    let receptions = [
        receive(&gathering, &secret, 0, Some(echo)),
        receive(&gathering, &secret, 1, Some(echo)),
        receive(&gathering, &secret, 2, Some(|_| Err(ReceiveError::System("no memory".into())))),
    ];
    let mut observe = |_| {};
    let mut root = gathering.root(&mut observe);
    root.gather().unwrap();
    root.fail(1, "it is too slow");
    let deadline = Deadline::after(TIMEOUT);
    while root.is_ready(2) {
        assert!(!deadline.left().is_zero(), "host-2 has not reported");
        assert_eq!(root.next(deadline).unwrap(), None);
    }
    // It has no connection any more.
    root.send(1, vec![1]);
    root.send(0, vec![5]);
    assert_eq!(answers(&mut root, 1), [(0, vec![5, 0])]);
    root.end();
    assert_eq!(root.state(0), HostState::Ready);
    let failed = |why: &str| HostState::Failed(why.to_owned());
    assert_eq!(root.states()[1..], [failed("it is too slow"), failed("no memory")]);
    let outcomes = receptions.map(|reception| reception.join().unwrap());
    assert!(outcomes[0].is_ok() && outcomes[2].is_err());
    let Err(ReceiveError::Aborted { reason, .. }) = &outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!(reason, "it is too slow");
}

#[test]
fn other_threads_end_waits_and_cancel_the_session() {
    let secret = Secret::random().unwrap();
    let gathering = open(&secret, 1);
    let reception = receive(&gathering, &secret, 0, Some(echo));
    let mut observe = |_| {};
    let mut root = gathering.root(&mut observe);
    root.gather().unwrap();
    // Also before the wait begins.
    gathering.waker().wake();
    let deadline = Deadline::after(TIMEOUT);
    assert_eq!(root.next(deadline).unwrap(), None);
    assert!(!deadline.left().is_zero());
    gathering.handle().cancel();
    let error = loop {
        match root.next(deadline) {
            Ok(_) => assert!(!deadline.left().is_zero(), "it was not cancelled"),
            Err(error) => break error,
        }
    };
    root.stop(error);
    assert!(matches!(root.end(), Some(PushError::Cancelled)));
    assert!(matches!(reception.join().unwrap(), Err(ReceiveError::Aborted { .. })));
}

#[test]
fn a_receiver_of_files_refuses_the_session_of_an_application() {
    let secret = Secret::random().unwrap();
    let gathering = open(&secret, 1);
    let reception = receive(&gathering, &secret, 0, None);
    let mut observe = |_| {};
    let mut root = gathering.root(&mut observe);
    root.gather().unwrap();
    let HostState::Failed(why) = root.state(0) else { panic!("{:?}", root.state(0)) };
    assert!(why.contains("takes no part in measurements"), "{why}");
    root.end();
    assert!(matches!(reception.join().unwrap(), Err(ReceiveError::Refused(_))));
}

#[test]
fn hosts_cannot_join_or_return() {
    let plan = HostPlan {
        name: "host-0".into(),
        destination: String::new(),
        rack: 0,
        reach: Reach::Calls,
    };
    let settings = PushSettings::new(vec![plan], Secret::random().unwrap());
    let error = Gathering::open(PushSettings { retries: 1, ..settings }, 0).err().unwrap();
    assert!(error.to_string().contains("return to it"), "{error}");
}
