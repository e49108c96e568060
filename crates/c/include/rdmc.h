/*
 * rdmc: replicates large objects from one machine to many. License: Apache-2.0.
 *
 * Made from crates/c by cbindgen; do not edit.
 *
 * Results. Functions that can fail return an rdmc_code, 0 (RDMC_OK) for success, and fill *error if it is not NULL: the code, the
 * member that caused it, and a text that says what, where and the remedy. An rdmc_error is the caller's; nothing of it has to be freed.
 * A call that has failed has changed nothing but what its description says.
 *
 * Ownership. Handles (rdmc_context, rdmc_group, rdmc_message, rdmc_region, rdmc_team, rdmc_device) are made and freed by functions of the library.
 * Texts and settings are only read during a call. Memory is given by value as an rdmc_buffer, always: the library calls `release` of it
 * once when it no longer uses the memory, also if the call fails.
 *
 * Threads. Functions may be called on any thread, also those of one handle at the same time, unless they free it; only an rdmc_message is
 * used by one thread at a time. Functions with a timeout block for at most that long (UINT64_MAX: no limit), all others do
 * not block, unless they say so. Callbacks of a group run on a thread of its own (rdmc-callbacks), `release` on any thread.
 *
 * fork(2). Handles cannot be used in the child: functions return RDMC_FORKED there, and freeing does nothing.
 */

#ifndef RDMC_H
#define RDMC_H

#include <stddef.h>
#include <stdint.h>

// Length of the text of an error, with the zero at its end.
#define RDMC_TEXT_BYTES 488

// What a call returns. Codes are never renumbered.
typedef enum rdmc_code {
  // Success.
  RDMC_OK = 0,
  // An argument or a setting is out of range, or does not fit to another; nothing has changed.
  RDMC_INVALID = 1,
  // The call is not valid in this state, or inside of a callback; nothing has changed.
  RDMC_STATE = 2,
  // The group, team or context is closed.
  RDMC_CLOSED = 3,
  // The time has run out.
  RDMC_TIMEOUT = 4,
  // As many messages are queued as may be.
  RDMC_QUEUE_FULL = 5,
  // Memory cannot be allocated or used, or is too small for a message.
  RDMC_NO_MEMORY = 6,
  // This library or this host cannot do it: a fabric that is not there, a feature that was not built.
  RDMC_UNSUPPORTED = 7,
  // A member cannot be reached, has refused, or was created with other settings.
  RDMC_UNREACHABLE = 8,
  // A system call has failed.
  RDMC_SYSTEM = 9,
  // The process is a fork of the one that created the object.
  RDMC_FORKED = 10,
  // A bug of the library, which has ended the call.
  RDMC_PANICKED = 11,
  // The group or team has failed: a member's process or its connection died.
  RDMC_LOST = 16,
  // As `RDMC_LOST`: nothing was received from a member in time.
  RDMC_SILENT = 17,
  // As `RDMC_LOST`: a member broke the protocol.
  RDMC_PROTOCOL = 18,
  // As `RDMC_LOST`: a member's memory could not be read or written.
  RDMC_MEMORY = 19,
  // As `RDMC_LOST`: a member's application refused a message, or aborted.
  RDMC_APPLICATION = 20,
  // As `RDMC_LOST`: nothing was transferred for too long; the member is the one that was waited for.
  RDMC_STALLED = 21,
  // As `RDMC_LOST`: data were changed in transit.
  RDMC_CORRUPT = 22,
  // As `RDMC_LOST`: the network no longer carries the group's blocks, though its members live.
  RDMC_NETWORK = 23,
  // As `RDMC_LOST`: a member's copy of a message is not the root's, in a group with `verify`.
  RDMC_DIFFERS = 24,
} rdmc_code;

// What the callback `incoming` answers.
typedef enum rdmc_answer {
  // Receive the message into the buffer that was filled in.
  RDMC_ACCEPT = 0,
  // `rdmc_accept` will be called; members that this one relays to wait.
  RDMC_LATER = 1,
  // The message is refused: the group fails.
  RDMC_REFUSE = 2,
} rdmc_answer;

// The type of elements.
typedef enum rdmc_type {
  // `uint8_t`
  RDMC_TYPE_U8 = 0,
  // `uint16_t`
  RDMC_TYPE_U16 = 1,
  // `uint32_t`
  RDMC_TYPE_U32 = 2,
  // `uint64_t`
  RDMC_TYPE_U64 = 3,
  // `int8_t`
  RDMC_TYPE_I8 = 4,
  // `int16_t`
  RDMC_TYPE_I16 = 5,
  // `int32_t`
  RDMC_TYPE_I32 = 6,
  // `int64_t`
  RDMC_TYPE_I64 = 7,
  // IEEE 754 binary16
  RDMC_TYPE_F16 = 8,
  // The upper half of a `float`
  RDMC_TYPE_BF16 = 9,
  // `float`
  RDMC_TYPE_F32 = 10,
  // `double`
  RDMC_TYPE_F64 = 11,
} rdmc_type;

