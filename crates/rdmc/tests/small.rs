//! Small messages, between contexts of this process.

use rdmc::{Algorithm, Region, SmallMessages};

use crate::common::{Event, PATIENCE, World, close_all, contents, group};

#[test]
fn small_and_large_messages_arrive_in_order_over_a_real_network() {
    const COUNT: u64 = 300;
    let bytes_of = |message: u64| if message % 50 == 7 { 50_000 } else { message as usize % 40 };
    let world = World::start(4);
    let settings = group(1, Algorithm::BinomialPipeline, 4, 1);
    let groups = world.join(|rank| {
        let mut settings = settings(rank);
        settings.small = Some(SmallMessages { slots: 16, ..SmallMessages::default() });
        settings
    });
    let (root, _) = &groups[1];
    let handles: Vec<_> = (0..COUNT)
        .map(|message| {
            root.try_send(Region::from_vec(contents(message, bytes_of(message)))).unwrap()
        })
        .collect();
    drop(handles);
    assert!(close_all(&groups).into_iter().all(|closed| closed.is_ok()));
    for (rank, (_, events)) in groups.iter().enumerate() {
        let mut complete = 0;
        while let Ok(event) = events.recv_timeout(PATIENCE) {
            match event {
                Event::Complete(message, got) => {
                    assert_eq!(message, complete, "in order");
                    assert!(got == contents(message, bytes_of(message)), "{rank}: {message}");
                    complete += 1;
                }
                Event::Failed(failure, _) => panic!("{failure}"),
                Event::Closed => break,
                _ => {}
            }
        }
        assert_eq!(complete, COUNT);
    }
    let counters = world.contexts[0].counters().unwrap();
    assert_eq!(counters.small_received, COUNT - COUNT / 50);
    drop(groups);
    world.close();
}
