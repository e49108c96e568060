/* RoCEv2 packets in frames, as in-switch/roce/src/packet.rs has them. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include "crc.h"
#include "tables.h"

#define ETHERNET_BYTES 14
#define UDP_BYTES 8
#define BTH_BYTES 12
#define ICRC_BYTES 4
#define ROCE_PORT 4791
#define NUMBERS 0xffffff

#define READ 0x0c
#define ACKNOWLEDGE 0x11
#define CNP 0x81

/* Parsed headers; words in network byte order. */
struct packet {
	__u32 ip[10];
	__u32 udp[2];
	__u32 bth[3];
	/* RETH and immediate, or AETH. */
	__u32 extended[5];
	__u32 icrc;

	struct address source;
	struct address target;
	__u32 ip_bytes;
	__u32 extended_bytes;
	__u32 bytes_after;
	__u32 opcode;
	__u32 target_qpn;
	__u32 psn;
};

enum parsed {
	IS_PACKET,
	IS_FOREIGN,
	IS_MALFORMED,
	IS_FRAGMENT,
};

static __always_inline __u32 bth_at(const struct packet *packet)
{
	return ETHERNET_BYTES + packet->ip_bytes + UDP_BYTES;
}

static __always_inline __u32 icrc_at(const struct packet *packet)
{
	return bth_at(packet) + BTH_BYTES + packet->extended_bytes + packet->bytes_after;
}

static __always_inline int is_request(__u32 opcode)
{
	return opcode < READ;
}

/* READs, atomics, and SENDs that invalidate a key: only one receiver can carry them out. */
static __always_inline int is_unicast(__u32 opcode)
{
	return opcode == READ || opcode == 0x13 || opcode == 0x14 || opcode == 0x16 || opcode == 0x17;
}

/* SEND and WRITE: first, middle, last, with immediate, only, with immediate. */
const __u8 extended_of_requests[16] = { 0, 0, 0, 4, 0, 4, 16, 0, 0, 4, 16, 20 };

/* Bytes of extended headers; -1: unknown opcode. */
static __always_inline int extended_bytes(__u32 opcode)
{
	if (is_request(opcode))
		return extended_of_requests[opcode & 15];
	if (is_unicast(opcode))
		return 0;
	if (opcode == ACKNOWLEDGE)
		return 4;
	return opcode == CNP ? 16 : -1;
}

static __always_inline int has_reth(__u32 opcode)
{
	return opcode == 0x06 || opcode == 0x0a || opcode == 0x0b;
}

static __always_inline int parse_ipv4(struct __sk_buff *skb, struct packet *packet, __u32 *datagram_bytes)
{
	__u8 *ip = (__u8 *)packet->ip;
	__u32 total;

	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, packet->ip, 20))
		return IS_MALFORMED;
	if (ip[0] >> 4 != 4 || ip[9] != IPPROTO_UDP || ip[0] != 0x45)
		return IS_FOREIGN;
	if ((ip[6] & 0x3f) || ip[7])
		return IS_FRAGMENT;
	total = ip[2] << 8 | ip[3];
	if (total < 20 + UDP_BYTES || ETHERNET_BYTES + total > skb->len)
		return IS_MALFORMED;
	*datagram_bytes = total - 20;
	packet->ip_bytes = 20;
	packet->source.words[2] = packet->target.words[2] = bpf_htonl(0xffff);
	packet->source.words[3] = packet->ip[3];
	packet->target.words[3] = packet->ip[4];
	return IS_PACKET;
}

static __always_inline int parse_ipv6(struct __sk_buff *skb, struct packet *packet, __u32 *datagram_bytes)
{
	__u8 *ip = (__u8 *)packet->ip;

	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, packet->ip, 40))
		return IS_MALFORMED;
	if (ip[0] >> 4 != 6)
		return IS_FOREIGN;
	if (ip[6] == 44)
		return IS_FRAGMENT;
	if (ip[6] != IPPROTO_UDP)
		return IS_FOREIGN;
	*datagram_bytes = ip[4] << 8 | ip[5];
	if (*datagram_bytes < UDP_BYTES || ETHERNET_BYTES + 40 + *datagram_bytes > skb->len)
		return IS_MALFORMED;
	packet->ip_bytes = 40;
	__builtin_memcpy(&packet->source, &packet->ip[2], 16);
	__builtin_memcpy(&packet->target, &packet->ip[6], 16);
	return IS_PACKET;
}