// How elements are combined.
typedef enum rdmc_op {
  // The sum.
  RDMC_OP_SUM = 0,
  // The product.
  RDMC_OP_PROD = 1,
  // The least.
  RDMC_OP_MIN = 2,
  // The greatest.
  RDMC_OP_MAX = 3,
  // Bitwise and, of integers.
  RDMC_OP_BAND = 4,
  // Bitwise or, of integers.
  RDMC_OP_BOR = 5,
  // Bitwise exclusive or, of integers.
  RDMC_OP_BXOR = 6,
} rdmc_op;

// A member's endpoint in the network, with a thread that makes progress. Calls are allowed on any thread.
typedef struct rdmc_context rdmc_context;

// A GPU, and pinned memory of the host by which a team's operations reach it. Calls of several threads are made one after another.
typedef struct rdmc_device rdmc_device;

// One group at one member. Calls are allowed on any thread.
typedef struct rdmc_group rdmc_group;

// Memory that stays registered with the network: see `rdmc_region_create`.
typedef struct rdmc_region rdmc_region;

// A message that is received; its bytes may still be arriving. One thread at a time may use it.
typedef struct rdmc_message rdmc_message;

// A fixed list of members that call operations together, all in the same order. Calls of several threads are made
// one after another.
typedef struct rdmc_team rdmc_team;

// Memory that is given to the library: bytes, and how to give them back.
//
// The library calls `release` once, on any thread, when it no longer uses the memory, also if the call that took
// the buffer fails. Until then the memory exists; of a message that is sent it does not change, and where a message is received only
// the library writes and reads it. `release` may not call the library.
typedef struct rdmc_buffer {
  // The first byte; may be null if `length` is 0.
  void *data;
  // Length in bytes.
  uint64_t length;
  // Gives the memory back, with `private_data`; null for memory that exists until the context is closed.
  void (*release)(void *private_data);
  // For `release`.
  void *private_data;
} rdmc_buffer;

// Why a call has failed; owned by the caller, with nothing to free. Calls that succeed do not change it.
typedef struct rdmc_error {
  // What the call has returned.
  int32_t code;
  // Zero.
  int32_t reserved;
  // The rank of the member that caused it; -1 if none did, or if it is not known.
  int64_t member;
  // Of a group that has failed: how many messages, from the first, are known to be at every member.
  uint64_t delivered;
  // What has happened, where, and the remedy; in UTF-8, cut to its length, with a zero at its end.
  char text[RDMC_TEXT_BYTES];
} rdmc_error;

// The settings of a context. Fields that are 0 or NULL mean the default.
typedef struct rdmc_context_settings {
  // The size of this struct: `sizeof(rdmc_context_settings)`.
  size_t size;
  // Required: the address on which other members connect to this one, as in 10.0.0.1:7000; port 0 selects one.
  const char *listen;
  // Required: 64 hexadecimal digits that all members know, and nobody else (`rdmc secret` makes them).
  const char *secret;
  // The network that blocks move over; the same at all members: tcp (the default), verbs, efa, cxi, shm ...
  const char *fabric;
  // How blocks are protected on TCP connections; the same at all members: none, authenticate (the default) or encrypt.
  const char *protection;
  // How long creating a group may take, in milliseconds; 30,000 by default.
  uint64_t connect_timeout_ms;
  // A neighbour from which nothing was received for so many milliseconds is considered lost; 5,000 by default.
  uint64_t silence_timeout_ms;
  // The most bytes per second that this context sends, and that it receives; 0 for no limit.
  uint64_t rate_max;
  // TCP connections to each neighbour, 1 (the default) to 8; the same at all members.
  uint32_t streams;
  // 0: a thread of the context makes progress. 1: calls of `rdmc_progress` and calls that wait make progress.
  uint32_t caller_makes_progress;
} rdmc_context_settings;

