//! Identifiers of sides of connections and of transfers in events.

/// One side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SideId {
    connection: u32,
    side: u8,
}

impl SideId {
    /// Both sides of a connection.
    pub(crate) fn pair(connection: usize) -> [Self; 2] {
        [0, 1].map(|side| Self { connection: connection as u32, side })
    }

    pub(crate) fn connection(self) -> usize {
        self.connection as usize
    }

    /// Returns which of the two sides it is.
    pub(crate) fn index(self) -> usize {
        usize::from(self.side)
    }

    pub(crate) fn peer(self) -> Self {
        Self { side: 1 - self.side, ..self }
    }
}

/// Identifies a transfer in events: its slot, a number that distinguishes it from earlier users of
/// the slot, and which attempt it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TransferId {
    pub(crate) slot: usize,
    pub(crate) number: u64,
    pub(crate) attempt: u32,
}
