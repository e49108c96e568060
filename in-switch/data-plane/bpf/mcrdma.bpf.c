/* The switch in the kernel (tc, clsact, ingress): does what in-switch/mcrdma/src/switch.rs does. Tests
 * compare the two frame by frame.
 *
 * On tc, since bpf_clone_redirect takes frames of any length; XDP's broadcast does not take 4 KiB.
 */
#include "merge.h"
#include "packet.h"
#include "resolve.h"
#include "tables.h"
#include "trace.h"

/* The fields that are rewritten in an answer. */
struct change {
	struct address source;
	__u32 psn;
	__u32 aeth;
};

/* The headers of a copy, up to address and key of its memory. Two bytes are unused, so that words are aligned. */
struct headers {
	__u8 unused[2];
	__u8 ethernet[ETHERNET_BYTES];
	__u32 words[10 + 2 + 3 + 3];
};

/* Too large for the stack; per processor, which handles one packet at a time. */
struct scratch {
	struct packet packet;
	struct packet answer;
	struct change change;
	/* Of the copy that is being made. Only what differs between copies is written for each. */
	struct headers headers;
	/* Of a WRITE at each branch's member: address and key. */
	__u32 memory[MEMBERS_MAX][3];
	/* IPv4's, with the packet's own target. */
	__u32 checksum;
	/* What the packet's own target and queue pair contribute to its CRC, as `crc` of a branch. */
	__u32 crc;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* The CRC of a target address (of this many words) and a queue pair, up to and with the packet number, all else zero:
 * the constant part of a branch's, which the agent computes (src/kernel/layout.rs).
 */
static __always_inline __u32 crc_constant(const __u32 *target, int words, __u32 bth1)
{
	__u32 crc = 0;
	int i;

	for (i = 0; i < words; i++)
		crc = crc_word(crc, target[i]);
	/* UDP and the first word of the BTH. */
	crc = crc_shift(UDP_BYTES + 4, crc);
	crc = crc_word(crc, bth1 & ~0xff);
	return crc_shift(4, crc);
}

/* What all copies of a packet have in common. `ip_words` is a constant. */
static __always_inline int begin_copies(struct __sk_buff *skb, struct scratch *scratch, const int ip_words)
{
	const struct packet *packet = &scratch->packet;
	__u32 *words = scratch->headers.words;
	__u32 left = hop_limit(packet) - 1;

	if (bpf_skb_load_bytes(skb, 0, scratch->headers.ethernet, ETHERNET_BYTES))
		return -1;
	__builtin_memcpy(words, packet->ip, ip_words * 4);
	words[ip_words] = packet->udp[0];
	/* Without a checksum. */
	words[ip_words + 1] = packet->udp[1] & 0xffff;
	words[ip_words + 2] = packet->bth[0];
	if (ip_words == 5) {
		scratch->checksum = checksum_after(words[2] >> 16, words[2] & 0xffff, (words[2] & 0xff00) | left);
		words[2] = (words[2] & 0xff00) | left;
		scratch->crc = crc_constant(&packet->ip[4], 1, packet->bth[1]);
	} else {
		words[1] = (words[1] & 0xffffff) | left << 24;
		scratch->crc = crc_constant(&packet->ip[6], 4, packet->bth[1]);
	}
	return 0;
}

/* Writes the headers and the CRC of a branch's copy. */
static __always_inline int store_copy(struct __sk_buff *skb, struct scratch *scratch, const struct branch *branch,
				      __u32 index, const int ip_words)
{
	const __u32 bytes = ETHERNET_BYTES + ip_words * 4 + UDP_BYTES + BTH_BYTES;
	const struct packet *packet = &scratch->packet;
	__u32 *words = scratch->headers.words;
	const __u32 *memory = scratch->memory[index & (MEMBERS_MAX - 1)];
	__u32 crc, i, rest = packet->extended_bytes;

	__builtin_memcpy(scratch->headers.ethernet, branch->mac, 6);
	if (ip_words == 5) {
		words[2] = (words[2] & 0xffff) |
			   checksum_after(scratch->checksum, packet->ip[4], branch->target.words[3]) << 16;
		words[4] = branch->target.words[3];
	} else {
		__builtin_memcpy(&words[6], &branch->target, 16);
	}
	words[ip_words + 3] = (packet->bth[1] & 0xff) | bpf_htonl(branch->qpn & NUMBERS);
	words[ip_words + 4] = (packet->bth[2] & 0xff) | bpf_htonl((packet->psn + branch->psn_offset) & NUMBERS);
	crc = scratch->crc ^ branch->crc ^ crc_word(0, words[ip_words + 4] ^ packet->bth[2]);
	if (has_reth(packet->opcode)) {
		for (i = 0; i < 3; i++) {
			words[ip_words + 5 + i] = memory[i];
			crc = crc_word(crc, memory[i] ^ packet->extended[i]);
		}
		rest -= 12;
		if (bpf_skb_store_bytes(skb, 0, scratch->headers.ethernet, bytes + 12, 0))
			return -1;
	} else if (bpf_skb_store_bytes(skb, 0, scratch->headers.ethernet, bytes, 0)) {
		return -1;
	}
	if (rest)
		crc = crc_shift(rest & 15, crc);
	crc = crc_zeros(crc, packet->bytes_after) ^ packet->icrc;
	return bpf_skb_store_bytes(skb, icrc_at(packet), &crc, ICRC_BYTES, 0);
}

/* Writes an address and IPv4's checksum, or IPv6's address alone. */
static __always_inline int store_source(struct __sk_buff *skb, const struct packet *packet,
					const struct address *source)
{
	__u16 sum;

	if (packet->ip_bytes == 40)
		return bpf_skb_store_bytes(skb, ETHERNET_BYTES + 8, source, 16, 0);
	sum = checksum_after(packet->ip[2] >> 16, packet->ip[3], source->words[3]);
	if (bpf_skb_store_bytes(skb, ETHERNET_BYTES + 10, &sum, 2, 0))
		return -1;
	return bpf_skb_store_bytes(skb, ETHERNET_BYTES + 12, &source->words[3], 4, 0);
}

/* Rewrites an answer in place, with its checksums. `packet` is as it was received. */
static __noinline int apply(struct __sk_buff *skb, const struct packet *packet, const struct change *change)
{
	__u32 psn, crc = 0, i;
	__u16 none = 0;

	if (!packet || !change)
		return -1;
	psn = (packet->bth[2] & 0xff) | bpf_htonl(change->psn & NUMBERS);
	/* Behind the source are the target, UDP and the first two words of the BTH. */
	if (packet->ip_bytes == 20) {
		crc = crc_word(0, packet->ip[3] ^ change->source.words[3]);
		crc = crc_zeros(crc, 4 + UDP_BYTES + 8);
	} else {
		for (i = 0; i < 4; i++)
			crc = crc_word(crc, packet->ip[i + 2] ^ change->source.words[i]);
		crc = crc_zeros(crc, 16 + UDP_BYTES + 8);
	}
	crc = crc_word(crc, psn ^ packet->bth[2]);
	crc = crc_word(crc, change->aeth ^ packet->extended[0]);
	/* A CNP's reserved bytes. */
	crc = crc_zeros(crc, packet->extended_bytes - 4) ^ packet->icrc;

	if (store_source(skb, packet, &change->source))
		return -1;
	if ((packet->udp[1] >> 16) &&
	    bpf_skb_store_bytes(skb, ETHERNET_BYTES + packet->ip_bytes + 6, &none, 2, 0))
		return -1;
	if (bpf_skb_store_bytes(skb, bth_at(packet) + 8, &psn, sizeof(psn), 0) ||
	    bpf_skb_store_bytes(skb, bth_at(packet) + BTH_BYTES, &change->aeth, 4, 0))
		return -1;
	return bpf_skb_store_bytes(skb, icrc_at(packet), &crc, ICRC_BYTES, 0);
}

/* Context of the loops over branches. */
struct copying {
	struct __sk_buff *skb;
	struct scratch *scratch;
	const struct group *group;
	/* The first branch for which the packet is refused; MEMBERS_MAX: none. */
	__u32 refused;
	/* Number of copies that were not sent, and a bit for each. */
	__u32 failed;
	__u64 failed_places;
};

/* Place of the last of this many (a power of two) numbers in order that is not above `address`; 0 if there is none. They
 * are `stride` words apart. Without branches: the verifier would follow all ways.
 */
static __always_inline __u32 search(const __u64 *numbers, __u32 count, __u32 stride, __u64 address)
{
	__u32 place = 0, step;

	for (step = count / 2; step; step /= 2) {
		__u64 number = numbers[((place + step) & (count - 1)) * stride];
		/* The borrow of a subtraction. */
		__u64 is_above = ((~address & number) | (~(address ^ number) & (address - number))) >> 63;

		NO_BRANCH(is_above);
		place += step * (__u32)(is_above ^ 1);
	}
	return place & (count - 1);
}

/* Finds address and key of a WRITE at a branch's member. Whether its memory is known. */
static __always_inline int translate(const struct copying *copying, __u32 index, const struct branch *branch)
{
	const struct packet *packet = &copying->scratch->packet;
	__u32 *memory = copying->scratch->memory[index & (MEMBERS_MAX - 1)];
	struct regions_key key = { .generation = copying->group->generation, .branch = index };
	__u64 address, bytes, offset;
	const struct region *region;
	struct regions *found;

	bytes = bpf_ntohl(packet->extended[3]);
	if (!branch->rewrites || !bytes) {
		__builtin_memcpy(memory, packet->extended, 12);
		return 1;
	}
	address = (__u64)bpf_ntohl(packet->extended[0]) << 32 | bpf_ntohl(packet->extended[1]);
	if (branch->chunks > 1) {
		key.chunk = STARTS;
		found = bpf_map_lookup_elem(&regions, &key);
		if (!found)
			return 0;
		key.chunk = search(found->starts, CHUNKS_MAX, 1, address);
	}
	found = bpf_map_lookup_elem(&regions, &key);
	if (!found)
		return 0;
	region = &found->all[search(&found->all[0].start, CHUNK_REGIONS, sizeof(*region) / 8, address)];
	offset = address - region->start;
	if (address < region->start || offset >= region->bytes || bytes > region->bytes - offset)
		return 0;
	address = region->member_start + offset;
	memory[0] = bpf_htonl(address >> 32);
	memory[1] = bpf_htonl((__u32)address);
	memory[2] = bpf_htonl(region->member_key);
	return 1;
}

static long find_memory(__u32 index, void *context)
{
	struct copying *copying = context;

	if (!translate(copying, index, &copying->group->branches[index & (MEMBERS_MAX - 1)])) {
		copying->refused = index;
		return 1;
	}
	return 0;
}

static long copy(__u32 index, void *context)
{
	struct copying *copying = context;
	struct scratch *scratch = copying->scratch;
	const struct branch *branch = &copying->group->branches[index & (MEMBERS_MAX - 1)];
	int stored;

	if (scratch->packet.ip_bytes == 20)
		stored = store_copy(copying->skb, scratch, branch, index, 5);
	else
		stored = store_copy(copying->skb, scratch, branch, index, 10);
	if (stored || bpf_clone_redirect(copying->skb, branch->port, 0)) {
		copying->failed += 1;
		copying->failed_places |= 1ULL << (index & 63);
	}
	return 0;
}

/* The CRC over payload and padding, 16 bytes per iteration. */
struct checking {
	struct __sk_buff *skb;
	__u32 at;
	__u32 bytes;
	__u32 crc;
};

static long check_words(__u32 index, void *context)
{
	struct checking *checking = context;
	__u32 words[4], i, at = index * 16;

	if (at + 16 <= checking->bytes) {
		if (bpf_skb_load_bytes(checking->skb, checking->at + at, words, 16))
			return 1;
		for (i = 0; i < 4; i++)
			checking->crc = crc_word(checking->crc, words[i]);
		return 0;
	}
	for (i = 0; i < 3; i++) {
		if (at + 4 * i + 4 > checking->bytes ||
		    bpf_skb_load_bytes(checking->skb, checking->at + at + 4 * i, words, 4))
			return 1;
		checking->crc = crc_word(checking->crc, words[0]);
	}
	return 1;
}

static __always_inline int is_intact(struct __sk_buff *skb, const struct packet *packet)
{
	struct checking checking = {
		.skb = skb,
		.at = icrc_at(packet) - packet->bytes_after,
		.bytes = packet->bytes_after,
		.crc = crc_headers(packet),
	};
	__u32 immediate = packet->extended_bytes & 4;

	/* The immediate of a WRITE has not been read with the headers. */
	if (packet->extended_bytes == 20) {
		checking.at -= immediate;
		checking.bytes += immediate;
	}
	bpf_loop(65536 / 16, check_words, &checking, 0);
	return ~checking.crc == packet->icrc;
}

/* Answers a request for the member of a branch, so that the sender's operation fails at once. */
static __always_inline int refuse(struct __sk_buff *skb, struct scratch *scratch, const struct group *group,
				  struct traffic *counted, __u32 index)
{
	const struct packet *asked = &scratch->packet;
	struct packet *answer = &scratch->answer;
	const struct branch *branch = &group->branches[index & (MEMBERS_MAX - 1)];
	__u32 psn = asked->psn + (branch->rewrites ? branch->psn_offset : 0), sum, bytes;
	__u32 code = is_unicast(asked->opcode) ? NAK_INVALID_REQUEST : NAK_REMOTE_ACCESS;
	struct merged merged = { .psn = psn & NUMBERS, .syndrome = SYNDROME_NAK | code };
	struct member_key member = { .sender = asked->source, .qpn = group->sender_qpn, .member = branch->target };
	struct sender_key key = { .sender = asked->source, .qpn = group->sender_qpn };
	struct group_key traced = { .sender = asked->source, .id = asked->target_qpn };
	struct outcome outcome = { .counter = is_unicast(asked->opcode) ? REQUEST_REFUSED : REGION_UNKNOWN };
	struct address source = branch->target;
	struct sender *sender;
	__u8 *ip = (__u8 *)answer->ip;

