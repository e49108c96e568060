/* Maps: written by the switch agent, or by the program itself.
 *
 * Layouts are those of src/kernel/entries.rs. Addresses have 16 bytes, IPv4 as ::ffff:a.b.c.d; numbers
 * are in host byte order.
 *
 * Regions are in chunks of 16 with an entry of their first addresses, for two binary searches without branches. Copies are
 * counted by group, not by branch: branches change with routes, and all get the same packets.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MEMBERS_MAX 64
/* Of a member, in chunks. */
#define REGIONS_MAX 1024
#define CHUNK_REGIONS 16
#define CHUNKS_MAX (REGIONS_MAX / CHUNK_REGIONS)
#define PORTS_MAX 16
#define GROUPS_MAX 65536
/* Of all groups together. */
#define PLACES_MAX 262144
#define REGIONS_TOTAL_MAX 1048576

struct address {
	__u32 words[4];
};

struct group_key {
	struct address sender;
	__u32 id;
};

struct branch {
	__u32 port;
	/* The group's identifier if it is not rewritten. */
	__u32 qpn;
	__u32 psn_offset;
	__u8 mac[6];
	/* Behind the last fork: rewritten for one member. */
	__u8 rewrites;
	/* Of its regions; with more than one also an entry of their first addresses. */
	__u8 chunks;
	struct address target;
	/* What its target and queue pair contribute to the CRC up to the packet number. */
	__u32 crc;
};

/* Replaced as a whole, and but for `entered` never changed where it lies: a packet is copied by one version of it. */
struct group {
	__u32 sender_qpn;
	__u32 count;
	/* Key of its branches in `regions`; unique among all versions of all groups. */
	__u64 generation;
	__u32 is_traced;
	/* Written by the program: number of the packet that came last. All ones in a new version. */
	__u32 entered;
	/* Ingress ports, zero-terminated; none: any port. */
	__u32 inputs[PORTS_MAX];
	struct branch branches[MEMBERS_MAX];
};

struct regions_key {
	__u64 generation;
	__u32 branch;
	__u32 chunk;
};

/* Number of the entry with the first addresses of all chunks. */
#define STARTS 0xffffffff

struct region {
	__u64 start;
	__u64 bytes;
	__u64 member_start;
	__u32 member_key;
	__u32 unused;
};

/* Ordered by their start; the starts of unused ones are ~0. */
struct regions {
	union {
		struct region all[CHUNK_REGIONS];
		__u64 starts[CHUNKS_MAX];
	};
};

struct sender_key {
	struct address sender;
	__u32 qpn;
};

/* Written by the agent alone. */
struct sender {
	struct address virtual_address;
	/* A bit for each member whose answers count. */
	__u64 present;
	/* Members' indices are below it. */
	__u32 count;
	__u32 forward_all;
	/* Read by the agent alone: identifier of the group that is merged. Others may have the same queue
	 * pair and only be copied here.
	 */
	__u32 id;
	/* Read by the agent alone: whether ARP for the virtual address is answered. */
	__u32 is_answered;
	/* Read by the agent alone: whether the group is traced. */
	__u32 is_traced;
	__u32 unused;
};

struct member_key {
	struct address sender;
	__u32 qpn;
	struct address member;
};

struct member {
	/* Index of its record. */
	__u32 index;
	/* Ingress ports of its answers, as `inputs`. */
	__u32 ports[PORTS_MAX];
};

/* In the tag of a frame that has one. */
#define HAS_TAG 0x10000

/* Where a frame was received, its VLAN tag, and its Ethernet addresses. */
struct way {
	__u32 port;
	__u32 tag;
	__u32 ethernet[3];
};

/* State of a member. */
struct record {
	__u32 expected;
	__u32 msn;
	__u32 credits;
	__u32 is_nak_pending;
	__u32 psn_offset;
	__u32 notified;
	__u64 notified_ns;
	/* Of its last answer. */
	struct way way;
	__u32 paced;
};

