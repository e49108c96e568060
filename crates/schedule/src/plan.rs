//! The public interface, in real ranks; algorithms use virtual ranks.

use crate::{
    algorithm::Algorithm,
    chain::Chain,
    circulant::Circulant,
    error::ScheduleError,
    fanout::Fanout,
    flow::{Flow, Hop, floor_log2},
    limits::MAX_MEMBERS,
    pipeline::Pipeline,
    rack_flow::RackFlow,
    racks::Hybrid,
    sequential::Sequential,
    tree::Tree,
};

/// One block sent from one member to another at one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The step, counted in block times from 0.
    pub step: u64,
    /// The rank that sends.
    pub source: u32,
    /// The rank that receives.
    pub target: u32,
    /// The number of the block in the message, counted from 0.
    pub block: u32,
}

/// All transfers of a message, by step, for one group and one root.
///
/// A schedule is immutable and cheap to clone. One schedule serves messages of any number of blocks; queries take
/// this number. Queries for a rank that is not in the group, for a step at or after [`steps`](Self::steps), or for a
/// message of 0 blocks return `None`. Queries never panic and never allocate.
#[derive(Debug, Clone)]
pub struct Schedule {
    algorithm: Algorithm,
    members: u32,
    root: u32,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    /// One member: there are no transfers.
    Alone,
    Sequential(Sequential),
    Chain(Chain),
    Tree(Tree),
    Pipeline(Pipeline),
    Circulant(Circulant),
    Fanout(Fanout),
    Hybrid(Hybrid),
    Racks(RackFlow),
}

impl Schedule {
    /// Makes a schedule for `members` members, of which rank `root` has the message. Takes constant time
    /// and does not allocate.
    ///
    /// # Errors
    /// If `members` is not in 1 ..= [`MAX_MEMBERS`], if `root` is not a rank, or if the algorithm needs racks
    /// (use [`with_racks`](Self::with_racks)).
    pub fn new(algorithm: Algorithm, members: u32, root: u32) -> Result<Self, ScheduleError> {
        check(members as usize, root)?;
        let kind = match algorithm {
            _ if members == 1 && !algorithm.needs_racks() => Kind::Alone,
            Algorithm::Sequential => Kind::Sequential(Sequential { members }),
            Algorithm::Chain => Kind::Chain(Chain { members }),
            Algorithm::BinomialTree => Kind::Tree(Tree { members }),
            Algorithm::BinomialPipeline => Kind::Pipeline(Pipeline::new(members)),
            Algorithm::Circulant => Kind::Circulant(Circulant::new(members)),
            Algorithm::InSwitch => Kind::Fanout(Fanout { members }),
            Algorithm::ChainOfRacks
            | Algorithm::NestedPipelines
            | Algorithm::RacksChain
            | Algorithm::RacksPipeline => {
                return Err(ScheduleError::RacksNeeded { algorithm });
            }
        };
        Ok(Self { algorithm, members, root, kind })
    }

    /// Makes a schedule for members in racks. `racks` has the rack number of each rank; any numbers are valid, and
    /// the members of a rack need not be adjacent in rank order. Algorithms that do not need racks ignore `racks`.
    ///
    /// The root is the leader of its rack; in every other rack the lowest rank is. The leaders' layer has the root's
    /// rack first and the others in the order of their lowest ranks. Takes O(n log n) time and 12 bytes per member.
    ///
    /// # Errors
    /// If `racks` does not have 1 ..= [`MAX_MEMBERS`] entries, or if `root` is not a rank.
    pub fn with_racks(
        algorithm: Algorithm,
        racks: &[u32],
        root: u32,
    ) -> Result<Self, ScheduleError> {
        let members = check(racks.len(), root)?;
        let kind = match algorithm {
            _ if members == 1 => Kind::Alone,
            Algorithm::ChainOfRacks => Kind::Hybrid(Hybrid::chain_of_racks(racks, root)),
            Algorithm::NestedPipelines => Kind::Hybrid(Hybrid::nested_pipelines(racks, root)),
            Algorithm::RacksChain => Kind::Racks(RackFlow::chain(racks, root)),
            Algorithm::RacksPipeline => Kind::Racks(RackFlow::pipeline(racks, root)),
            _ => return Self::new(algorithm, members, root),
        };
        Ok(Self { algorithm, members, root, kind })
    }

