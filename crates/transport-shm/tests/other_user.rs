//! Processes of other users are rejected, although they can see and reach the socket.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use transport_shm::{Offer, ShmError, ShmLink};

use crate::common::PATIENCE;

/// A user without rights.
const USER: u32 = 65_533;
/// The offer that a started process connects to.
const OFFER: &str = "RDMC_TEST_SHM_OTHER_USER";

/// Not a test: the main function of another user's process, which has got hold of an offer.
#[test]
fn stranger() {
    let Ok(text) = std::env::var(OFFER) else { return };
    let offer: Vec<u8> = text.split(' ').map(|byte| byte.parse().unwrap()).collect();
    let refused = ShmLink::connect(&offer).expect_err("it is another user's");
    assert!(matches!(refused, ShmError::OtherUser(0)), "{refused}");
}

#[test]
fn another_users_process_is_rejected_at_both_ends() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: other users' processes: this is not root, which can start them");
        return;
    }
    let offer = Offer::make().unwrap();
    let bytes = *offer.bytes();
    let text: Vec<String> = bytes.iter().map(u8::to_string).collect();
    let accepting = thread::spawn(move || offer.accept(PATIENCE));
    let outcome = Command::new("/proc/self/exe")
        .args(["other_user::stranger", "--exact", "--test-threads=1"])
        .env(OFFER, text.join(" "))
        .current_dir("/")
        .stdin(Stdio::null())
        .uid(USER)
        .gid(USER)
        .output();
    match outcome {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => eprintln!("SKIPPED: this root cannot become another user: {error}"),
    }
    thread::sleep(Duration::from_millis(20));
    assert!(!accepting.is_finished(), "another user's process was accepted");
    ShmLink::connect(&bytes).expect("it listens still");
    accepting.join().unwrap().expect("the right one was accepted");
}
