//! Processes in other network namespaces, such as containers, have the machine in common and not its abstract sockets.

use std::{
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::io::Errno;
use transport_shm::{Offer, ShmError, ShmLink};

use crate::common::PATIENCE;

/// The offer that a started process connects to.
const OFFER: &str = "RDMC_TEST_SHM_OTHER_NETWORK";

/// Not a test: the main function of a process in another network namespace.
#[test]
fn elsewhere() {
    let Ok(text) = std::env::var(OFFER) else { return };
    let offer: Vec<u8> = text.split(' ').map(|byte| byte.parse().unwrap()).collect();
    let refused = ShmLink::connect(&offer).expect_err("the connection is refused");
    let is_refused = matches!(
        &refused,
        ShmError::System { step: "connecting to the peer's process", error }
            if error.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error())
    );
    assert!(is_refused, "{refused}");
}

/// The links of both then stay on TCP, as those of another user's process.
#[test]
fn a_process_in_another_network_namespace_is_told_at_once_that_nobody_listens() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: other network namespaces: this is not root, which can make them");
        return;
    }
    let can = Command::new("unshare").args(["--net", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: other network namespaces: this root cannot make them");
        return;
    }
    let offer = Offer::make().unwrap();
    let bytes = *offer.bytes();
    let text: Vec<String> = bytes.iter().map(u8::to_string).collect();
    let accepting = thread::spawn(move || offer.accept(PATIENCE));
    let output = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["other_network::elsewhere", "--exact", "--test-threads=1"])
        .env(OFFER, text.join(" "))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    thread::sleep(Duration::from_millis(20));
    assert!(!accepting.is_finished(), "it was accepted");
    ShmLink::connect(&bytes).expect("it listens still");
    accepting.join().unwrap().expect("one of this namespace is accepted");
}