static __always_inline int parse_transport(struct __sk_buff *skb, struct packet *packet, __u32 datagram_bytes)
{
	__u8 *bth = (__u8 *)packet->bth;
	__u32 left, pad;
	int extended;

	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES + packet->ip_bytes, packet->udp, UDP_BYTES))
		return IS_MALFORMED;
	if ((packet->udp[0] >> 16) != bpf_htons(ROCE_PORT))
		return IS_FOREIGN;
	if (bpf_ntohs((__u16)packet->udp[1]) != datagram_bytes)
		return IS_MALFORMED;
	if (datagram_bytes < UDP_BYTES + BTH_BYTES ||
	    bpf_skb_load_bytes(skb, bth_at(packet), packet->bth, BTH_BYTES))
		return IS_MALFORMED;
	packet->opcode = bth[0];
	extended = extended_bytes(bth[0]);
	if ((bth[1] & 0x0f) || extended < 0)
		return IS_FOREIGN;
	if (datagram_bytes < UDP_BYTES + BTH_BYTES + extended + ICRC_BYTES)
		return IS_MALFORMED;
	left = datagram_bytes - UDP_BYTES - BTH_BYTES - ICRC_BYTES;
	packet->extended_bytes = extended;
	packet->bytes_after = left - extended;
	pad = bth[1] >> 4 & 3;
	if ((packet->bytes_after & 3) || pad > packet->bytes_after)
		return IS_MALFORMED;
	if (!is_request(bth[0]) && !is_unicast(bth[0]) && packet->bytes_after)
		return IS_MALFORMED;
	if ((extended == 4 && bpf_skb_load_bytes(skb, bth_at(packet) + BTH_BYTES, packet->extended, 4)) ||
	    (extended >= 16 && bpf_skb_load_bytes(skb, bth_at(packet) + BTH_BYTES, packet->extended, 16)))
		return IS_MALFORMED;
	if (bpf_skb_load_bytes(skb, icrc_at(packet), &packet->icrc, ICRC_BYTES))
		return IS_MALFORMED;
	packet->target_qpn = bpf_ntohl(packet->bth[1]) & NUMBERS;
	packet->psn = bpf_ntohl(packet->bth[2]) & NUMBERS;
	return IS_PACKET;
}

static __always_inline int parse(struct __sk_buff *skb, struct packet *packet)
{
	__u32 datagram_bytes = 0;
	int parsed;

	__builtin_memset(packet, 0, sizeof(*packet));
	if (skb->protocol == bpf_htons(ETH_P_IP))
		parsed = parse_ipv4(skb, packet, &datagram_bytes);
	else
		parsed = parse_ipv6(skb, packet, &datagram_bytes);
	if (parsed != IS_PACKET)
		return parsed;
	return parse_transport(skb, packet, datagram_bytes);
}

/* The CRC over all headers, with variant fields masked by ones, before the final inversion. */
static __noinline __u32 crc_headers(const struct packet *packet)
{
	__u32 crc = CRC_BEGIN, word;
	int is_v6, i;

	if (!packet)
		return 0;
	is_v6 = packet->ip_bytes == 40;
	for (i = 0; i < 10; i++) {
		if (i >= 5 && !is_v6)
			break;
		word = packet->ip[i];
		/* IPv4: service, time to live and checksum. IPv6: class, flow label and hop limit. */
		if (i == 0)
			word |= is_v6 ? 0xffffff0f : 0x0000ff00;
		if (i == 1 && is_v6)
			word |= 0xff000000;
		if (i == 2 && !is_v6)
			word |= 0xffff00ff;
		crc = crc_word(crc, word);
	}
	crc = crc_word(crc, packet->udp[0]);
	crc = crc_word(crc, packet->udp[1] | 0xffff0000);
	crc = crc_word(crc, packet->bth[0]);
	crc = crc_word(crc, packet->bth[1] | 0x000000ff);
	crc = crc_word(crc, packet->bth[2]);
	for (i = 0; i < 4; i++) {
		if (i >= packet->extended_bytes / 4)
			break;
		crc = crc_word(crc, packet->extended[i]);
	}
	return crc;
}

/* TTL or hop limit. */
static __always_inline __u32 hop_limit(const struct packet *packet)
{
	return packet->ip_bytes == 20 ? packet->ip[2] & 0xff : packet->ip[1] >> 24;
}

/* Whether `port` is among the ingress ports, which are unrestricted if there are none. */
static __always_inline int is_among(const __u32 *ports, __u32 port)
{
	__u32 i;

	for (i = 0; i < PORTS_MAX; i++)
		if (ports[i] == port)
			return 1;
	return !ports[0];
}

/* A checksum of IPv4 or UDP, in network byte order, after a word has changed (RFC 1624). */
static __always_inline __u32 checksum_after(__u32 checksum, __u32 old, __u32 new)
{
	__u32 sum = (~checksum & 0xffff) + (~old & 0xffff) + (~old >> 16) + (new & 0xffff) + (new >> 16);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum & 0xffff;
}
