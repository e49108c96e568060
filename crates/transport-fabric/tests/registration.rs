//! Registration of memory ahead of posts.

use std::{fs::File, time::Duration};

use transport::{Completion, Region, Token, Transport};
use transport_fabric::FabricTransport;

use crate::common::{Place, connect, start};

/// Blocks pass through copies, which are registered whatever the provider needs.
fn registering() -> FabricTransport {
    start(&Place { always_copies: true, ..Place::here("tcp") })
}

fn pieces(region: &Region) -> usize {
    region.memory().0.attachments().len()
}

#[test]
fn registered_memory_stays_registered_and_is_used() {
    let (mut sender, mut receiver) = (registering(), registering());
    let (to_receiver, to_sender) = connect(&mut sender, &mut receiver);
    let (from, into) = (Region::from_vec(vec![7; 1000]), Region::allocate(1000).unwrap());
    assert_eq!((pieces(&from), pieces(&into)), (0, 0));
    sender.register(&from.slice(100..300).unwrap()).unwrap();
    receiver.register(&into).unwrap();
    receiver.register(&into).unwrap();
    assert_eq!((pieces(&from), pieces(&into)), (1, 1), "again changes nothing");
    receiver.post_receive(to_sender, into.write(0..1000).unwrap(), Token(1)).unwrap();
    receiver.write_control(to_sender, b"posted").unwrap();
    let mut completions = Vec::new();
    let mut await_one = |transport: &mut FabricTransport, other: &mut FabricTransport| {
        completions.clear();
        while completions.is_empty() {
            transport.poll(&mut completions, Duration::from_millis(1));
            other.poll(&mut Vec::new(), Duration::ZERO);
        }
        completions.remove(0)
    };
    let word = await_one(&mut sender, &mut receiver);
    assert!(matches!(word, Completion::Control { .. }), "{word:?}");
    sender.post_send(to_receiver, from.read(0..1000).unwrap(), 0, Token(2)).unwrap();
    let received = await_one(&mut receiver, &mut sender);
    assert!(matches!(received, Completion::Received { bytes: 1000, .. }), "{received:?}");
    assert_eq!((pieces(&from), pieces(&into)), (1, 1), "nothing was registered for the block");
    assert_eq!(into.read(0..1000).unwrap()[..], [7; 1000]);
}

#[test]
fn files_and_empty_regions_need_no_registration() {
    let mut transport = registering();
    let file = File::open(std::env::current_exe().unwrap()).unwrap();
    transport.register(&Region::from_file(&file, 3).unwrap()).unwrap();
    transport.register(&Region::from_vec(Vec::new())).unwrap();
}
