//! The asynchronous calls: on tokio, and on a minimal executor that parks its thread.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use rdmc::{Algorithm, Error, Group, GroupSettings, Progress, Region};

use crate::common::{Gate, PATIENCE, World, contents, group};

fn chain(members: u32) -> impl Fn(u32) -> GroupSettings + Sync {
    move |rank| group(1, Algorithm::Chain, members, 0)(rank).send_queue_max(2)
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(PATIENCE),
        }
    }
}

const MESSAGES: u64 = 20;

async fn send(root: &Group) {
    for number in 0..MESSAGES {
        // More messages than may be queued: some calls wait.
        root.send_async(Region::from_vec(contents(number, 5_000))).await.unwrap();
    }
    let last = root.send_async(Region::from_vec(contents(MESSAGES, 5_000))).await.unwrap();
    last.wait_async().await.unwrap();
    let region = last.into_region_async().await.unwrap();
    assert_eq!(region.try_into_vec().unwrap(), contents(MESSAGES, 5_000));
    root.wait_delivered_async(MESSAGES + 1).await.unwrap();
    assert_eq!(root.delivered(), MESSAGES + 1);
    root.close_async().await.unwrap();
}

async fn receive(receiver: &Group) {
    let mut count = 0;
    while let Some(mut message) = receiver.receive_async().await.unwrap() {
        let mut bytes = 0;
        while let Some(range) = message.next_block_async().await.unwrap() {
            bytes += range.end - range.start;
        }
        assert_eq!((message.number(), bytes), (count, message.len()));
        message.wait_async().await.unwrap();
        let region = message.into_region_async().await.unwrap();
        assert_eq!(region.try_into_vec().unwrap(), contents(count, 5_000));
        count += 1;
    }
    assert_eq!(count, MESSAGES + 1);
}

#[test]
fn messages_arrive_on_tokio() {
    let world = World::start(3);
    let groups = world.join_to_receive(chain(3));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    runtime.block_on(async {
        let receivers = groups[1..].iter().map(receive);
        let [one, two] = <[_; 2]>::try_from(receivers.collect::<Vec<_>>()).ok().unwrap();
        tokio::join!(send(&groups[0]), one, two);
    });
    world.close();
}

#[test]
fn futures_can_be_given_to_another_thread() {
    let world = World::start(2);
    let mut groups = world.join_to_receive(chain(2));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (receiver, root) = (groups.pop().unwrap(), groups.pop().unwrap());
    runtime.block_on(async {
        let receiving = tokio::spawn(async move { receive(&receiver).await });
        let sending = tokio::spawn(async move { send(&root).await });
        receiving.await.unwrap();
        sending.await.unwrap();
    });
    world.close();
}

#[test]
fn messages_arrive_with_an_executor_that_parks_its_thread() {
    let world = World::start(2);
    let groups = world.join_to_receive(chain(2));
    thread::scope(|scope| {
        scope.spawn(|| block_on(receive(&groups[1])));
        block_on(send(&groups[0]));
    });
    world.close();
}

#[test]
fn futures_of_a_context_that_its_caller_drives_are_woken_by_it() {
    let ranks = std::sync::atomic::AtomicUsize::new(0);
    let world = World::start_with(2, |settings| {
        if ranks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            settings.progress = Progress::Caller;
        }
    });
    let groups = world.join_to_receive(chain(2));
    thread::scope(|scope| {
        scope.spawn(|| block_on(send(&groups[0])));
        let receiving = scope.spawn(|| block_on(receive(&groups[1])));
        while !receiving.is_finished() {
            world.contexts[1].progress(std::time::Duration::from_millis(1)).unwrap();
        }
        receiving.join().unwrap();
    });
    world.close();
}

#[test]
fn a_failure_ends_futures_that_wait() {
    let world = World::start(2);
    let groups = world.join_to_receive(chain(2));
    let gate = Arc::new(Gate::default());
    let sent = groups[0].try_send(gate.region(100_000)).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(sent.wait_async()));
        block_on(async {
            let mut message = groups[1].receive_async().await.unwrap().expect("a message");
            message.next_block_async().await.unwrap().expect("a block");
            groups[0].abort("on purpose");
            let end = message.wait_async().await;
            assert!(matches!(end, Err(Error::Failed(_))), "{end:?}");
            let end = groups[1].receive_async().await;
            assert!(matches!(end, Err(Error::Failed(_))), "{end:?}");
        });
        assert!(matches!(waiting.join().unwrap(), Err(Error::Failed(_))));
    });
    gate.open();
    world.close();
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

#[test]
fn a_waker_that_panics_fails_its_group_alone() {
    for progress in [Progress::Thread, Progress::Caller] {
        let world = World::start_with(2, |settings| settings.progress = progress);
        let groups = world.join_to_receive(chain(2));
        let other = world.join_to_receive(group(2, Algorithm::Chain, 2, 0));
        let waker = Waker::from(Arc::new(Panics));
        let mut receiving = pin!(groups[1].receive_async());
        assert!(receiving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        thread::scope(|scope| {
            scope.spawn(|| {
                groups[0].try_send(Region::zeroed(3_000)).unwrap();
                assert!(matches!(groups[0].wait_complete(2, PATIENCE), Err(Error::Failed(_))));
            });
            let Err(Error::Failed(failure)) = groups[1].wait_complete(2, PATIENCE) else {
                panic!("the group has failed")
            };
            assert_eq!(failure.detail, "waking a task panicked: on purpose");
        });
        thread::scope(|scope| {
            for group in &other {
                scope.spawn(|| group.close(PATIENCE).unwrap());
            }
        });
        world.close();
    }
}