// What a context has done so far.
typedef struct rdmc_counters {
  // Bytes received as blocks.
  uint64_t bytes_received;
  // Bytes sent as blocks.
  uint64_t bytes_sent;
  // Bytes that were copied in user space.
  uint64_t bytes_copied;
  // Blocks received.
  uint64_t blocks_received;
  // Blocks sent.
  uint64_t blocks_sent;
  // Small messages that were received directly from the root.
  uint64_t small_received;
  // Small messages that the root has written to all receivers.
  uint64_t small_sent;
  // Zero.
  uint64_t reserved;
} rdmc_counters;

// The settings of a group. Fields that are 0 or NULL mean the default. All but `rank`, `report_blocks`, the windows,
// `report_delivered`, `stall_timeout_ms`, `connect_timeout_ms`, `send_queue_max`, `receive_bytes_max`, `message_bytes` and
// `rate_bits_per_second` have to be the same at all members. What a member leaves open of algorithm and block size is as at the root.
typedef struct rdmc_group_settings {
  // The size of this struct: `sizeof(rdmc_group_settings)`.
  size_t size;
  // Identifies the group; unique among those of its members' contexts.
  uint64_t number;
  // Required: the address of each member's context, by rank.
  const char *const *members;
  // Number of members.
  uint32_t member_count;
  // The rank of this member.
  uint32_t rank;
  // The rank of the member that sends.
  uint32_t root;
  // Whether the callback `block` is called: 1, or 0.
  uint32_t report_blocks;
  // The name of the algorithm, as `rdmc plan` prints them; NULL or "auto": the root takes the fastest by the cost model, and
  // the others learn it. `rdmc_group_algorithm` tells.
  const char *algorithm;
  // The rack of each rank, `member_count` numbers; NULL: all members are in one rack.
  const uint32_t *racks;
  // Length in bytes of a block. By default the root takes the fastest by the cost model, at most 16 MiB, and the others learn it;
  // `rdmc_group_block_bytes` tells. Larger ones cost less processor time, smaller ones fill pipelines sooner.
  uint64_t block_bytes;
  // How much memory, in bytes, the library allocates for messages that were not received yet; 256 MiB by default.
  uint64_t receive_bytes_max;
  // How long a due transfer may make no progress before the group fails, in milliseconds; 60,000 by default.
  uint64_t stall_timeout_ms;
  // How many messages may be in flight at once, 1 to 1,024; 2 by default.
  uint32_t messages_in_flight;
  // How many messages that are not complete may be queued at the root; 64 by default.
  uint32_t send_queue_max;
  // Receives posted ahead. If neither window is set, half a megabyte, in 8 to 64 blocks; if one is, 8 for the other.
  uint32_t window_receives;
  // Sends posted ahead.
  uint32_t window_sends;
  // Whether the callback `delivered` is called at the root for each message: 1, or 0.
  uint32_t report_delivered;
  // Whether each member compares its copy of every message with the root's, by a digest, before it reports it as
  // received: 1, or 0. If one differs, the group fails with `RDMC_DIFFERS` and names the member.
  uint32_t verify;
  // The length in bytes of a typical message, for the choice of algorithm and block size at the root; 16 MiB by default.
  uint64_t message_bytes;
  // The rate of each member's link in bits per second, for the same choice. By default what the processors can copy if all
  // members are on one machine, otherwise 10 Gbit/s over TCP and 100 Gbit/s over other fabrics.
  uint64_t rate_bits_per_second;
  // How long creating the group may take, in milliseconds; `connect_timeout_ms` of the context by default.
  uint64_t connect_timeout_ms;
} rdmc_group_settings;

// The callbacks of a group (`incoming`, `completion` and `failure` in the paper's figure 1). They run one at a time and in order, on
// the thread rdmc-callbacks of the group, or in `rdmc_progress`. They may call the library, but not wait in
// it for themselves. Those that are NULL are not called.
typedef struct rdmc_callbacks {
  // The size of this struct: `sizeof(rdmc_callbacks)`.
  size_t size;
  // The first argument of each.
  void *user_data;
  // Required at receivers: says where to receive a message of `length` bytes. Returns an `rdmc_answer`; with `RDMC_ACCEPT` it
  // has filled `buffer`, which the library takes.
  int32_t (*incoming)(void *user_data, uint64_t message, uint64_t length, struct rdmc_buffer *buffer);
  // Required: this member is done with the message, which is at `data` until this returns; then its buffer is released.
  // Other members may still be receiving it.
  void (*complete)(void *user_data, uint64_t message, void *data, uint64_t length);
  // The whole message is in place at this member, which may still be relaying it. At receivers only.
  void (*received)(void *user_data, uint64_t message);
  // These bytes of a message are in place; with `report_blocks` only.
  void (*block)(void *user_data, uint64_t message, uint64_t offset, uint64_t length);
  // The group has failed; buffers of messages that were not complete are released after this.
  void (*failed)(void *user_data, const struct rdmc_error *failure);
  // The group is closed: every message has reached every member.
  void (*closed)(void *user_data);
  // No callback is called any more; `user_data` can be freed. Called once, also if the group was not created.
  void (*destroy)(void *user_data);
  // Every member has so many messages, counted from the first. At the root only, with `report_delivered` or while
  // `rdmc_wait_delivered` waits.
  void (*delivered)(void *user_data, uint64_t messages);
} rdmc_callbacks;

