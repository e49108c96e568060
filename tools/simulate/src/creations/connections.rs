//! Shared connections: whose they are, which are broken, and that what is sent on one arrives in order.

/// A context, and how often it has started.
pub(super) type Life = (usize, u32);

/// All shared connections, by number.
#[derive(Default)]
pub(super) struct Connections {
    all: Vec<Connection>,
}

struct Connection {
    contexts: [Life; 2],
    is_broken: bool,
    /// When what was sent last arrives at each side.
    in_order_ns: [u64; 2],
}

impl Connections {
    /// Returns the number of the next one.
    pub(super) fn next(&self) -> usize {
        self.all.len()
    }

    /// Adds one, of which each side learns at a time.
    pub(super) fn add(&mut self, contexts: [Life; 2], in_order_ns: [u64; 2]) {
        self.all.push(Connection { contexts, is_broken: false, in_order_ns });
    }

    /// Returns the contexts at this side of a connection, and at the other one.
    pub(super) fn ends(&self, connection: usize, side: usize) -> [Life; 2] {
        let contexts = self.all[connection].contexts;
        [contexts[side], contexts[1 - side]]
    }

    /// Breaks one. Returns whether it was whole.
    pub(super) fn sever(&mut self, connection: usize) -> bool {
        !std::mem::replace(&mut self.all[connection].is_broken, true)
    }

    pub(super) fn is_broken(&self, connection: usize) -> bool {
        self.all[connection].is_broken
    }

    /// Returns those that are not broken; of a context, or all.
    pub(super) fn whole(&self, of: Option<Life>) -> Vec<usize> {
        let is_of = |one: &Connection| of.is_none_or(|context| one.contexts.contains(&context));
        let all = self.all.iter().enumerate();
        all.filter(|(_, one)| !one.is_broken && is_of(one)).map(|(number, _)| number).collect()
    }

    /// Returns when something arrives at a side that would arrive at a time if nothing was before it.
    pub(super) fn arrival(&mut self, connection: usize, side: usize, at_ns: u64) -> u64 {
        let in_order = &mut self.all[connection].in_order_ns[side];
        *in_order = at_ns.max(*in_order + 1);
        *in_order
    }
}
