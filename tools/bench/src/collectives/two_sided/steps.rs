//! Who sends to whom in a binomial tree with root 0.

use super::super::cell::Operation;

/// What a member does next in an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Receives, and adds or copies what comes.
    Receive {
        from: u32,
        adds: bool,
    },
    Send {
        to: u32,
    },
}

/// Where a member receives a broadcast from; `None` at the root.
pub fn parent(rank: u32) -> Option<u32> {
    (rank > 0).then(|| rank & (rank - 1))
}

/// Where a member sends a broadcast, the largest subtree last.
pub fn children(rank: u32, members: u32) -> impl DoubleEndedIterator<Item = u32> {
    let bits = if rank == 0 { u32::BITS - 1 } else { rank.trailing_zeros() };
    let children: Vec<u32> =
        (0..bits).map(|bit| rank + (1 << bit)).take_while(|&child| child < members).collect();
    children.into_iter()
}

/// The steps of a member: a broadcast goes down the tree; an allreduce is a reduction up the same tree, and a
/// broadcast.
pub fn steps(operation: Operation, rank: u32, members: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    if operation == Operation::AllReduce {
        steps.extend(children(rank, members).map(|from| Step::Receive { from, adds: true }));
        steps.extend(parent(rank).map(|to| Step::Send { to }));
    }
    steps.extend(parent(rank).map(|from| Step::Receive { from, adds: false }));
    steps.extend(children(rank, members).rev().map(|to| Step::Send { to }));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_but_the_root_receives_from_the_one_that_sends_to_it() {
        for members in 1..70 {
            for rank in 0..members {
                for child in children(rank, members) {
                    assert_eq!(parent(child), Some(rank), "{members} members");
                }
                if let Some(parent) = parent(rank) {
                    assert!(children(parent, members).any(|child| child == rank));
                }
            }
        }
    }

    #[test]
    fn a_member_adds_its_childrens_contributions_before_it_sends() {
        let all = steps(Operation::AllReduce, 4, 8);
        let receive = |from, adds| Step::Receive { from, adds };
        let send = |to| Step::Send { to };
        let expected =
            [receive(5, true), receive(6, true), send(0), receive(0, false), send(6), send(5)];
        assert_eq!(all, expected);
        assert_eq!(steps(Operation::Broadcast, 0, 5), [send(4), send(2), send(1)]);
    }
}