// The settings of a team. Fields that are 0 or NULL mean the default. All but `rank` and
// `connect_timeout_ms` have to be the same at all members.
typedef struct rdmc_team_settings {
  // The size of this struct: `sizeof(rdmc_team_settings)`.
  size_t size;
  // Identifies the team; unique among the groups and teams of its members' contexts.
  uint64_t number;
  // Required: the address of each member's context, by rank.
  const char *const *members;
  // Number of members, at most 65,536.
  uint32_t member_count;
  // The rank of this member.
  uint32_t rank;
  // Slots of each ring of a link, at most 4,096; 16 by default.
  uint32_t slots;
  // Length in bytes of a slot, 64 to 1 MiB; 32 KiB by default.
  uint32_t slot_bytes;
  // Messages of at least so many bytes go from memory to memory, in blocks; 128 KiB by default.
  uint64_t long_bytes;
  // Length in bytes of these blocks; 128 KiB by default.
  uint32_t block_bytes;
  // Zero.
  uint32_t reserved;
  // How long creating the team may take, in milliseconds; `connect_timeout_ms` of the context by default.
  uint64_t connect_timeout_ms;
} rdmc_team_settings;

// What a member of a team has done so far.
typedef struct rdmc_operation_counters {
  // Operations that are complete at this member.
  uint64_t operations;
  // Bytes given to the network for others.
  uint64_t bytes_sent;
  // Bytes that have come from others.
  uint64_t bytes_received;
  // Zero.
  uint64_t reserved;
} rdmc_operation_counters;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of this library, as in 0.1.0.
const char *rdmc_version(void);

// Whether this library was built with a feature: `fabric` (networks of libfabric). 1, or 0.
//
// Arguments: `feature` is null, or ends with a zero.
int32_t rdmc_has(const char *feature);

// Allocates memory, all zeros, in huge pages where the system has them. Call `release` of the buffer, or give it
// to a function that takes one.
//
// Arguments: `buffer` may be written; `error` may be null.
int32_t rdmc_allocate(uint64_t length,
                      struct rdmc_buffer *buffer,
                      struct rdmc_error *error);

// Registers memory with the network of a context, until the region and all buffers of it are freed: transfers then do not wait
// for that. Blocks while the system pins the memory, some 100 ms for each GB. Over TCP nothing is registered.
//
// Arguments: `context` and `region` are valid; the buffer is as documented, writable, and taken; `error` may be null.
int32_t rdmc_region_create(const struct rdmc_context *context,
                           struct rdmc_buffer buffer,
                           struct rdmc_region **region,
                           struct rdmc_error *error);

// A part of a region as a buffer, to be sent or received into; it keeps the region's memory, also after
// `rdmc_region_free`. Parts that overlap may be sent at the same time, but not received into.
//
// Arguments: `region` is valid, `buffer` may be written; `error` may be null.
int32_t rdmc_region_buffer(const struct rdmc_region *region,
                           uint64_t offset,
                           uint64_t length,
                           struct rdmc_buffer *buffer,
                           struct rdmc_error *error);

// Frees a region; its memory is released when no buffer of it is used any more. Does nothing for null.
//
// Arguments: `region` is null, or valid and not used again.
void rdmc_region_free(struct rdmc_region *region);

// Starts a context: it listens on its address, and starts its threads. Does not wait for other members.
//
// Errors: `RDMC_INVALID` names the setting; `RDMC_UNSUPPORTED`: this host or this library does not have the fabric; `RDMC_SYSTEM`: the address
// cannot be listened on, or the process has no descriptors or threads left.
//
// Arguments: `settings` is as documented; `context` may be written; `error` may be null.
int32_t rdmc_context_start(const struct rdmc_context_settings *settings,
                           struct rdmc_context **context,
                           struct rdmc_error *error);

// Writes the address on which others connect to this context, with the port that was selected, as in 10.0.0.1:7000.
// 64 bytes are enough.
//
// Arguments: `context` is valid; `text` has `length` bytes; `error` may be null.
int32_t rdmc_context_address(const struct rdmc_context *context,
                             char *text,
                             size_t length,
                             struct rdmc_error *error);

