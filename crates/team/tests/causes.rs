//! Who has caused a failure.

use std::time::Duration;

use engine::FailureKind;
use team::{Team, TeamSettings};
use transport::{Cause, Completion, EndpointId, OneSidedWrites, PostError, Transport};
use transport_sim::{SimConfig, SimLink, SimNet, SimTransport};

/// Its first link ends because something is missing at this member.
struct Lacking {
    inner: SimTransport,
    first: Option<EndpointId>,
}

impl Transport for Lacking {
    type Link = SimLink;

    transport::forward!(inner; now, block_bytes_max, post_receive, post_send, write_control, close, waker);

    fn open(&mut self, link: SimLink) -> Result<EndpointId, PostError> {
        let endpoint = self.inner.open(link)?;
        self.first.get_or_insert(endpoint);
        Ok(endpoint)
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        self.inner.one_sided()
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        if let Some(endpoint) = self.first.take() {
            self.inner.close(endpoint);
            let cause = Cause::Memory { access: "mapped", error: "there is no room".into() };
            completions.push(Completion::Broken { endpoint, cause });
        }
        self.inner.poll(completions, wait);
    }
}

#[test]
fn a_member_that_lacks_memory_is_named_and_not_the_one_at_the_other_end_of_the_link() {
    let net = SimNet::new(SimConfig::default(), 1);
    let [one, other, last] = std::array::from_fn(|_| net.member());
    let (near, far) = net.connect(0, 1);
    let ((to_last, from_one), (beside, from_other)) = (net.connect(0, 2), net.connect(1, 2));
    let settings = |rank| TeamSettings::new(1, 3, rank);
    let lacking = Lacking { inner: one, first: None };
    let mut lacking = Team::new(lacking, settings(0), [(1, near), (2, to_last)]).unwrap();
    let mut other = Team::new(other, settings(1), [(0, far), (2, beside)]).unwrap();
    let mut last = Team::new(last, settings(2), [(0, from_one), (1, from_other)]).unwrap();
    lacking.progress(&mut [], Duration::ZERO);
    while net.step().is_some() {
        last.progress(&mut [], Duration::ZERO);
    }
    other.progress(&mut [], Duration::ZERO);
    for failure in [lacking.failure(), last.failure()] {
        let failure = failure.expect("it has failed");
        assert_eq!((failure.member, failure.kind), (Some(0), FailureKind::Memory), "{failure}");
    }
    assert_eq!(other.failure().expect("it has failed").member, Some(0));
}
