/* Merges the members' answers into those of one peer, with the results of in-switch/mcrdma/src/merge.rs. */
#pragma once

#include "packet.h"

#define HOLD_NS 200000ULL
#define LAG_MAX 32
#define SILENCE_NS 20000000ULL
#define PACE_NS_MIN 40000
#define PACE_NS_MAX 60000
#define PACED 2
#define AHEAD_MAX 0x7ffffe
#define CREDITS_UNLIMITED 31

#define SYNDROME_KIND 0xe0
#define SYNDROME_ACK 0x00
#define SYNDROME_NOT_READY 0x20
#define SYNDROME_NAK 0x60
#define NAK_INVALID_REQUEST 1
#define NAK_REMOTE_ACCESS 2

/* RNR timer codes, in units of 10 us (IBA table 46). */
const __u16 not_ready_units[32] = {
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
	3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

static __always_inline __u64 not_ready_ns(__u32 timer)
{
	timer &= 31;
	return timer ? not_ready_units[timer] * 10000ULL : 655360000ULL;
}

/* Signed difference of two 24-bit serial numbers. */
static __always_inline __s32 ahead_of(__u32 number, __u32 other)
{
	return (__s32)((number - other) << 8) >> 8;
}

/* What becomes of an answer: identified by its counter. */
struct merged {
	__u32 counter;
	__u32 psn;
	__u32 syndrome;
	__u32 msn;
	struct way way;
};

/* State of the group: over all members. */
struct state {
	__u32 expected;
	__u32 slowest;
	__u32 credits;
	__u32 is_nak_pending;
};

/* Keeps the compiler from making a branch of it: the verifier would follow both ways in each iteration.
 * For the same reason loops have no early exit.
 */
#define NO_BRANCH(value) asm volatile("" : "+r"(value))
#define FEW_MEMBERS 8

/* All ones for a member that has not been removed. */
static __always_inline __u32 counts(const struct sender *sender, __u32 i)
{
	__u32 mask = (__s64)(sender->present << (63 - i)) >> 63;

	NO_BRANCH(mask);
	return mask;
}

/* All ones if a number is behind another. */
static __always_inline __u32 is_behind(__u32 number, __u32 other)
{
	__u32 mask = ahead_of(number, other) >> 31;

	NO_BRANCH(mask);
	return mask;
}

static __always_inline __u32 differ(__u32 number, __u32 other)
{
	return is_behind(number, other) | is_behind(other, number);
}

static __always_inline void look_at(struct answers *answers, const struct sender *sender, struct state *state,
				    __u32 members)
{
	/* Ahead of every member. */
	__u32 expected = answers->forwarded + AHEAD_MAX + 1, slowest = 0, credits = CREDITS_UNLIMITED, held = 0;
	__u32 i, mask;

	for (i = 0; i < members; i++) {
		const struct record *record = &answers->records[i];

		mask = is_behind(record->expected, expected) & counts(sender, i);
		expected ^= (expected ^ record->expected) & mask;
		slowest ^= (slowest ^ i) & mask;
		mask = is_behind(record->credits, credits) & counts(sender, i);
		credits ^= (credits ^ record->credits) & mask;
	}
	expected &= NUMBERS;
	for (i = 0; i < members; i++) {
		const struct record *record = &answers->records[i];

		held |= record->is_nak_pending & ~differ(record->expected, expected) & counts(sender, i);
	}
	state->expected = expected;
	state->slowest = slowest;
	state->credits = credits;
	state->is_nak_pending = held & 1;
}

static __always_inline void look(struct answers *answers, const struct sender *sender, struct state *state)
{
	if (sender->count <= FEW_MEMBERS)
		look_at(answers, sender, state, FEW_MEMBERS);
	else
		look_at(answers, sender, state, MEMBERS_MAX);
}

static __always_inline void release_held(struct answers *answers, __u32 members)
{
	__u32 i;

	for (i = 0; i < members; i++)
		answers->records[i].is_nak_pending = 0;
}

static __always_inline void nak_is_forwarded(struct answers *answers, const struct sender *sender, __u64 now_ns,
					__u32 expected)
{
	answers->nak_number = expected;
	answers->nak_until_ns = now_ns + HOLD_NS;
	if (sender->count <= FEW_MEMBERS)
		release_held(answers, FEW_MEMBERS);
	else
		release_held(answers, MEMBERS_MAX);
}

/* All ones if a member expects a later packet than its record has, and one that can have been sent. */
static __always_inline __u32 is_later(const struct answers *answers, const struct record *record, __u32 number)
{
	return is_behind(record->expected, number) & is_behind(answers->forwarded, number) &
	       ~is_behind(answers->forwarded + AHEAD_MAX, number);
}

/* Under the lock. `psn` and `syndrome` are those of the packet. */
static __always_inline void merge(struct answers *answers, const struct sender *sender, __u64 now_ns, __u32 index,
				  struct merged *merged)
{
	__u32 kind = merged->syndrome & SYNDROME_KIND, value = merged->syndrome & 31;
	struct record *record = &answers->records[index & (MEMBERS_MAX - 1)];
	__u32 is_ack = kind == SYNDROME_ACK, is_repeated = 0, is_nak = 0;
	__u32 number = (merged->psn - record->psn_offset + is_ack) & NUMBERS;
	__u32 is_other = kind == SYNDROME_NAK && value;
	struct state state = {};

	/* Answers that are made here have none. */
	if (merged->way.port)
		record->way = merged->way;
	if (!is_other) {
		is_repeated = number == record->expected;
		if (is_ack)
			record->credits = value;
		if (is_later(answers, record, number)) {
			record->expected = number;
			if (ahead_of(merged->msn, record->msn) > 0)
				record->msn = merged->msn;
			record->is_nak_pending = 0;
		}
		is_nak = kind == SYNDROME_NAK && number == record->expected;
		record->is_nak_pending |= is_nak;
	}
	look(answers, sender, &state);
	if (is_other) {
		merged->counter = NAK_FORWARDED;
	} else if (kind == SYNDROME_NOT_READY) {
		__u64 until_ns = now_ns + not_ready_ns(value);

		if (answers->wait_number == state.expected && now_ns < answers->wait_until_ns &&
		    until_ns <= answers->wait_until_ns + HOLD_NS) {
			merged->counter = ANSWER_SUPPRESSED;
			return;
		}
		answers->wait_number = state.expected;
		answers->wait_until_ns = until_ns;
		merged->counter = RNR_NAK_FORWARDED;
	} else if (is_nak && (ahead_of(state.expected, answers->forwarded) > 0 ||
			      answers->nak_number != state.expected || now_ns >= answers->nak_until_ns)) {
		merged->counter = NAK_FORWARDED;
	} else if (ahead_of(state.expected, answers->forwarded) > 0 ||
		   (is_repeated && number == state.expected && !is_nak)) {
		/* A pending NAK is forwarded when the group's expected PSN has reached it. */
		merged->counter = state.is_nak_pending ? NAK_FORWARDED : ACK_FORWARDED;
	} else {
		merged->counter = ANSWER_SUPPRESSED;
		return;
	}
	if (merged->counter == NAK_FORWARDED && !is_other) {
		nak_is_forwarded(answers, sender, now_ns, state.expected);
		merged->syndrome = SYNDROME_NAK;
	}
	if (merged->counter == ACK_FORWARDED)
		merged->syndrome = state.credits;
	if (ahead_of(state.expected, answers->forwarded) > 0)
		answers->forwarded = state.expected;
	merged->msn = answers->records[state.slowest & (MEMBERS_MAX - 1)].msn;
	merged->psn = (state.expected - (merged->counter == ACK_FORWARDED)) & NUMBERS;
}

static __always_inline __u64 since(__u64 now_ns, __u64 at_ns)
{
	return now_ns > at_ns ? now_ns - at_ns : 0;
}

/* Under the lock: whether a member's CNP is forwarded. */
static __always_inline __u32 notify(struct answers *answers, const struct sender *sender, __u64 now_ns, __u32 index)
{
	struct record *record = &answers->records[index & (MEMBERS_MAX - 1)];
	__u64 interval_ns = since(now_ns, record->notified_ns);
	__u32 lag = answers->notified - record->notified, lag_max = LAG_MAX;

	if (interval_ns < PACE_NS_MIN || interval_ns > PACE_NS_MAX)
		record->paced = 0;
	else if (record->paced <= PACED)
		record->paced += 1;
	if (record->paced == PACED || interval_ns >= SILENCE_NS || since(now_ns, answers->notified_ns) >= SILENCE_NS)
		lag_max = 0;
	if (lag > lag_max)
		lag = lag_max;
	record->notified = answers->notified - lag + 1;
	record->notified_ns = now_ns;
	if (!lag) {
		answers->notified = record->notified;
		answers->notified_ns = now_ns;
	}
	return !lag || sender->forward_all ? CNP_FORWARDED : CNP_SUPPRESSED;
}

/* Those that are made here are none of the member's own. */
static __always_inline __u32 is_own(const struct merged *merged)
{
	return merged->way.port != 0;
}

/* Under the lock: counts a member's answer that was merged. */
static __always_inline void count_answer(struct answered *answered, const struct merged *merged, __u32 kind)
{
	kind &= KINDS - 1;
	if (merged->counter == ANSWER_SUPPRESSED || merged->counter == CNP_SUPPRESSED)
		answered->suppressed[kind] += is_own(merged);
	else
		answered->forwarded[kind] += is_own(merged);
}

/* KINDS: a reserved syndrome, which is dropped. A CNP has none. */
static __always_inline __u32 kind_of(__u32 syndrome)
{
	__u32 kind = syndrome & SYNDROME_KIND;

	if (syndrome == CNP << 8)
		return KIND_CNP;
	if (kind == SYNDROME_ACK)
		return KIND_ACK;
	if (kind == SYNDROME_NOT_READY)
		return KIND_NOT_READY;
	return kind == SYNDROME_NAK && (syndrome & 31) <= 3 ? KIND_NAK : KINDS;
}

/* Merges a member's answer, under the lock. `member`: null if it is none. */
static __always_inline void merge_answer(const struct sender_key *key, const struct sender *sender,
					 const struct member *member, struct merged *merged)
{
	__u64 now_ns = time_ns();
	struct answered *answered;
	struct answers *state;
	__u32 kind;

	merged->counter = ANSWER_DROPPED;
	state = bpf_map_lookup_elem(&answers, key);
	if (!member || !state)
		return;
	answered = &state->answered[member->index & (MEMBERS_MAX - 1)];
	kind = kind_of(merged->syndrome);
	if (kind == KINDS || !(sender->present >> (member->index & 63) & 1)) {
		bpf_spin_lock(&state->lock);
		answered->dropped += is_own(merged);
		bpf_spin_unlock(&state->lock);
		return;
	}
	bpf_spin_lock(&state->lock);
	if (kind == KIND_CNP)
		merged->counter = notify(state, sender, now_ns, member->index);
	else
		merge(state, sender, now_ns, member->index, merged);
	count_answer(answered, merged, kind);
	bpf_spin_unlock(&state->lock);
}

/* Counts a member's answer that is dropped: it is not intact, or at a wrong port. */
static __always_inline int drop_answer(const struct sender_key *key, const struct member *member, __u32 counter)
{
	struct answers *state = bpf_map_lookup_elem(&answers, key);

	count(counter);
	if (state) {
		struct answered *answered = &state->answered[member->index & (MEMBERS_MAX - 1)];

		bpf_spin_lock(&state->lock);
		if (counter == ICRC_ERROR)
			answered->icrc_errors += 1;
		else
			answered->dropped += 1;
		bpf_spin_unlock(&state->lock);
	}
	return TC_ACT_SHOT;
}