/* Counters of a member's answers, written under the lock of its group's answers, whose cache line an answer writes anyway: an
 * entry for each member and processor would take as much memory as there are processors times members. The order of kinds
 * is that of mcrdma::AnswerKind.
 */
enum answer_kind {
	KIND_ACK,
	KIND_NAK,
	KIND_NOT_READY,
	KIND_CNP,
	KINDS,
};

struct answered {
	__u64 forwarded[KINDS];
	__u64 suppressed[KINDS];
	__u64 dropped;
	__u64 icrc_errors;
};

/* Written by this program alone, under the lock. */
struct answers {
	struct bpf_spin_lock lock;
	__u32 forwarded;
	__u32 nak_number;
	__u32 wait_number;
	__u64 nak_until_ns;
	__u64 wait_until_ns;
	__u64 notified_ns;
	__u32 notified;
	__u32 unused;
	struct record records[MEMBERS_MAX];
	struct answered answered[MEMBERS_MAX];
};

/* The same as in src/kernel/entries.rs: neither side builds with another layout. */
#define SIZE(entry_, bytes_)                                                                     \
	_Static_assert(sizeof(struct entry_) == bytes_, "size of " #entry_)
#define AT(entry_, field_, offset_)                                                              \
	_Static_assert(__builtin_offsetof(struct entry_, field_) == offset_, #entry_ "." #field_)

SIZE(group_key, 20);
AT(group_key, sender, 0);
AT(group_key, id, 16);
SIZE(branch, 40);
AT(branch, port, 0);
AT(branch, qpn, 4);
AT(branch, psn_offset, 8);
AT(branch, mac, 12);
AT(branch, rewrites, 18);
AT(branch, chunks, 19);
AT(branch, target, 20);
AT(branch, crc, 36);
SIZE(group, 2648);
AT(group, sender_qpn, 0);
AT(group, count, 4);
AT(group, generation, 8);
AT(group, is_traced, 16);
AT(group, entered, 20);
AT(group, inputs, 24);
AT(group, branches, 88);
SIZE(regions_key, 16);
AT(regions_key, generation, 0);
AT(regions_key, branch, 8);
AT(regions_key, chunk, 12);
SIZE(region, 32);
AT(region, start, 0);
AT(region, bytes, 8);
AT(region, member_start, 16);
AT(region, member_key, 24);
AT(region, unused, 28);
SIZE(regions, 512);
AT(regions, all, 0);
AT(regions, starts, 0);
SIZE(sender_key, 20);
AT(sender_key, sender, 0);
AT(sender_key, qpn, 16);
SIZE(sender, 48);
AT(sender, virtual_address, 0);
AT(sender, present, 16);
AT(sender, count, 24);
AT(sender, forward_all, 28);
AT(sender, id, 32);
AT(sender, is_answered, 36);
AT(sender, is_traced, 40);
AT(sender, unused, 44);
SIZE(member_key, 36);
AT(member_key, sender, 0);
AT(member_key, qpn, 16);
AT(member_key, member, 20);
SIZE(member, 68);
AT(member, index, 0);
AT(member, ports, 4);
SIZE(way, 20);
AT(way, port, 0);
AT(way, tag, 4);
AT(way, ethernet, 8);
SIZE(record, 56);
AT(record, expected, 0);
AT(record, msn, 4);
AT(record, credits, 8);
AT(record, is_nak_pending, 12);
AT(record, psn_offset, 16);
AT(record, notified, 20);
AT(record, notified_ns, 24);
AT(record, way, 32);
AT(record, paced, 52);
SIZE(answered, 80);
AT(answered, forwarded, 0);
AT(answered, suppressed, 32);
AT(answered, dropped, 64);
AT(answered, icrc_errors, 72);
SIZE(answers, 8752);
AT(answers, lock, 0);
AT(answers, forwarded, 4);
AT(answers, nak_number, 8);
AT(answers, wait_number, 12);
AT(answers, nak_until_ns, 16);
AT(answers, wait_until_ns, 24);
AT(answers, notified_ns, 32);
AT(answers, notified, 40);
AT(answers, unused, 44);
AT(answers, records, 48);
AT(answers, answered, 3632);

#define TABLE(name_, key_, value_, entries_) TABLE_OF(BPF_MAP_TYPE_HASH, name_, key_, value_, entries_)
#define TABLE_OF(type_, name_, key_, value_, entries_)                                           \
	struct {                                                                                 \
		__uint(type, type_);                                                             \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                            \
		__uint(max_entries, entries_);                                                   \
		__type(key, key_);                                                               \
		__type(value, value_);                                                           \
	} name_ SEC(".maps")

TABLE(groups, struct group_key, struct group, GROUPS_MAX);
/* A branch with up to a chunk of regions has one entry, others at most one for each 8; while a group changes it has two
 * versions.
 */
TABLE(regions, struct regions_key, struct regions,
      PLACES_MAX + REGIONS_TOTAL_MAX / 8 + MEMBERS_MAX * (CHUNKS_MAX + 1));
TABLE(senders, struct sender_key, struct sender, GROUPS_MAX);
TABLE(members, struct member_key, struct member, PLACES_MAX);
TABLE(answers, struct sender_key, struct answers, GROUPS_MAX);
TABLE(addresses, struct address, __u64, GROUPS_MAX);

/* Never looked up. An update waits until all programs that were running have ended: the kernel does so
 * for maps of maps (maybe_wait_bpf_programs in kernel/bpf/syscall.c).
 */
struct grace {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
	__array(values, struct grace);
} graces SEC(".maps");

/* In the order of mcrdma::Counter. */
enum counter {
	FOREIGN,
	MALFORMED,
	TAG_UNSUPPORTED,
	FRAGMENT,
	RESOLVED,
	REQUEST,
	REQUEST_MISPLACED,
	REQUEST_EXPIRED,
	COPY,
	COPY_FAILED,
	REGION_UNKNOWN,
	REQUEST_REFUSED,
	ACK_FORWARDED,
	NAK_FORWARDED,
	RNR_NAK_FORWARDED,
	ANSWER_SUPPRESSED,
	ANSWER_FOREIGN,
	ANSWER_DROPPED,
	ICRC_ERROR,
	CNP_FORWARDED,
	CNP_SUPPRESSED,
	COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* Counters of a group, of mcrdma::Counter::OF_GROUPS. Made by the agent before the group's entry. */
struct traffic {
	__u64 counts[COUNTERS];
	__u64 request_bytes;
	/* Traced packets for which there was no space. */
	__u64 trace_lost;
};

SIZE(traffic, 184);
AT(traffic, counts, 0);
AT(traffic, request_bytes, 168);
AT(traffic, trace_lost, 176);

TABLE_OF(BPF_MAP_TYPE_PERCPU_HASH, traffic, struct group_key, struct traffic, GROUPS_MAX);

static __always_inline void count_many(__u32 counter, __u64 number)
{
	__u64 *place = bpf_map_lookup_elem(&counters, &counter);

	if (place)
		*place += number;
}

static __always_inline void count(__u32 counter)
{
	count_many(counter, 1);
}

/* For the switch, and for a group if it is there. `counter` is a constant. */
static __always_inline void count_of(struct traffic *group, __u32 counter, __u64 number)
{
	count_many(counter, number);
	if (group)
		group->counts[counter] += number;
}

/* Set by the loader for tests, whose clock is `test_time_ns`. If 0, the verifier removes that branch. */
const volatile __u32 has_test_clock = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} test_time_ns SEC(".maps");

static __always_inline __u64 time_ns(void)
{
	__u32 first = 0;
	__u64 *now_ns;

	if (!has_test_clock)
		return bpf_ktime_get_ns();
	now_ns = bpf_map_lookup_elem(&test_time_ns, &first);
	return now_ns ? *now_ns : 0;
}