    /// Returns the algorithm of the schedule.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the number of members; ranks are 0 to `members - 1`.
    #[must_use]
    pub fn members(&self) -> u32 {
        self.members
    }

    /// Returns the rank that has the message at the start.
    #[must_use]
    pub fn root(&self) -> u32 {
        self.root
    }

    /// Returns the number of steps of a message of `blocks` blocks; 0 for no blocks or one member. The last step
    /// has at least one transfer. For `n` members, `k` blocks and `q = ceil(log2 n)`:
    ///
    /// - sequential `k(n-1)`, chain `k+n-2`, binomial tree `kq` (DSN section 4.3);
    /// - in-switch `k(n-1)`, which take `k` block times if switches copy;
    /// - binomial pipeline and circulant `k-1+q`, which is optimal (DSN section 4.4, Träff);
    /// - chain of racks and nested pipelines, when there are several racks and one has several members:
    ///   the largest of `2(k-1+q')-1` for the leaders' own layer, where `q'` is `racks - 1` for the chain and
    ///   `ceil(log2 racks)` for the pipeline, and, for each rack of `m > 1` members, `2(k-1+ceil(log2 m)+lag)`.
    ///   The lag is 0 in the root's rack; in rack `r` of a chain it is `r-1`; in a pipeline it is
    ///   `floor(log2 racks)`, and one more when the leader has a twin;
    /// - racks' chain and pipeline, for racks of `m` members, a power of two, with `q = log2 m`,
    ///   `Q = ceil(log2 racks) > 0` and `k > Q (q+1)`: `k-1+(racks-1)(q+1)+q` and `k+(Q-1)(q+1)+2q`. Other racks take slightly
    ///   more steps (see the module `rack_flow`).
    #[must_use]
    pub fn steps(&self, blocks: u32) -> u64 {
        match self.flow() {
            Some(flow) if blocks > 0 => flow.steps(blocks),
            _ => 0,
        }
    }

    /// Returns the transfer that `rank` sends at `step`; a member sends at most one block at a step.
    #[must_use]
    pub fn send_at(&self, rank: u32, step: u64, blocks: u32) -> Option<Transfer> {
        let flow = self.flow_of_step(rank, step, blocks)?;
        flow.send(self.to_virtual(rank), step, blocks).map(|hop| self.sent(rank, hop))
    }

    /// Returns the transfer that `rank` receives at `step`; a member receives at most one block at a step, and
    /// the root receives none.
    ///
    /// The same transfer is the [`send_at`](Self::send_at) of its source at this step.
    #[must_use]
    pub fn receive_at(&self, rank: u32, step: u64, blocks: u32) -> Option<Transfer> {
        let flow = self.flow_of_step(rank, step, blocks)?;
        flow.receive(self.to_virtual(rank), step, blocks).map(|hop| self.received(rank, hop))
    }

    /// Returns the first transfer that `rank` sends at `from_step` or later; `None` if it sends no more.
    ///
    /// Skips idle steps. Takes O(log n) for the binomial pipeline and the paper's rack algorithms; O(log² n) for the
    /// circulant schedule; for the racks' chain and pipeline O(log² n) in the middle of a long message, and O(log³ n) at its
    /// start and end and in short messages; constant time for the others.
    #[must_use]
    pub fn next_send(&self, rank: u32, from_step: u64, blocks: u32) -> Option<Transfer> {
        let flow = self.flow_of_step(rank, from_step, blocks)?;
        flow.next_send(self.to_virtual(rank), from_step, blocks).map(|hop| self.sent(rank, hop))
    }