	if (!is_intact(skb, asked)) {
		count_of(counted, ICRC_ERROR, 1);
		outcome.counter = ICRC_ERROR;
	}
	if (group->is_traced)
		trace(skb, asked, &traced, 0, &outcome);
	if (outcome.counter == ICRC_ERROR)
		return TC_ACT_SHOT;
	sender = bpf_map_lookup_elem(&senders, &key);
	if (sender) {
		merge_answer(&key, sender, bpf_map_lookup_elem(&members, &member), &merged);
		if (merged.counter == NAK_FORWARDED) {
			count(NAK_FORWARDED);
			source = sender->virtual_address;
		}
	}
	__builtin_memcpy(answer->ip, asked->ip, sizeof(answer->ip));
	answer->ip_bytes = asked->ip_bytes;
	answer->extended_bytes = 4;
	bytes = UDP_BYTES + BTH_BYTES + 4 + ICRC_BYTES;
	if (asked->ip_bytes == 20) {
		answer->ip[0] = (asked->ip[0] & 0xffff) | (__u32)bpf_htons(20 + bytes) << 16;
		/* May not be fragmented. */
		answer->ip[1] = (asked->ip[1] & 0xffff) | 0x00400000;
		answer->ip[2] = asked->ip[2] & 0xffff;
		answer->ip[3] = source.words[3];
		answer->ip[4] = asked->ip[3];
		sum = sum_words(0, answer->ip, 5);
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		answer->ip[2] |= ~sum << 16;
	} else {
		ip[4] = 0;
		ip[5] = bytes;
		__builtin_memcpy(&answer->ip[6], &asked->ip[2], 16);
		__builtin_memcpy(&answer->ip[2], &source, 16);
	}
	answer->udp[0] = asked->udp[0];
	answer->udp[1] = bpf_htons(bytes);
	answer->bth[0] = bpf_htonl(ACKNOWLEDGE << 24 | 0x40 << 16 | 0xffff);
	answer->bth[1] = bpf_htonl(group->sender_qpn & NUMBERS);
	answer->bth[2] = bpf_htonl(merged.psn & NUMBERS);
	answer->extended[0] = bpf_htonl(merged.syndrome << 24 | (merged.msn & NUMBERS));
	answer->icrc = ~crc_headers(answer);
	if (bpf_skb_change_tail(skb, ETHERNET_BYTES + answer->ip_bytes + bytes, 0) || reflect_addresses(skb, 0) ||
	    bpf_skb_store_bytes(skb, ETHERNET_BYTES, answer->ip, 20, 0) ||
	    (answer->ip_bytes == 40 && bpf_skb_store_bytes(skb, ETHERNET_BYTES + 20, answer->ip + 5, 20, 0)) ||
	    bpf_skb_store_bytes(skb, bth_at(answer) - UDP_BYTES, answer->udp, UDP_BYTES + BTH_BYTES + 4, 0) ||
	    bpf_skb_store_bytes(skb, bth_at(answer) + BTH_BYTES + 4, &answer->icrc, ICRC_BYTES, 0))
		return TC_ACT_SHOT;
	return reflect(skb);
}

static __always_inline int replicate(struct __sk_buff *skb, struct scratch *scratch)
{
	struct copying copying = { .skb = skb, .scratch = scratch, .refused = MEMBERS_MAX };
	const struct packet *packet = &scratch->packet;
	struct group_key key = { .sender = packet->source, .id = packet->target_qpn };
	struct outcome outcome = { .counter = COPY };
	struct traffic *counted;
	struct group *group;

	group = bpf_map_lookup_elem(&groups, &key);
	if (!group) {
		count(FOREIGN);
		return TC_ACT_UNSPEC;
	}
	counted = bpf_map_lookup_elem(&traffic, &key);
	if (!is_among(group->inputs, skb->ifindex)) {
		count_of(counted, REQUEST_MISPLACED, 1);
		outcome.counter = REQUEST_MISPLACED;
	} else if (hop_limit(packet) <= 1) {
		count_of(counted, REQUEST_EXPIRED, 1);
		outcome.counter = REQUEST_EXPIRED;
	}
	if (outcome.counter != COPY) {
		if (group->is_traced)
			trace(skb, packet, &key, 0, &outcome);
		return TC_ACT_SHOT;
	}
	count_of(counted, REQUEST, 1);
	if (counted)
		counted->request_bytes += icrc_at(packet) + ICRC_BYTES - ETHERNET_BYTES;
	group->entered = packet->psn;
	copying.group = group;
	if (is_unicast(packet->opcode))
		copying.refused = 0;
	else if (has_reth(packet->opcode))
		bpf_loop(group->count, find_memory, &copying, 0);
	if (copying.refused != MEMBERS_MAX) {
		if (is_unicast(packet->opcode))
			count_of(counted, REQUEST_REFUSED, 1);
		else
			count_of(counted, REGION_UNKNOWN, 1);
		return refuse(skb, scratch, group, counted, copying.refused);
	}
	if (packet->ip_bytes == 20 ? begin_copies(skb, scratch, 5) : begin_copies(skb, scratch, 10))
		copying.failed = group->count, copying.failed_places = ~0ULL;
	else
		bpf_loop(group->count, copy, &copying, 0);
	count_of(counted, COPY, group->count - copying.failed);
	if (copying.failed)
		count_of(counted, COPY_FAILED, copying.failed);
	if (group->is_traced) {
		outcome.failed = copying.failed_places;
		trace(skb, packet, &key, group, &outcome);
	}
	return TC_ACT_STOLEN;
}

static __always_inline int differ_addresses(const struct address *one, const struct address *other)
{
	return ((one->words[0] ^ other->words[0]) | (one->words[1] ^ other->words[1]) |
		(one->words[2] ^ other->words[2]) | (one->words[3] ^ other->words[3])) != 0;
}

/* Merges a member's answer. What becomes of it is identified by `merged->counter`. */
static __always_inline int merge_packet(struct __sk_buff *skb, const struct packet *packet, const struct sender_key *key,
					const struct sender *sender, struct merged *merged)
{
	struct member_key member = { .sender = packet->target, .qpn = packet->target_qpn, .member = packet->source };
	struct member *found = bpf_map_lookup_elem(&members, &member);

	merged->counter = ANSWER_DROPPED;
	if (!found) {
		struct group_key group = { .sender = packet->target, .id = sender->id };
		struct traffic *counted = bpf_map_lookup_elem(&traffic, &group);

		/* Others may belong to a later connection that reuses the queue pair number. */
		if (differ_addresses(&packet->source, &sender->virtual_address)) {
			merged->counter = ANSWER_FOREIGN;
			count_of(counted, ANSWER_FOREIGN, 1);
			return TC_ACT_UNSPEC;
		}
		count_of(counted, ANSWER_DROPPED, 1);
		return TC_ACT_SHOT;
	}
	if (!is_among(found->ports, skb->ifindex))
		return drop_answer(key, found, ANSWER_DROPPED);
	/* It changes state here, so its ICRC is checked here. */
	if (~crc_headers(packet) != packet->icrc) {
		merged->counter = ICRC_ERROR;
		return drop_answer(key, found, ICRC_ERROR);
	}
	if (packet->opcode == CNP)
		merged->syndrome = CNP << 8;
	merged->way.port = skb->ifindex;
	merged->way.tag = skb->vlan_present ? HAS_TAG | (skb->vlan_tci & 0xffff) : 0;
	if (bpf_skb_load_bytes(skb, 0, merged->way.ethernet, sizeof(merged->way.ethernet)))
		return TC_ACT_SHOT;
	merge_answer(key, sender, found, merged);
	count(merged->counter);
	if (merged->counter == ANSWER_SUPPRESSED || merged->counter == ANSWER_DROPPED ||
	    merged->counter == CNP_SUPPRESSED)
		return TC_ACT_STOLEN;
	return TC_ACT_OK;
}

static __always_inline int answer(struct __sk_buff *skb, struct scratch *scratch)
{
	const struct packet *packet = &scratch->packet;
	struct change *change = &scratch->change;
	__u32 aeth = bpf_ntohl(packet->extended[0]);
	struct merged merged = { .psn = packet->psn, .syndrome = aeth >> 24, .msn = aeth & NUMBERS };
	struct sender_key key = { .sender = packet->target, .qpn = packet->target_qpn };
	struct sender *sender;
	int verdict;

	sender = bpf_map_lookup_elem(&senders, &key);
	if (!sender) {
		count(FOREIGN);
		return TC_ACT_UNSPEC;
	}
	verdict = merge_packet(skb, packet, &key, sender, &merged);
	if (sender->is_traced) {
		struct group_key group = { .sender = packet->target, .id = sender->id };
		struct outcome outcome = { .counter = merged.counter };

		trace(skb, packet, &group, 0, &outcome);
	}
	if (verdict != TC_ACT_OK)
		return verdict;
	change->source = sender->virtual_address;
	change->psn = packet->psn;
	change->aeth = packet->extended[0];
	if (packet->opcode != CNP) {
		change->psn = merged.psn;
		change->aeth = bpf_htonl(merged.syndrome << 24 | (merged.msn & NUMBERS));
	}
	return apply(skb, packet, change) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* Run by the agent: the port whose number is the mark receives this frame. */
SEC("classifier")
int receive(struct __sk_buff *skb)
{
	return bpf_clone_redirect(skb, skb->mark, BPF_F_INGRESS) ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("classifier")
int mcrdma(struct __sk_buff *skb)
{
	int verdict = TC_ACT_UNSPEC;
	struct scratch *scratch;
	__u32 first = 0;

	scratch = bpf_map_lookup_elem(&scratches, &first);
	if (!scratch)
		return TC_ACT_UNSPEC;
	/* One 802.1Q tag is kept outside the frame, and so are its copies'. */
	if (skb->protocol == bpf_htons(ETH_P_8021Q) || skb->protocol == bpf_htons(ETH_P_8021AD) ||
	    (skb->vlan_present && skb->vlan_proto != bpf_htons(ETH_P_8021Q))) {
		count(TAG_UNSUPPORTED);
		return TC_ACT_UNSPEC;
	}
	if (skb->protocol == bpf_htons(ETH_P_IP) || skb->protocol == bpf_htons(ETH_P_IPV6)) {
		switch (parse(skb, &scratch->packet)) {
		case IS_PACKET:
			if (is_request(scratch->packet.opcode) || is_unicast(scratch->packet.opcode))
				return replicate(skb, scratch);
			return answer(skb, scratch);
		case IS_MALFORMED:
			count(MALFORMED);
			return TC_ACT_UNSPEC;
		case IS_FRAGMENT:
			count(FRAGMENT);
			return TC_ACT_UNSPEC;
		}
	}
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		verdict = resolve_arp(skb);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		verdict = resolve_neighbour(skb);
	if (verdict == TC_ACT_UNSPEC)
		count(FOREIGN);
	return verdict;
}

/* No helper requires GPL. */
char LICENSE[] SEC("license") = "Apache-2.0";
