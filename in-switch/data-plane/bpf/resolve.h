/* Answers ARP and neighbour discovery for virtual addresses: in-switch/mcrdma/src/resolve.rs. */
#pragma once

#include "packet.h"

#define ARP_BYTES 28
#define IPV6_BYTES 40
#define HOP_LIMIT 255
#define SOLICITATION 135
#define SOLICITATION_BYTES 24
#define ADVERTISEMENT 136
#define ADVERTISEMENT_BYTES 32

/* Sends the frame back out of its ingress port. */
static __always_inline int reflect(struct __sk_buff *skb)
{
	return bpf_redirect(skb->ifindex, 0);
}

/* Swaps the Ethernet addresses, with another source if given. */
static __always_inline int reflect_addresses(struct __sk_buff *skb, const __u8 *source)
{
	__u8 both[12], turned[12];

	if (bpf_skb_load_bytes(skb, 0, both, 12))
		return -1;
	__builtin_memcpy(turned, both + 6, 6);
	__builtin_memcpy(turned + 6, source ? source : both, 6);
	return bpf_skb_store_bytes(skb, 0, turned, 12, 0);
}

/* Ethernet and IPv4, addresses of 6 and 4 bytes, a request. */
const __u8 arp_request[8] = { 0, 1, 8, 0, 6, 4, 0, 1 };

/* TC_ACT_UNSPEC: no request for a virtual address. */
static __always_inline int resolve_arp(struct __sk_buff *skb)
{
	struct address asked = {};
	__u8 arp[ARP_BYTES], answer[ARP_BYTES];
	__u8 *mac;
	int i;

	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, arp, ARP_BYTES))
		return TC_ACT_UNSPEC;
	for (i = 0; i < 8; i++)
		if (arp[i] != arp_request[i])
			return TC_ACT_UNSPEC;
	asked.words[2] = bpf_htonl(0xffff);
	__builtin_memcpy(&asked.words[3], arp + 24, 4);
	mac = bpf_map_lookup_elem(&addresses, &asked);
	if (!mac)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(answer, arp_request, 8);
	answer[7] = 2;
	__builtin_memcpy(answer + 8, mac, 6);
	__builtin_memcpy(answer + 14, arp + 24, 4);
	__builtin_memcpy(answer + 18, arp + 8, 10);
	if (reflect_addresses(skb, mac) || bpf_skb_store_bytes(skb, ETHERNET_BYTES, answer, ARP_BYTES, 0))
		return TC_ACT_SHOT;
	count(RESOLVED);
	return reflect(skb);
}

static __always_inline __u32 sum_words(__u32 sum, const __u32 *words, int number)
{
	int i;

	for (i = 0; i < number; i++)
		sum += (words[i] & 0xffff) + (words[i] >> 16);
	return sum;
}

static __always_inline int resolve_neighbour(struct __sk_buff *skb)
{
	struct {
		__u32 ip[10];
		__u32 message[ADVERTISEMENT_BYTES / 4];
	} packet = {};
	__u8 *ip = (__u8 *)packet.ip, *message = (__u8 *)packet.message;
	struct address asked, asker;
	__u32 sum;
	__u8 *mac;

	if (skb->len < ETHERNET_BYTES + IPV6_BYTES + SOLICITATION_BYTES ||
	    bpf_skb_load_bytes(skb, ETHERNET_BYTES, &packet, IPV6_BYTES + SOLICITATION_BYTES))
		return TC_ACT_UNSPEC;
	if (ip[0] >> 4 != 6 || ip[6] != IPPROTO_ICMPV6 || ip[7] != HOP_LIMIT || message[0] != SOLICITATION ||
	    message[1])
		return TC_ACT_UNSPEC;
	__builtin_memcpy(&asker, ip + 8, 16);
	__builtin_memcpy(&asked, message + 8, 16);
	/* An unspecified source is duplicate address detection (RFC 4862): not answered. */
	if (!(asker.words[0] | asker.words[1] | asker.words[2] | asker.words[3]))
		return TC_ACT_UNSPEC;
	mac = bpf_map_lookup_elem(&addresses, &asked);
	if (!mac)
		return TC_ACT_UNSPEC;
	ip[4] = 0;
	ip[5] = ADVERTISEMENT_BYTES;
	__builtin_memcpy(ip + 8, &asked, 16);
	__builtin_memcpy(ip + 24, &asker, 16);
	/* Flags S and O: solicited, override. */
	packet.message[0] = ADVERTISEMENT;
	packet.message[1] = 0x60;
	message[24] = 2;
	message[25] = 1;
	__builtin_memcpy(message + 26, mac, 6);
	sum = sum_words(0, packet.ip + 2, 8);
	sum = sum_words(sum, packet.message, ADVERTISEMENT_BYTES / 4);
	sum += bpf_htons(ADVERTISEMENT_BYTES) + bpf_htons(IPPROTO_ICMPV6);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	packet.message[0] |= ~sum << 16;
	if (bpf_skb_change_tail(skb, ETHERNET_BYTES + IPV6_BYTES + ADVERTISEMENT_BYTES, 0) ||
	    reflect_addresses(skb, mac) || bpf_skb_store_bytes(skb, ETHERNET_BYTES, &packet, sizeof(packet), 0))
		return TC_ACT_SHOT;
	count(RESOLVED);
	return reflect(skb);
}