    /// Returns the first transfer that `rank` receives at `from_step` or later; `None` if it receives no
    /// more. Costs as much as [`next_send`](Self::next_send).
    #[must_use]
    pub fn next_receive(&self, rank: u32, from_step: u64, blocks: u32) -> Option<Transfer> {
        let flow = self.flow_of_step(rank, from_step, blocks)?;
        flow.next_receive(self.to_virtual(rank), from_step, blocks)
            .map(|hop| self.received(rank, hop))
    }

    /// Returns the step at which `rank` receives `block`; `None` for the root, which has every
    /// block, and for a block that is not in the message. Takes O(log n) for the circulant schedule and
    /// the racks' chain and pipeline, constant time for the others.
    #[must_use]
    pub fn received_at(&self, rank: u32, block: u32, blocks: u32) -> Option<u64> {
        if rank == self.root || block >= blocks {
            return None;
        }
        Some(self.flow_of(rank)?.received_at(self.to_virtual(rank), block, blocks))
    }

    /// Returns the neighbours of `rank`: all members with which it may exchange a block or an announcement, for any
    /// number of blocks. Each is returned once, `rank` itself never, in no particular order. Empty for a rank that is
    /// not in the group.
    ///
    /// The relation is symmetric. With `n` members, the maximum number of neighbours is `n-1` in a sequential or in-switch
    /// schedule, 2 in a chain, `ceil(log2 n)` in a binomial tree, `2*floor(log2 n)+1` in a binomial pipeline (`log2 n` if n is
    /// a power of two), and `2*ceil(log2 n)` in a circulant schedule; leaders of racks have the neighbours of both layers. In
    /// the racks' chain and pipeline a member has `2*ceil(log2 m)` in its rack of `m` members; `ceil(log2 m)` members of a
    /// rack have up to `c` more, and its leader up to `c*ceil(log2 m')` more in racks of `m'` members, where `c` is 1 in the
    /// chain and `ceil(log2 racks)` in the pipeline.
    pub fn neighbours(&self, rank: u32) -> impl Iterator<Item = u32> + '_ {
        self.flow_of(rank).into_iter().flat_map(move |flow| {
            let member = self.to_virtual(rank);
            (0..flow.neighbour_candidates(member))
                .filter_map(move |index| flow.neighbour(member, index))
                .map(|member| self.to_rank(member))
        })
    }

    /// Returns the member that announces a message and its length to `rank`; `None` for the root.
    ///
    /// Announcers form a tree with the group's root as its root; its edges join neighbours. The announcer of a member is
    /// the source of the member's first block, if this source does not depend on the number of blocks. In circulants it
    /// does: there the announcer of virtual rank `r` is `r - Skip[j]` for the largest `Skip[j] <= r`, and the announcer of
    /// a rack's leader is a member of the previous rack in this tree that sends to the leader. In all cases an announcer
    /// sends at least one block of every message to the member.
    #[must_use]
    pub fn announcer(&self, rank: u32) -> Option<u32> {
        if rank == self.root {
            return None;
        }
        Some(self.to_rank(self.flow_of(rank)?.announcer(self.to_virtual(rank))))
    }

    /// Returns the members to which `rank` announces messages: those whose [`Schedule::announcer`] is `rank`.
    pub fn announces_to(&self, rank: u32) -> impl Iterator<Item = u32> + '_ {
        self.neighbours(rank).filter(move |&other| self.announcer(other) == Some(rank))
    }

    /// Returns the rack number of `rank`, if the algorithm needs racks: the root's rack is 0, and the others follow in the
    /// order of their lowest ranks. Algorithm, root and these numbers determine the schedule.
    #[must_use]
    pub fn rack(&self, rank: u32) -> Option<u32> {
        let table = match &self.kind {
            Kind::Hybrid(flow) => flow.table(),
            Kind::Racks(flow) => flow.table(),
            _ => return None,
        };
        (rank < self.members).then(|| table.place(rank).0)
    }

    /// Returns the source of the first block that `rank` receives, if this source does not depend on the
    /// number of blocks: a receive can then be posted before the message's length is announced.
    /// `None` for the root, and if the length has to be announced [first](Self::size_first).
    #[must_use]
    pub fn first_source(&self, rank: u32) -> Option<u32> {
        if self.size_first() { None } else { self.announcer(rank) }
    }

    /// Returns whether a receiver needs the number of blocks before its first block can arrive, so that the length
    /// has to be announced before the blocks: true for the circulant schedule and for the racks' chain and pipeline, which
    /// consist of circulants.
    #[must_use]
    pub fn size_first(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::Circulant | Algorithm::RacksChain | Algorithm::RacksPipeline
        )
    }

    /// Returns how many steps before `step` the rank received the block that it sends at `step`; at least 1
    /// (DSN section 4.5, point 3). `None` for the root, which has every block from the start, and if `rank` sends
    /// nothing at `step`.
    ///
    /// Slack is how late a member may be without delaying others.
    #[must_use]
    pub fn slack(&self, rank: u32, step: u64, blocks: u32) -> Option<u64> {
        let transfer = self.send_at(rank, step, blocks)?;
        Some(step - self.received_at(rank, transfer.block, blocks)?)
    }

    /// Returns the average [`slack`](Self::slack), in steps, over the members other than the root that send at a
    /// step of the binomial pipeline's steady phase, `log2(members) ..= blocks + log2(members) - 2`:
    /// `2(1 - (l-1)/(n-2))` for `n = 2^l > 2` (DSN section 4.5, point 3). `None` for any other `members`.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(schedule::Schedule::average_slack(4), Some(1.0));
    /// assert_eq!(schedule::Schedule::average_slack(6), None);
    /// ```
    #[must_use]
    pub fn average_slack(members: u32) -> Option<f64> {
        if members <= 2 || !members.is_power_of_two() {
            return None;
        }
        Some(2.0 * (1.0 - f64::from(floor_log2(members) - 1) / f64::from(members - 2)))
    }

    fn flow(&self) -> Option<&dyn Flow> {
        match &self.kind {
            Kind::Alone => None,
            Kind::Sequential(flow) => Some(flow),
            Kind::Chain(flow) => Some(flow),
            Kind::Tree(flow) => Some(flow),
            Kind::Pipeline(flow) => Some(flow),
            Kind::Circulant(flow) => Some(flow),
            Kind::Fanout(flow) => Some(flow),
            Kind::Hybrid(flow) => Some(flow),
            Kind::Racks(flow) => Some(flow),
        }
    }

    fn flow_of(&self, rank: u32) -> Option<&dyn Flow> {
        if rank < self.members { self.flow() } else { None }
    }

    fn flow_of_step(&self, rank: u32, step: u64, blocks: u32) -> Option<&dyn Flow> {
        self.flow_of(rank).filter(|flow| blocks > 0 && step < flow.steps(blocks))
    }

    /// Returns the virtual rank of `rank`, counted from the root. Rack algorithms use real ranks.
    fn to_virtual(&self, rank: u32) -> u32 {
        match self.kind {
            Kind::Hybrid(_) | Kind::Racks(_) => rank,
            _ if rank >= self.root => rank - self.root,
            _ => rank + self.members - self.root,
        }
    }

    fn to_rank(&self, member: u32) -> u32 {
        match self.kind {
            Kind::Hybrid(_) | Kind::Racks(_) => member,
            _ if member < self.members - self.root => member + self.root,
            _ => member - (self.members - self.root),
        }
    }

    fn sent(&self, rank: u32, hop: Hop) -> Transfer {
        Transfer { step: hop.step, source: rank, target: self.to_rank(hop.peer), block: hop.block }
    }

    fn received(&self, rank: u32, hop: Hop) -> Transfer {
        Transfer { step: hop.step, source: self.to_rank(hop.peer), target: rank, block: hop.block }
    }
}

/// Returns the number of members, if it and the root are in range.
fn check(members: usize, root: u32) -> Result<u32, ScheduleError> {
    if members == 0 || members > MAX_MEMBERS as usize {
        return Err(ScheduleError::Members { members });
    }
    let members = members as u32;
    if root >= members {
        return Err(ScheduleError::Root { root, members });
    }
    Ok(members)
}