// Writes a new secret: 64 hexadecimal digits, and a zero. Hand it to members over a protected channel, not in arguments or
// environment variables.
//
// Arguments: `text` has `length` bytes, 65 or more; `error` may be null.
int32_t rdmc_secret_random(char *text,
                           size_t length,
                           struct rdmc_error *error);

// Makes progress and runs callbacks, in a context with `caller_makes_progress` only. Waits for at most `wait_ms` if there is
// nothing to do, or while another thread makes progress. `*ran`, if not null: 1 if a callback has run on this thread, else 0.
//
// Errors: `RDMC_STATE` if the context has a thread that makes progress, and in a callback; `RDMC_CLOSED`, and `RDMC_PANICKED` after a bug.
//
// Arguments: `context` is valid; `ran` may be null or written; `error` may be null.
int32_t rdmc_progress(const struct rdmc_context *context,
                      uint64_t wait_ms,
                      int32_t *ran,
                      struct rdmc_error *error);

// Writes a descriptor that is readable when `rdmc_progress` has something to do, also when time has passed: for a program that waits
// for several things by poll(2), select(2) or epoll(7), in a context with `caller_makes_progress` and the fabric tcp.
//
// Call `rdmc_progress` with `wait_ms` 0 each time it is readable, and then `rdmc_receive` with `timeout_ms` 0 for each group
// without callbacks, until it returns `RDMC_TIMEOUT`. Other calls, on any thread, make it readable if there is something to do after
// them. It reports nothing of teams, whose operations block.
//
// The descriptor is the context's, the same for each call: it is only waited for, neither read nor closed, and not used once the
// context is closed or freed: remove it from an epoll descriptor before. Wait for it level-triggered. Blocks while the context is busy, for 10
// seconds at most, in the first call; others do not block. Errors: `RDMC_STATE` if the context has a thread that makes
// progress; `RDMC_UNSUPPORTED` over other fabrics, where a thread that calls `rdmc_progress` waits instead; `RDMC_SYSTEM` if the
// process has no descriptors left.
//
// Arguments: `context` is valid; `fd` may be written; `error` may be null.
int32_t rdmc_context_fd(const struct rdmc_context *context,
                        int *fd,
                        struct rdmc_error *error);

// What the context has done so far. Blocks while it is busy, for 10 seconds at most.
//
// Arguments: `context` is valid; `counters` may be written; `error` may be null.
int32_t rdmc_context_counters(const struct rdmc_context *context,
                              struct rdmc_counters *counters,
                              struct rdmc_error *error);

// Ends a context, and frees it, whatever is returned. Groups that are still open fail at all their members: to end without a
// failure, close them first. Blocks for `timeout_ms` at most; not allowed in callbacks. Does nothing for null.
//
// Arguments: `context` is null, or valid and not used again; `error` may be null.
int32_t rdmc_context_close(struct rdmc_context *context,
                           uint64_t timeout_ms,
                           struct rdmc_error *error);

// As `rdmc_context_close`, within 5 seconds and without a result. In a child of fork(2) it leaves everything to the parent.
//
// Arguments: `context` is null, or valid and not used again.
void rdmc_context_free(struct rdmc_context *context);

// Opens a GPU by its number among those that this process sees: its primary context, which CUDA's run time uses, too. CUDA's driver is
// opened here; a machine without it gets `RDMC_UNSUPPORTED`. `library`: its path, or NULL for libcuda.so.1. `chunk_bytes`:
// a multiple of 16, the same at all members of a team; 0 for 64 MiB. Three chunks of pinned memory are allocated when they are needed.
//
// Arguments: `library` is null, or ends with a zero; `device` may be written; `error` may be null.
int32_t rdmc_device_open(const char *library,
                         uint32_t ordinal,
                         uint64_t chunk_bytes,
                         struct rdmc_device **device,
                         struct rdmc_error *error);

// Replaces `length` bytes of memory of a device (a `CUdeviceptr`) at all members by those of the root. All members call this, with
// the same length and the same `chunk_bytes`. `stream` is a `CUstream` or `cudaStream_t` as a number, 0 for the default one: copies begin
// after what was queued there before, and what is queued there afterwards sees the result. Returns before the last copies end:
// `rdmc_device_settle`. Blocks.
//
// Arguments: `device` and `team` are valid; the memory and the stream stay until the copies have ended; `error` may be null.
int32_t rdmc_team_broadcast_device(const struct rdmc_team *team,
                                   uint32_t root,
                                   const struct rdmc_device *device,
                                   uint64_t address,
                                   uint64_t length,
                                   size_t stream,
                                   uint64_t timeout_ms,
                                   struct rdmc_error *error);

