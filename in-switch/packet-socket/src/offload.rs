//! What is still to be done to a frame.

pub(crate) const OFFLOAD_BYTES: usize = 10;

/// What a frame's sender left to the network card: a checksum, or to cut it into packets.
///
/// Between interfaces of one machine frames travel with such work undone; it has to go on with them.
/// The kernel's `virtio_net_hdr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload([u8; OFFLOAD_BYTES]);

impl Offload {
    /// Everything in the frame is as it has to be.
    pub const NONE: Self = Self([0; OFFLOAD_BYTES]);
    const NEEDS_CHECKSUM: u8 = 1;

    pub(crate) const fn of(header: [u8; OFFLOAD_BYTES]) -> Self {
        Self(header)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The frame has become longer before what is to be done.
    pub(crate) fn moved(mut self, bytes: u16) -> Self {
        if self.0[0] & Self::NEEDS_CHECKSUM != 0 {
            let start = u16::from_ne_bytes([self.0[6], self.0[7]]) + bytes;
            self.0[6..8].copy_from_slice(&start.to_ne_bytes());
        }
        self
    }
}
