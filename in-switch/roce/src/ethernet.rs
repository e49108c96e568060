//! Ethernet frames: their header, and the addresses in it.

/// Length of an Ethernet header without a VLAN tag.
pub const ETHERNET_BYTES: usize = 14;
/// Type of frames with IPv4 packets.
pub const TYPE_IPV4: u16 = 0x0800;
/// Type of frames with ARP messages.
pub const TYPE_ARP: u16 = 0x0806;
/// Type of frames with IPv6 packets.
pub const TYPE_IPV6: u16 = 0x86dd;
/// Type of frames with an 802.1Q tag.
pub const TYPE_TAG: u16 = 0x8100;
/// Type of frames with an 802.1ad service tag (QinQ).
pub const TYPE_SERVICE_TAG: u16 = 0x88a8;
const TAG_BYTES: usize = 4;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Mac(pub [u8; 6]);

impl core::fmt::Display for Mac {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The text is no Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an Ethernet address such as 02:00:00:00:00:01")]
pub struct InvalidMac;

impl core::str::FromStr for Mac {
    type Err = InvalidMac;

    fn from_str(text: &str) -> Result<Self, InvalidMac> {
        let mut bytes = [0; 6];
        let mut digits = text.split(':');
        for byte in &mut bytes {
            let pair = digits.next().filter(|pair| pair.len() == 2).ok_or(InvalidMac)?;
            // from_str_radix accepts a sign.
            let is_hex = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(pair, 16).ok().filter(|_| is_hex).ok_or(InvalidMac)?;
        }
        if digits.next().is_none() { Ok(Self(bytes)) } else { Err(InvalidMac) }
    }
}

/// The type of a frame's contents, and where they begin: behind an 802.1Q tag, if there is one. `None`: the header is
/// not whole.
///
/// Of frames with more tags, or a service tag, the type is [`TYPE_TAG`] or [`TYPE_SERVICE_TAG`].
#[must_use]
pub fn contents(frame: &[u8]) -> Option<(u16, usize)> {
    let type_before = |end: usize| {
        let bytes = frame.get(end - 2..end)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    match type_before(ETHERNET_BYTES)? {
        TYPE_TAG => {
            let at = ETHERNET_BYTES + TAG_BYTES;
            Some((type_before(at)?, at))
        }
        other => Some((other, ETHERNET_BYTES)),
    }
}

/// Sets the target address. Panics if the frame has no whole header.
pub fn set_target(frame: &mut [u8], mac: Mac) {
    frame[..6].copy_from_slice(&mac.0);
}

/// Swaps source and target address. Panics if the frame has no whole header.
pub fn swap_addresses(frame: &mut [u8]) {
    for at in 0..6 {
        frame.swap(at, at + 6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_addresses_round_trip() {
        let mac = Mac([2, 0, 0xab, 0xcd, 0xef, 9]);
        assert_eq!(mac.to_string().parse(), Ok(mac));
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "02:00:00:00:00:+1"]
        {
            assert_eq!(text.parse::<Mac>(), Err(InvalidMac), "{text}");
        }
    }
}