// As `rdmc_team_all_reduce`, of `count` elements in memory of a device; otherwise as `rdmc_team_broadcast_device`.
//
// Arguments: As of `rdmc_team_broadcast_device`.
int32_t rdmc_team_all_reduce_device(const struct rdmc_team *team,
                                    const struct rdmc_device *device,
                                    uint64_t address,
                                    uint64_t count,
                                    int32_t element,
                                    int32_t op,
                                    size_t stream,
                                    uint64_t timeout_ms,
                                    struct rdmc_error *error);

// Waits until the copies of all operations on a device have ended.
//
// Arguments: `device` is valid; `error` may be null.
int32_t rdmc_device_settle(const struct rdmc_device *device, uint64_t timeout_ms, struct rdmc_error *error);

// Frees a device, after its copies have ended: blocks for 10 seconds at most. Does nothing for null, and in a child of fork(2).
//
// Arguments: `device` is null, or valid and not used again.
void rdmc_device_free(struct rdmc_device *device);

// Joins a group, together with all its other members, which must do the same with equal settings; messages are received by
// `rdmc_receive`. Blocks for `connect_timeout_ms` at most.
//
// Errors: `RDMC_INVALID` names the setting, also a number that is in use; `RDMC_UNREACHABLE` names the member that was not reached, has
// refused, or has other settings, and which; `RDMC_TIMEOUT` names those that did not appear in time.
//
// Arguments: `context` is valid, `settings` as documented; `group` may be written; `error` may be null.
int32_t rdmc_group_create(const struct rdmc_context *context,
                          const struct rdmc_group_settings *settings,
                          struct rdmc_group **group,
                          struct rdmc_error *error);

// As `rdmc_group_create`, but messages are received through callbacks. If it fails, none is called but `destroy`.
//
// Arguments: As of `rdmc_group_create`; `callbacks` is as documented, and its functions may be called on another thread.
int32_t rdmc_group_create_with_callbacks(const struct rdmc_context *context,
                                         const struct rdmc_group_settings *settings,
                                         const struct rdmc_callbacks *callbacks,
                                         struct rdmc_group **group,
                                         struct rdmc_error *error);

// Queues a message for all members; at the root only. Waits for at most `timeout_ms` while `send_queue_max` messages are
// queued; with 0 it does not wait. The buffer is taken, and released when this member is done with the message, or at
// once if the call fails. `*message`, if not null, is the message's number: how many were sent before.
//
// Errors: `RDMC_QUEUE_FULL` in the end; `RDMC_STATE`: this member is not the root; `RDMC_CLOSED`, or why the group has failed.
//
// Arguments: `group` is valid; the buffer is as documented; `message` may be null or written; `error` may be null.
int32_t rdmc_send(const struct rdmc_group *group,
                  struct rdmc_buffer buffer,
                  uint64_t timeout_ms,
                  uint64_t *message,
                  struct rdmc_error *error);

// Waits until this member is done with so many messages of the group: their buffers are released, or will be in a moment.
// Other members may still be receiving them; only a successful close means that all have them.
//
// Arguments: `group` is valid; `error` may be null.
int32_t rdmc_wait_complete(const struct rdmc_group *group,
                           uint64_t messages,
                           uint64_t timeout_ms,
                           struct rdmc_error *error);

// At the root: waits until every member has so many messages, counted from the first: they are in place there, and stay so if
// members fail later. Messages may still be sent meanwhile.
//
// Arguments: `group` is valid; `error` may be null.
int32_t rdmc_wait_delivered(const struct rdmc_group *group,
                            uint64_t messages,
                            uint64_t timeout_ms,
                            struct rdmc_error *error);

// How many messages, counted from the first, every member has, as far as the root knows: it learns that with
// `report_delivered`, or while `rdmc_wait_delivered` waits. Never too high; 0 at other members, until the group has ended.
//
// Arguments: `group` is valid, or null: then it is 0.
uint64_t rdmc_delivered(const struct rdmc_group *group);

