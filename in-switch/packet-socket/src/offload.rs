//! Offloads of a frame.

pub(crate) const OFFLOAD_BYTES: usize = 10;

/// Offloads of a frame that have not been carried out: checksum, segmentation (the kernel's
/// `virtio_net_hdr`). Virtual interfaces deliver frames with offloads pending, which have to be forwarded
/// with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload([u8; OFFLOAD_BYTES]);

impl Offload {
    /// None pending.
    pub const NONE: Self = Self([0; OFFLOAD_BYTES]);
    const NEEDS_CHECKSUM: u8 = 1;

    pub(crate) const fn of(header: [u8; OFFLOAD_BYTES]) -> Self {
        Self(header)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same, for a frame into which bytes were inserted before the checksum's start.
    pub(crate) fn moved(mut self, bytes: u16) -> Self {
        if self.0[0] & Self::NEEDS_CHECKSUM != 0 {
            let start = u16::from_ne_bytes([self.0[6], self.0[7]]) + bytes;
            self.0[6..8].copy_from_slice(&start.to_ne_bytes());
        }
        self
    }
}
