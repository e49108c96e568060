/* Notes a packet of a group that is traced (src/kernel/traces.rs), for the agent. In a ring buffer (Linux 5.8): perf buffers
 * are for programs under the GPL only. */
#pragma once

#include "packet.h"

/* Of an answer without an AETH, and of a request. */
#define NO_SYNDROME 0x100

struct event {
	__u64 at_ns;
	struct group_key group;
	__u32 port;
	__u32 opcode;
	__u32 psn;
	__u32 syndrome;
	/* What was decided. */
	__u32 counter;
	/* Of an answer. */
	struct address source;
	/* A bit for each copy that failed. */
	__u64 failed;
	__u32 count;
	__u32 unused;
	/* Of the copies. Only `count` are written. */
	__u32 ports[MEMBERS_MAX];
};

SIZE(event, 336);
AT(event, at_ns, 0);
AT(event, group, 8);
AT(event, port, 28);
AT(event, opcode, 32);
AT(event, psn, 36);
AT(event, syndrome, 40);
AT(event, counter, 44);
AT(event, source, 48);
AT(event, failed, 64);
AT(event, count, 72);
AT(event, unused, 76);
AT(event, ports, 80);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* Too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct event);
} made_events SEC(".maps");

/* Of a packet. */
struct outcome {
	__u64 failed;
	__u32 counter;
};

struct listing {
	struct event *event;
	const struct group *group;
};

static long list_port(__u32 index, void *context)
{
	struct listing *listing = context;

	listing->event->ports[index & (MEMBERS_MAX - 1)] =
		listing->group->branches[index & (MEMBERS_MAX - 1)].port;
	return 0;
}

/* `copied`: the group, if the packet was copied. What does not fit is counted and reported to readers. */
static __noinline int trace(struct __sk_buff *skb, const struct packet *packet, const struct group_key *key,
			    const struct group *copied, const struct outcome *outcome)
{
	struct traffic *counted;
	struct listing listing;
	struct event *event;
	__u32 first = 0, bytes;

	if (!packet || !key || !outcome)
		return 0;
	event = bpf_map_lookup_elem(&made_events, &first);
	if (!event)
		return 0;
	event->at_ns = time_ns();
	event->group = *key;
	event->port = skb->ifindex;
	event->opcode = packet->opcode;
	event->psn = packet->psn;
	event->syndrome = packet->opcode == ACKNOWLEDGE ? bpf_ntohl(packet->extended[0]) >> 24 : NO_SYNDROME;
	event->counter = outcome->counter;
	event->source = packet->source;
	event->failed = outcome->failed;
	event->count = 0;
	event->unused = 0;
	bytes = __builtin_offsetof(struct event, ports);
	if (copied && copied->count <= MEMBERS_MAX) {
		listing.event = event;
		listing.group = copied;
		bpf_loop(copied->count, list_port, &listing, 0);
		event->count = copied->count;
		bytes += copied->count * sizeof(event->ports[0]);
	}
	if (bytes > sizeof(*event) || !bpf_ringbuf_output(&events, event, bytes, 0))
		return 0;
	counted = bpf_map_lookup_elem(&traffic, key);
	if (counted)
		counted->trace_lost += 1;
	return 0;
}