// Waits for the next message, which is returned once it is announced: its bytes may still be arriving. `*message` is null
// when the group is closed and all messages were received. Messages that were whole before the group has
// failed are returned before the failure. The root receives nothing: there it is `RDMC_STATE` at once, and only reports the end of a group
// that was closed, or has failed.
//
// Errors: `RDMC_TIMEOUT`; why the group has failed; `RDMC_NO_MEMORY`: the posted buffer is too small, or memory cannot be allocated, and the
// message remains the next one; `RDMC_STATE` also in a group with callbacks.
//
// Arguments: `group` is valid; `message` may be written; `error` may be null.
int32_t rdmc_receive(const struct rdmc_group *group,
                     uint64_t timeout_ms,
                     struct rdmc_message **message,
                     struct rdmc_error *error);

// Gives memory before a message arrives (`post_receive_buffer` in the paper's figure 1). Messages that have no memory take
// posted buffers in order, one each, whatever their lengths; one that is too small is an error of `rdmc_receive`, and the
// message takes the next. The buffer is taken, and released when the message is freed and this member is done with it; one that no
// message took is released with the group. Messages that were announced before have memory of the library's.
//
// Arguments: `group` is valid; the buffer is as documented, writable; `error` may be null.
int32_t rdmc_post_receive_buffer(const struct rdmc_group *group,
                                 struct rdmc_buffer buffer,
                                 struct rdmc_error *error);

// Gives memory for a message for which the callback `incoming` has answered `RDMC_LATER`. The buffer is taken; if it is too
// small or read-only the call fails, and another may be given.
//
// Arguments: As of `rdmc_post_receive_buffer`.
int32_t rdmc_accept(const struct rdmc_group *group,
                    uint64_t message,
                    struct rdmc_buffer buffer,
                    struct rdmc_error *error);

// Closes the group and waits until it has ended: success means that every message has reached every member. At members other
// than the root it waits until the root closes; receive all messages first. The group is not freed. If the time runs out, the group
// fails at all members. Not allowed in callbacks: `rdmc_group_start_close`.
//
// Errors: why the group has failed; `RDMC_TIMEOUT`; `RDMC_CLOSED` if it was closed before; `RDMC_STATE` in a callback.
//
// Arguments: `group` is valid; `error` may be null.
int32_t rdmc_group_close(const struct rdmc_group *group,
                         uint64_t timeout_ms,
                         struct rdmc_error *error);

// Starts to close the group without waiting. A callback, or `rdmc_receive`, reports the outcome, also at the root.
//
// Arguments: `group` is valid; `error` may be null.
int32_t rdmc_group_start_close(const struct rdmc_group *group,
                               struct rdmc_error *error);

// Makes the group fail at all members, for this reason (`NULL`: none in words).
//
// Arguments: `group` is valid; `reason` ends with a zero; `error` may be null.
int32_t rdmc_group_abort(const struct rdmc_group *group, const char *reason, struct rdmc_error *error);

// Returns why the group has failed, and `RDMC_OK` if it has not.
//
// Arguments: `group` is valid; `error` may be null.
int32_t rdmc_group_failure(const struct rdmc_group *group, struct rdmc_error *error);

// Writes the name of the group's algorithm, the same at all members, as in binomial-pipeline. 64 bytes are enough.
//
// Arguments: `group` is valid; `text` has `length` bytes; `error` may be null.
int32_t rdmc_group_algorithm(const struct rdmc_group *group,
                             char *text,
                             size_t length,
                             struct rdmc_error *error);

// Length in bytes of every block of the group but the last of a message, the same at all members.
//
// Arguments: `group` is valid.
uint64_t rdmc_group_block_bytes(const struct rdmc_group *group);

// Frees a group; one that is not closed fails at all members. Does nothing for null.
//
// Arguments: `group` is null, or valid and not used again.
void rdmc_group_free(struct rdmc_group *group);

// How many messages of the group precede this one.
//
// Arguments: `message` is valid.
uint64_t rdmc_message_number(const struct rdmc_message *message);

// Length of the message in bytes.
//
// Arguments: `message` is valid.
uint64_t rdmc_message_length(const struct rdmc_message *message);

// Copies the next bytes of the message, in order; waits until some have arrived, for at most the group's `stall_timeout_ms`.
// `*count` is how many; 0 at the end of the message.
//
// Arguments: `message` is valid; `into` has `length` bytes; `count` may be written; `error` may be null.
int32_t rdmc_message_read(struct rdmc_message *message,
                          void *into,
                          size_t length,
                          size_t *count,
                          struct rdmc_error *error);

// Waits for the next range of bytes that has arrived, in the order of arrival, each byte once: `*length` bytes at `*offset` of
// the message, to be read at `*data` until the next such call, or until the message is freed. `*length` is 0 when all
// were returned. Independent of `rdmc_message_read`.
//
// Arguments: `message` is valid; `offset`, `data` and `length` may be written; `error` may be null.
int32_t rdmc_message_next_block(struct rdmc_message *message,
                                uint64_t timeout_ms,
                                uint64_t *offset,
                                const void **data,
                                uint64_t *length,
                                struct rdmc_error *error);

