/* The invariant CRC (see in-switch/roce/src/icrc.rs): reflected CRC-32, over words in little-endian order. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read in little-endian order");

/* Advance a CRC over zeros: digits of base 16, 16 and 32 of the distance in bytes. Set by the loader. */
#define DIGITS 64
const volatile __u32 shift_tables[DIGITS][4][256] = {};

/* The CRC after eight bytes of ones in place of a local route header. */
#define CRC_BEGIN 0xdebb20e3

static __always_inline __u32 crc_shift(__u32 digit, __u32 crc)
{
	digit &= DIGITS - 1;
	return shift_tables[digit][0][crc & 0xff] ^ shift_tables[digit][1][crc >> 8 & 0xff] ^
	       shift_tables[digit][2][crc >> 16 & 0xff] ^ shift_tables[digit][3][crc >> 24];
}

/* The CRC with four more bytes. */
static __always_inline __u32 crc_word(__u32 crc, __u32 word)
{
	return crc_shift(4, crc ^ word);
}

/* The CRC followed by this many zeros. */
static __always_inline __u32 crc_zeros(__u32 crc, __u32 bytes)
{
	crc = crc_shift(bytes & 15, crc);
	crc = crc_shift(16 + (bytes >> 4 & 15), crc);
	return crc_shift(32 + (bytes >> 8 & 31), crc);
}