// Waits until all bytes have arrived; they may be read at `*data` until the message is freed.
//
// Arguments: `message` is valid; `data` may be written; `error` may be null.
int32_t rdmc_message_data(struct rdmc_message *message,
                          uint64_t timeout_ms,
                          const void **data,
                          struct rdmc_error *error);

// Waits until this member is done with the message (all bytes received, nothing left to relay), and frees it, whatever is returned.
// A buffer that was posted for it is released then, or a moment later. Does nothing for null.
//
// Arguments: `message` is null, or valid and not used again; `error` may be null.
int32_t rdmc_message_finish(struct rdmc_message *message,
                            uint64_t timeout_ms,
                            struct rdmc_error *error);

// Frees a message, received or not; other members get it all the same. Its memory is released when this member is done
// with it. Does nothing for null.
//
// Arguments: `message` is null, or valid and not used again.
void rdmc_message_free(struct rdmc_message *message);

// Joins a team, together with all its other members, which must do the same with equal settings. Blocks for `connect_timeout_ms`
// at most. A team outlives its context.
//
// Arguments: `context` is valid, `settings` as documented; `team` may be written; `error` may be null.
int32_t rdmc_team_create(const struct rdmc_context *context,
                         const struct rdmc_team_settings *settings,
                         struct rdmc_team **team,
                         struct rdmc_error *error);

// Waits until all members have called this.
//
// Arguments: `team` is valid; `error` may be null.
int32_t rdmc_team_barrier(const struct rdmc_team *team, uint64_t timeout_ms, struct rdmc_error *error);

// Replaces `length` bytes at all members by those of the root.
//
// Arguments: `team` is valid; `data` has `length` bytes that nobody else uses meanwhile; `error` may be null.
int32_t rdmc_team_broadcast(const struct rdmc_team *team,
                            uint32_t root,
                            void *data,
                            uint64_t length,
                            uint64_t timeout_ms,
                            struct rdmc_error *error);

// Replaces each of `count` elements of an `rdmc_type` at all members by its combination over all members, by an `rdmc_op`. All
// have the same bits afterwards.
//
// Arguments: `team` is valid; `values` has `count` elements that nobody else uses meanwhile; `error` may be null.
int32_t rdmc_team_all_reduce(const struct rdmc_team *team,
                             void *values,
                             uint64_t count,
                             int32_t element,
                             int32_t op,
                             uint64_t timeout_ms,
                             struct rdmc_error *error);

// As `rdmc_team_all_reduce`, with the result at the root only; elsewhere the values do not change.
//
// Arguments: As of `rdmc_team_all_reduce`.
int32_t rdmc_team_reduce(const struct rdmc_team *team,
                         uint32_t root,
                         void *values,
                         uint64_t count,
                         int32_t element,
                         int32_t op,
                         uint64_t timeout_ms,
                         struct rdmc_error *error);

// Collects the bytes of all members, one member's after another's by rank, `length` bytes in all. Those of this
// member are at their place before the call; all have the same length.
//
// Arguments: `team` is valid; `data` has `length` bytes that nobody else uses meanwhile; `error` may be null.
int32_t rdmc_team_all_gather(const struct rdmc_team *team,
                             void *data,
                             uint64_t length,
                             uint64_t timeout_ms,
                             struct rdmc_error *error);

// What this member of a team has done so far. Does not block.
//
// Arguments: `team` is valid; `counters` may be written; `error` may be null.
int32_t rdmc_team_counters(const struct rdmc_team *team,
                           struct rdmc_operation_counters *counters,
                           struct rdmc_error *error);

// Makes the team fail at all members, for this reason (`NULL`: none in words).
//
// Arguments: `team` is valid; `reason` ends with a zero; `error` may be null.
int32_t rdmc_team_abort(const struct rdmc_team *team, const char *reason, struct rdmc_error *error);

// Ends a team when all members have called this, and frees it, whatever is returned. Does nothing for null.
//
// Arguments: `team` is null, or valid and not used again; `error` may be null.
int32_t rdmc_team_close(struct rdmc_team *team, uint64_t timeout_ms, struct rdmc_error *error);

// Frees a team that was not closed; it fails at all other members. Does nothing for null.
//
// Arguments: `team` is null, or valid and not used again.
void rdmc_team_free(struct rdmc_team *team);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RDMC_H */
