/*
 * rdmc: replicates large objects from one machine to many. License: Apache-2.0.
 *
 * Made from crates/c by cbindgen; do not edit.
 *
 * Results. Functions that can fail return an rdmc_code, 0 (RDMC_OK) for success. On failure they fill in *error unless it is NULL: the
 * code, the member that caused the error, and a text with the cause, the place and the remedy. The caller owns an rdmc_error, which
 * contains nothing to free. A failed call has changed only what its description states.
 *
 * Ownership. Handles (rdmc_context, rdmc_group, rdmc_message, rdmc_region, rdmc_team, rdmc_device) are created and freed by functions of the
 * library. Texts and settings are only read during a call. Memory is always passed by value as an rdmc_buffer: the library calls its
 * `release` once, when it no longer uses the memory, even if the call fails.
 *
 * Threads. Functions may be called on any thread, and concurrently on one handle, unless they free it; only an rdmc_message may be used
 * by one thread at a time. Functions with a timeout block for at most that long (UINT64_MAX: no limit); other functions do not block
 * unless their description says so. Callbacks of a group run on its own thread (rdmc-callbacks), `release` on any thread.
 *
 * fork(2). Handles cannot be used in a child process: functions return RDMC_FORKED, and freeing does nothing.
 */

#ifndef RDMC_H
#define RDMC_H

#include <stddef.h>
#include <stdint.h>

// Length in bytes of the text of an error, with its terminating NUL.
#define RDMC_TEXT_BYTES 488

// The result of a call. Codes are never renumbered.
typedef enum rdmc_code {
  // Success.
  RDMC_OK = 0,
  // An argument or setting is invalid, or inconsistent with another; nothing has changed.
  RDMC_INVALID = 1,
  // The call is not valid in this state, or inside a callback; nothing has changed.
  RDMC_STATE = 2,
  // The group, team or context is closed.
  RDMC_CLOSED = 3,
  // The timeout has expired.
  RDMC_TIMEOUT = 4,
  // The maximum number of messages is queued.
  RDMC_QUEUE_FULL = 5,
  // Memory cannot be allocated or used, or is too small for the message.
  RDMC_NO_MEMORY = 6,
  // This library or this host does not support it: the fabric is missing, or the feature was not built.
  RDMC_UNSUPPORTED = 7,
  // A member is unreachable, refuses, or has different settings.
  RDMC_UNREACHABLE = 8,
  // A system call failed.
  RDMC_SYSTEM = 9,
  // The process is a fork of the one that created the object.
  RDMC_FORKED = 10,
  // A bug in the library ended the call.
  RDMC_PANICKED = 11,
  // The group or team has failed: a member's process or connection ended.
  RDMC_LOST = 16,
  // As `RDMC_LOST`: nothing was received from a member within the timeout.
  RDMC_SILENT = 17,
  // As `RDMC_LOST`: a member broke the protocol.
  RDMC_PROTOCOL = 18,
  // As `RDMC_LOST`: a member's memory could not be read or written.
  RDMC_MEMORY = 19,
  // As `RDMC_LOST`: a member's application refused a message or aborted.
  RDMC_APPLICATION = 20,
  // As `RDMC_LOST`: nothing was transferred for too long; names the member that stalled.
  RDMC_STALLED = 21,
  // As `RDMC_LOST`: data changed in transit.
  RDMC_CORRUPT = 22,
  // As `RDMC_LOST`: the network no longer carries the group's blocks, although its members are alive.
  RDMC_NETWORK = 23,
  // As `RDMC_LOST`: a member's copy of a message differs from the root's, in a group with `verify`.
  RDMC_DIFFERS = 24,
} rdmc_code;

// The result of the callback `incoming`.
typedef enum rdmc_answer {
  // Receive the message into the buffer that the callback has filled in.
  RDMC_ACCEPT = 0,
  // The application will call `rdmc_accept`. Until then, members to which this member relays wait.
  RDMC_LATER = 1,
  // Refuse the message; the group fails.
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
  // The minimum.
  RDMC_OP_MIN = 2,
  // The maximum.
  RDMC_OP_MAX = 3,
  // Bitwise and; integers only.
  RDMC_OP_BAND = 4,
  // Bitwise or; integers only.
  RDMC_OP_BOR = 5,
  // Bitwise exclusive or; integers only.
  RDMC_OP_BXOR = 6,
} rdmc_op;

// A member's endpoint in the network. It has a progress thread, unless `caller_makes_progress` is set. Calls are allowed on
// any thread.
typedef struct rdmc_context rdmc_context;

// A GPU, with pinned host memory through which team operations are staged. Concurrent calls are serialized.
typedef struct rdmc_device rdmc_device;

// A group at one member. Calls are allowed on any thread.
typedef struct rdmc_group rdmc_group;

// Memory that remains registered with the network; see `rdmc_region_create`.
typedef struct rdmc_region rdmc_region;

// A received message; its bytes may still be arriving. Only one thread may use it at a time.
typedef struct rdmc_message rdmc_message;

// A fixed list of members that call operations together, all in the same order. Concurrent calls are
// serialized.
typedef struct rdmc_team rdmc_team;

// Memory passed to the library, with the function that releases it.
//
// The library calls `release` once, on any thread, when it no longer uses the memory, even if the call that took
// the buffer fails. Until then the memory must remain valid. Memory that is sent must not change; memory that is
// received into may be read and written only by the library. `release` must not call the library.
typedef struct rdmc_buffer {
  // The first byte; may be null if `length` is 0.
  void *data;
  // Length in bytes.
  uint64_t length;
  // Releases the memory; null for memory that remains valid until the context is closed.
  void (*release)(void *private_data);
  // The argument of `release`.
  void *private_data;
} rdmc_buffer;

// Why a call failed. Owned by the caller; contains nothing to free. Successful calls do not change it.
typedef struct rdmc_error {
  // The result of the call, an `rdmc_code`.
  int32_t code;
  // Zero.
  int32_t reserved;
  // The rank of the member that caused the error; -1 if none did, or if it is unknown.
  int64_t member;
  // If a group has failed: the number of messages, counted from the first, that every member is known to have.
  uint64_t delivered;
  // What happened, where, and the remedy: UTF-8, truncated to this length, NUL-terminated.
  char text[RDMC_TEXT_BYTES];
} rdmc_error;

// The settings of a context. A field that is 0 or NULL selects the default.
typedef struct rdmc_context_settings {
  // The size of this struct: `sizeof(rdmc_context_settings)`.
  size_t size;
  // Required: the address to which other members connect, for example 10.0.0.1:7000; with port 0 the system selects a port.
  const char *listen;
  // Required: 64 hexadecimal digits that only the members know (`rdmc secret` generates them).
  const char *secret;
  // The network for blocks: tcp (the default), verbs, efa, cxi, shm ...; the same at all members.
  const char *fabric;
  // The protection of blocks: encrypt, which refuses networks that do not encrypt, or none. By default blocks over TCP are encrypted.
  // The same at all members.
  const char *protection;
  // The time limit for creating a group, in milliseconds; 30,000 by default.
  uint64_t connect_timeout_ms;
  // A neighbour from which nothing is received for this many milliseconds is considered lost; 5,000 by default.
  uint64_t silence_timeout_ms;
  // The rate limit of this context in bytes per second, for each direction; 0 for no limit.
  uint64_t rate_max;
  // TCP connections to each neighbour, 1 (the default) to 8; the same at all members.
  uint32_t streams;
  // How many threads move bytes, at most 8; each serves its share of the streams. By default one for each stream, but at most 4, and
  // at most half as many as there are processors.
  uint32_t threads;
  // 0: a thread of the context makes progress. 1: `rdmc_progress` and calls that wait make progress.
  uint32_t caller_makes_progress;
} rdmc_context_settings;

// Counters of a context.
typedef struct rdmc_counters {
  // Bytes received as blocks.
  uint64_t bytes_received;
  // Bytes sent as blocks.
  uint64_t bytes_sent;
  // Bytes copied in user space.
  uint64_t bytes_copied;
  // Blocks received.
  uint64_t blocks_received;
  // Blocks sent.
  uint64_t blocks_sent;
  // Small messages received directly from the root.
  uint64_t small_received;
  // Small messages written directly to all receivers, at the root.
  uint64_t small_sent;
  // Zero.
  uint64_t reserved;
} rdmc_counters;

// The settings of a group. A field that is 0 or NULL selects the default. All fields except `rank`, `report_blocks`, the
// windows, `report_delivered`, `stall_timeout_ms`, `connect_timeout_ms`, `send_queue_max`, `receive_bytes_max`, `message_bytes`
// and `rate_bits_per_second` must be the same at all members. A member that leaves algorithm or block size open gets the root's.
typedef struct rdmc_group_settings {
  // The size of this struct: `sizeof(rdmc_group_settings)`.
  size_t size;
  // Identifies the group; unique among the groups and teams of its members' contexts.
  uint64_t number;
  // Required: the address of each member's context, by rank.
  const char *const *members;
  // Number of members.
  uint32_t member_count;
  // The rank of this member.
  uint32_t rank;
  // The rank of the member that sends.
  uint32_t root;
  // 1 if the callback `block` is called, 0 if not.
  uint32_t report_blocks;
  // The name of the algorithm, as printed by `rdmc plan`. NULL or "auto": the root chooses the fastest by the cost model, and
  // the other members learn the choice. `rdmc_group_algorithm` reports it.
  const char *algorithm;
  // The rack number of each rank, `member_count` numbers; NULL: all members are in one rack.
  const uint32_t *racks;
  // The block length in bytes. By default the root chooses the fastest by the cost model, at most 16 MiB, and the other
  // members learn the choice; `rdmc_group_block_bytes` reports it. Larger blocks cost less processor time; smaller blocks
  // fill pipelines sooner.
  uint64_t block_bytes;
  // The maximum memory in bytes that the library allocates for messages not yet received; 256 MiB by default.
  uint64_t receive_bytes_max;
  // How long a due transfer may make no progress before the group fails, in milliseconds; 60,000 by default.
  uint64_t stall_timeout_ms;
  // The maximum number of messages in flight, 1 to 1,024; 2 by default.
  uint32_t messages_in_flight;
  // The maximum number of incomplete messages queued at the root; 64 by default.
  uint32_t send_queue_max;
  // Receives posted ahead. If neither window is set, each is 512 KiB of blocks, but at least 8 blocks and 4 per partner
  // (`ceil(log2 member_count)` partners), and at most 64; if only one is set, the other is 8.
  uint32_t window_receives;
  // Sends posted ahead; see `window_receives`.
  uint32_t window_sends;
  // 1 if the callback `delivered` is called at the root for each message, 0 if not.
  uint32_t report_delivered;
  // 1 if each member compares its copy of every message with the root's by a digest, before it reports the message as
  // received; 0 if not. If a copy differs, the group fails with `RDMC_DIFFERS`, which names the member.
  uint32_t verify;
  // The length of a typical message in bytes, for the root's choice of algorithm and block size; 16 MiB by default.
  uint64_t message_bytes;
  // The rate of each member's link in bits per second, for the same choice. Default: the rate at which the processors copy if
  // all members are on one machine; otherwise, over TCP, that of the root's interface, or 10 Gbit/s if the system does not
  // know it; 100 Gbit/s over other fabrics.
  uint64_t rate_bits_per_second;
  // The time limit for creating the group, in milliseconds; the context's `connect_timeout_ms` by default.
  uint64_t connect_timeout_ms;
} rdmc_group_settings;

// The callbacks of a group (`incoming`, `completion` and `failure` in figure 1 of the paper). They run one at a time and in
// order, on the group's thread rdmc-callbacks, or in `rdmc_progress`. They may call the library, except functions that wait
// for callbacks. NULL callbacks are not called.
typedef struct rdmc_callbacks {
  // The size of this struct: `sizeof(rdmc_callbacks)`.
  size_t size;
  // The first argument of each callback.
  void *user_data;
  // Required at receivers: chooses where to receive a message of `length` bytes. Returns an `rdmc_answer`; with
  // `RDMC_ACCEPT` the callback has filled in `buffer`, which the library takes.
  int32_t (*incoming)(void *user_data, uint64_t message, uint64_t length, struct rdmc_buffer *buffer);
  // Required: this member is done with the message, which is at `data` until the callback returns; then its buffer is
  // released. Other members may still be receiving the message.
  void (*complete)(void *user_data, uint64_t message, void *data, uint64_t length);
  // The whole message is in place at this member, which may still be relaying it. Called at receivers only.
  void (*received)(void *user_data, uint64_t message);
  // These bytes of a message are in place. Called with `report_blocks` only.
  void (*block)(void *user_data, uint64_t message, uint64_t offset, uint64_t length);
  // The group has failed. The buffers of incomplete messages are released after this callback.
  void (*failed)(void *user_data, const struct rdmc_error *failure);
  // The group is closed: every message has reached every member.
  void (*closed)(void *user_data);
  // The last callback: `user_data` can be freed. Called once, even if the group was not created; not called if `size` or an
  // unknown field is refused.
  void (*destroy)(void *user_data);
  // Every member has the first `messages` messages. Called at the root only, with `report_delivered` or while
  // `rdmc_wait_delivered` waits.
  void (*delivered)(void *user_data, uint64_t messages);
} rdmc_callbacks;

// The settings of a team. A field that is 0 or NULL selects the default. All fields except `rank` and
// `connect_timeout_ms` must be the same at all members.
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
  // Slots in each ring of a link, at most 4,096; 16 by default.
  uint32_t slots;
  // Length of a slot in bytes, 64 to 1 MiB; 32 KiB by default.
  uint32_t slot_bytes;
  // How the algorithm of each operation is chosen: by the costs of a cost model, such as `"Tt=0.01,Ts=2"`, or by fixed lengths,
  // such as `"degree=3,exchange=0"` (docs/internals/schedules.md). By default by the costs of rank 0's network, some of which it
  // measures.
  const char *ways;
  // The time limit for creating the team, in milliseconds; the context's `connect_timeout_ms` by default.
  uint64_t connect_timeout_ms;
} rdmc_team_settings;

// Counters of a team at one member.
typedef struct rdmc_operation_counters {
  // Operations completed at this member.
  uint64_t operations;
  // Bytes passed to the network for other members.
  uint64_t bytes_sent;
  // Bytes received from other members.
  uint64_t bytes_received;
  // Zero.
  uint64_t reserved;
} rdmc_operation_counters;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of this library, for example 0.1.0.
const char *rdmc_version(void);

// Returns 1 if this library was built with the feature, otherwise 0. Features: `fabric` (libfabric networks).
//
// Arguments: `feature` is null or NUL-terminated.
int32_t rdmc_has(const char *feature);

// Allocates zeroed memory, in huge pages where the system has them. Pass the buffer to a function that takes it, or
// call its `release`.
//
// Arguments: `buffer` is writable; `error` may be null.
int32_t rdmc_allocate(uint64_t length,
                      struct rdmc_buffer *buffer,
                      struct rdmc_error *error);

// Registers memory with the network of a context, until the region and all its buffers are freed, so that transfers do not
// wait for the registration. Blocks while the system pins the memory, about 100 ms per GB. Over TCP nothing is registered.
//
// Arguments: `context` and `region` are valid; the buffer is as documented and writable, and is taken; `error` may be null.
int32_t rdmc_region_create(const struct rdmc_context *context,
                           struct rdmc_buffer buffer,
                           struct rdmc_region **region,
                           struct rdmc_error *error);

// Makes a buffer of a part of a region, to send or to receive into. It keeps the region's memory alive, even after
// `rdmc_region_free`. Overlapping parts may be sent at the same time, but not received into.
//
// Arguments: `region` is valid, `buffer` is writable; `error` may be null.
int32_t rdmc_region_buffer(const struct rdmc_region *region,
                           uint64_t offset,
                           uint64_t length,
                           struct rdmc_buffer *buffer,
                           struct rdmc_error *error);

// Frees a region; its memory is released when none of its buffers is in use. Does nothing for null.
//
// Arguments: `region` is null, or valid and not used again.
void rdmc_region_free(struct rdmc_region *region);

// Starts a context: its listener and its threads. Does not wait for other members.
//
// Errors: `RDMC_INVALID` names the setting; `RDMC_UNSUPPORTED` if this host or this library does not have the fabric;
// `RDMC_SYSTEM` if the context cannot listen on the address, or the process has no descriptors or threads left.
//
// Arguments: `settings` is as documented; `context` is writable; `error` may be null.
int32_t rdmc_context_start(const struct rdmc_context_settings *settings,
                           struct rdmc_context **context,
                           struct rdmc_error *error);

// Writes the address to which other members connect, with the selected port, for example 10.0.0.1:7000.
// 64 bytes are enough.
//
// Arguments: `context` is valid; `text` has `length` bytes; `error` may be null.
int32_t rdmc_context_address(const struct rdmc_context *context,
                             char *text,
                             size_t length,
                             struct rdmc_error *error);

// Writes a new secret: 64 hexadecimal digits and a NUL. Pass it to members over a protected channel, not in arguments or
// environment variables.
//
// Arguments: `text` has `length` bytes, 65 or more; `error` may be null.
int32_t rdmc_secret_random(char *text,
                           size_t length,
                           struct rdmc_error *error);

// Makes progress and runs callbacks, in a context with `caller_makes_progress` only. Waits for at most `wait_ms` if there is
// nothing to do, or while another thread makes progress. `*ran`, unless `ran` is null: 1 if this thread ran a callback, else 0.
//
// Errors: `RDMC_STATE` if the context has a progress thread, and in a callback; `RDMC_CLOSED`; `RDMC_PANICKED` after a bug.
//
// Arguments: `context` is valid; `ran` is null or writable; `error` may be null.
int32_t rdmc_progress(const struct rdmc_context *context,
                      uint64_t wait_ms,
                      int32_t *ran,
                      struct rdmc_error *error);

// Writes a descriptor that is readable when `rdmc_progress` has something to do, timers included. For programs with an event
// loop (poll(2), select(2), epoll(7)), in a context with `caller_makes_progress` and the fabric tcp.
//
// Each time the descriptor is readable, call `rdmc_progress` with `wait_ms` 0, and then, for each group without callbacks,
// `rdmc_receive` with `timeout_ms` 0 until it returns `RDMC_TIMEOUT`. Other calls, on any thread, make the descriptor
// readable if they leave something to do. The descriptor does not cover teams, whose operations block.
//
// The descriptor belongs to the context, and each call writes the same one. Only wait for it, level-triggered; do not read or
// close it. Remove it from an epoll descriptor before the context is closed or freed. The first call blocks while the context
// is busy, for at most 10 seconds; later calls do not block.
//
// Errors: `RDMC_STATE` if the context has a progress thread; `RDMC_UNSUPPORTED` over other fabrics, where a thread has to wait
// in `rdmc_progress`; `RDMC_SYSTEM` if the process has no descriptors left.
//
// Arguments: `context` is valid; `fd` is writable; `error` may be null.
int32_t rdmc_context_fd(const struct rdmc_context *context,
                        int *fd,
                        struct rdmc_error *error);

// Writes the counters of the context. Blocks while the context is busy, for at most 10 seconds.
//
// Arguments: `context` is valid; `counters` is writable; `error` may be null.
int32_t rdmc_context_counters(const struct rdmc_context *context,
                              struct rdmc_counters *counters,
                              struct rdmc_error *error);

// Closes a context and frees it, whatever the result. Groups that are still open fail at all their members; to end without a
// failure, close them first. Blocks for at most `timeout_ms`; not allowed in callbacks. Does nothing for null.
//
// Arguments: `context` is null, or valid and not used again; `error` may be null.
int32_t rdmc_context_close(struct rdmc_context *context,
                           uint64_t timeout_ms,
                           struct rdmc_error *error);

// As `rdmc_context_close`, with a timeout of 5 seconds and without a result. Does nothing in a child of fork(2).
//
// Arguments: `context` is null, or valid and not used again.
void rdmc_context_free(struct rdmc_context *context);

// Opens a GPU by its number among those visible to this process, with its primary context, which the CUDA runtime also uses.
// Loads the CUDA driver; returns `RDMC_UNSUPPORTED` on a machine without it. `library`: path of the driver, or NULL for
// libcuda.so.1. `chunk_bytes`: a multiple of 16, the same at all members of a team; 0 for 64 MiB. Three chunks of pinned memory
// are allocated on first use.
//
// Arguments: `library` is null or NUL-terminated; `device` is writable; `error` may be null.
int32_t rdmc_device_open(const char *library,
                         uint32_t ordinal,
                         uint64_t chunk_bytes,
                         struct rdmc_device **device,
                         struct rdmc_error *error);

// Replaces `length` bytes of device memory at `address` (a `CUdeviceptr`) at all members by those of the root. All members call
// this, with the same length and `chunk_bytes`. `stream` is a `CUstream` or `cudaStream_t` as a number, 0 for the default
// stream: copies start after work queued on it before, and work queued on it afterwards sees the result. Blocks, but returns
// before the last copies end; `rdmc_device_settle` waits for them.
//
// Arguments: `device` and `team` are valid; memory and stream remain valid until the copies have ended; `error` may be null.
int32_t rdmc_team_broadcast_device(const struct rdmc_team *team,
                                   uint32_t root,
                                   const struct rdmc_device *device,
                                   uint64_t address,
                                   uint64_t length,
                                   size_t stream,
                                   uint64_t timeout_ms,
                                   struct rdmc_error *error);

// As `rdmc_team_all_reduce`, for `count` elements in device memory; otherwise as `rdmc_team_broadcast_device`.
//
// Arguments: As for `rdmc_team_broadcast_device`.
int32_t rdmc_team_all_reduce_device(const struct rdmc_team *team,
                                    const struct rdmc_device *device,
                                    uint64_t address,
                                    uint64_t count,
                                    int32_t element,
                                    int32_t op,
                                    size_t stream,
                                    uint64_t timeout_ms,
                                    struct rdmc_error *error);

// Waits until the copies of all operations on the device have ended.
//
// Arguments: `device` is valid; `error` may be null.
int32_t rdmc_device_settle(const struct rdmc_device *device, uint64_t timeout_ms, struct rdmc_error *error);

// Frees a device after its copies have ended; blocks for at most 10 seconds. Does nothing for null, or in a child of fork(2).
//
// Arguments: `device` is null, or valid and not used again.
void rdmc_device_free(struct rdmc_device *device);

// Creates a group, together with all its other members, which must make the same call with equal settings. Messages are
// received by `rdmc_receive`. Blocks for at most `connect_timeout_ms`.
//
// Errors: `RDMC_INVALID` names the setting, including a number in use; `RDMC_UNREACHABLE` names the member that is unreachable,
// refuses, or has different settings, and these settings; `RDMC_TIMEOUT` names the members that did not appear in time.
//
// Arguments: `context` is valid; `settings` is as documented; `group` is writable; `error` may be null.
int32_t rdmc_group_create(const struct rdmc_context *context,
                          const struct rdmc_group_settings *settings,
                          struct rdmc_group **group,
                          struct rdmc_error *error);

// As `rdmc_group_create`, but messages are received through callbacks. If the call fails, `destroy` is the only one called.
//
// Arguments: As for `rdmc_group_create`; `callbacks` is as documented, and its functions may be called on another thread.
int32_t rdmc_group_create_with_callbacks(const struct rdmc_context *context,
                                         const struct rdmc_group_settings *settings,
                                         const struct rdmc_callbacks *callbacks,
                                         struct rdmc_group **group,
                                         struct rdmc_error *error);

// Queues a message to all members; at the root only. Waits for at most `timeout_ms` while `send_queue_max` messages are
// queued; does not wait if it is 0. The buffer is taken, and is released when this member is done with the message, or at
// once if the call fails. `*message`, unless `message` is null, is the message's number: how many were sent before it.
//
// Errors: `RDMC_QUEUE_FULL` at the timeout; `RDMC_STATE` if this member is not the root; `RDMC_CLOSED`; the group's failure.
//
// Arguments: `group` is valid; the buffer is as documented; `message` is null or writable; `error` may be null.
int32_t rdmc_send(const struct rdmc_group *group,
                  struct rdmc_buffer buffer,
                  uint64_t timeout_ms,
                  uint64_t *message,
                  struct rdmc_error *error);

// Waits until this member is done with the group's first `messages` messages: their buffers are released, or are about to be.
// Other members may still be receiving them; only a successful close or `rdmc_wait_delivered` means that all have them.
//
// Arguments: `group` is valid; `error` may be null.
int32_t rdmc_wait_complete(const struct rdmc_group *group,
                           uint64_t messages,
                           uint64_t timeout_ms,
                           struct rdmc_error *error);

// At the root: waits until the first `messages` messages are in place at every member; they remain so if members fail later.
// Messages may be sent meanwhile.
//
// Arguments: `group` is valid; `error` may be null.
int32_t rdmc_wait_delivered(const struct rdmc_group *group,
                            uint64_t messages,
                            uint64_t timeout_ms,
                            struct rdmc_error *error);

// Returns the number of messages, counted from the first, that the root knows every member to have. The root learns this with
// `report_delivered`, or while `rdmc_wait_delivered` waits. Never too high; 0 at other members until the group has ended.
//
// Arguments: `group` is valid, or null, which returns 0.
uint64_t rdmc_delivered(const struct rdmc_group *group);

// Waits for the next message, which is returned once it is announced; its bytes may still be arriving. `*message` is null
// once the group is closed and all messages were received. Messages that were whole before the group failed are returned
// before the failure. The root receives no messages: the call returns `RDMC_STATE` at once, unless the group is closing, closed
// or failed; then it reports the end of the group.
//
// Errors: `RDMC_TIMEOUT`; the group's failure; `RDMC_NO_MEMORY` if the posted buffer is too small or memory cannot be allocated
// (the message remains the next one); `RDMC_STATE` also in a group with callbacks.
//
// Arguments: `group` is valid; `message` is writable; `error` may be null.
int32_t rdmc_receive(const struct rdmc_group *group,
                     uint64_t timeout_ms,
                     struct rdmc_message **message,
                     struct rdmc_error *error);

// Provides memory before a message arrives (`post_receive_buffer` in figure 1 of the paper). Messages without memory take
// the posted buffers in order, one each, whatever their lengths. If a buffer is too small, `rdmc_receive` fails, and the
// message takes the next buffer. The buffer is taken. It is released when the message is freed and this member is done with
// the message; a buffer that no message took is released with the group. Messages announced before the call use memory
// allocated by the library.
//
// Arguments: `group` is valid; the buffer is as documented and writable; `error` may be null.
int32_t rdmc_post_receive_buffer(const struct rdmc_group *group,
                                 struct rdmc_buffer buffer,
                                 struct rdmc_error *error);

// Provides memory for a message for which the callback `incoming` returned `RDMC_LATER`. The buffer is taken. If it is too
// small or read-only, the call fails, and another buffer may be passed.
//
// Arguments: As for `rdmc_post_receive_buffer`.
int32_t rdmc_accept(const struct rdmc_group *group,
                    uint64_t message,
                    struct rdmc_buffer buffer,
                    struct rdmc_error *error);

// Closes the group and waits until it has ended. Success means that every message has reached every member. Members other
// than the root wait until the root closes; receive all messages first. The group is not freed. At the timeout the group
// fails at all members. Not allowed in callbacks; use `rdmc_group_start_close` there.
//
// Errors: the group's failure; `RDMC_TIMEOUT`; `RDMC_CLOSED` if the group was closed before; `RDMC_STATE` in a callback.
//
// Arguments: `group` is valid; `error` may be null.
int32_t rdmc_group_close(const struct rdmc_group *group,
                         uint64_t timeout_ms,
                         struct rdmc_error *error);

// Starts closing the group, without waiting. A callback or `rdmc_receive` reports the outcome, at the root as well.
//
// Arguments: `group` is valid; `error` may be null.
int32_t rdmc_group_start_close(const struct rdmc_group *group,
                               struct rdmc_error *error);

// Fails the group at all members, for this reason (`NULL`: a default text).
//
// Arguments: `group` is valid; `reason` is null or NUL-terminated; `error` may be null.
int32_t rdmc_group_abort(const struct rdmc_group *group, const char *reason, struct rdmc_error *error);

// Returns the failure of the group, or `RDMC_OK` if the group has not failed.
//
// Arguments: `group` is valid; `error` may be null.
int32_t rdmc_group_failure(const struct rdmc_group *group, struct rdmc_error *error);

// Writes the name of the group's algorithm, for example binomial-pipeline; the same at all members. 64 bytes are enough.
//
// Arguments: `group` is valid; `text` has `length` bytes; `error` may be null.
int32_t rdmc_group_algorithm(const struct rdmc_group *group,
                             char *text,
                             size_t length,
                             struct rdmc_error *error);

// Returns the length in bytes of every block of a message but the last; the same at all members.
//
// Arguments: `group` is valid.
uint64_t rdmc_group_block_bytes(const struct rdmc_group *group);

// Frees a group. A group that is not closed fails at all members. Does nothing for null.
//
// Arguments: `group` is null, or valid and not used again.
void rdmc_group_free(struct rdmc_group *group);

// Returns how many messages of the group precede this one.
//
// Arguments: `message` is valid.
uint64_t rdmc_message_number(const struct rdmc_message *message);

// Returns the length of the message in bytes.
//
// Arguments: `message` is valid.
uint64_t rdmc_message_length(const struct rdmc_message *message);

// Copies the next bytes of the message, in order. Waits until some have arrived, for at most the group's `stall_timeout_ms`.
// `*count` is the number of bytes copied; 0 at the end of the message.
//
// Arguments: `message` is valid; `into` has `length` bytes; `count` is writable; `error` may be null.
int32_t rdmc_message_read(struct rdmc_message *message,
                          void *into,
                          size_t length,
                          size_t *count,
                          struct rdmc_error *error);

// Waits for the next range of bytes in the order of arrival; each byte is returned once. The range has `*length` bytes from
// `*offset` of the message on, readable at `*data` until the next such call or until the message is freed. `*length` is 0
// once all bytes were returned. Independent of `rdmc_message_read`.
//
// Arguments: `message` is valid; `offset`, `data` and `length` are writable; `error` may be null.
int32_t rdmc_message_next_block(struct rdmc_message *message,
                                uint64_t timeout_ms,
                                uint64_t *offset,
                                const void **data,
                                uint64_t *length,
                                struct rdmc_error *error);

// Waits until all bytes have arrived. They are readable at `*data` until the message is freed.
//
// Arguments: `message` is valid; `data` is writable; `error` may be null.
int32_t rdmc_message_data(struct rdmc_message *message,
                          uint64_t timeout_ms,
                          const void **data,
                          struct rdmc_error *error);

// Waits until this member is done with the message (all bytes received, nothing left to relay), and frees it, whatever the
// result. A buffer that was posted for the message is released then or shortly after. Does nothing for null.
//
// Arguments: `message` is null, or valid and not used again; `error` may be null.
int32_t rdmc_message_finish(struct rdmc_message *message,
                            uint64_t timeout_ms,
                            struct rdmc_error *error);

// Frees a message, received or not; other members still receive it. Its memory is released when this member is done
// with the message. Does nothing for null.
//
// Arguments: `message` is null, or valid and not used again.
void rdmc_message_free(struct rdmc_message *message);

// Creates a team, together with all its other members, which must make the same call with equal settings. Blocks for at most
// `connect_timeout_ms`. A team may outlive its context.
//
// Arguments: `context` is valid; `settings` is as documented; `team` is writable; `error` may be null.
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
// Arguments: `team` is valid; `data` has `length` bytes that only this call uses; `error` may be null.
int32_t rdmc_team_broadcast(const struct rdmc_team *team,
                            uint32_t root,
                            void *data,
                            uint64_t length,
                            uint64_t timeout_ms,
                            struct rdmc_error *error);

// Replaces each of `count` elements of type `element` (an `rdmc_type`) at all members by its combination over all members with
// `op` (an `rdmc_op`). The result has the same bits at all members.
//
// Arguments: `team` is valid; `values` has `count` elements that only this call uses; `error` may be null.
int32_t rdmc_team_all_reduce(const struct rdmc_team *team,
                             void *values,
                             uint64_t count,
                             int32_t element,
                             int32_t op,
                             uint64_t timeout_ms,
                             struct rdmc_error *error);

// As `rdmc_team_all_reduce`, with the result at the root only; at other members the values do not change.
//
// Arguments: As for `rdmc_team_all_reduce`.
int32_t rdmc_team_reduce(const struct rdmc_team *team,
                         uint32_t root,
                         void *values,
                         uint64_t count,
                         int32_t element,
                         int32_t op,
                         uint64_t timeout_ms,
                         struct rdmc_error *error);

// Collects the parts of all members at each member, in rank order, `length` bytes in total. All parts have the same length.
// This member's part is in its place in `data` before the call.
//
// Arguments: `team` is valid; `data` has `length` bytes that only this call uses; `error` may be null.
int32_t rdmc_team_all_gather(const struct rdmc_team *team,
                             void *data,
                             uint64_t length,
                             uint64_t timeout_ms,
                             struct rdmc_error *error);

// As `rdmc_team_all_reduce`, but each member gets only its part of the result, in about half of the time where there are many
// elements. `values` has one part of equal length for each member, in rank order, `count` elements in total. Afterwards the part
// of this member's rank is that of the result, and the others are undefined.
//
// Arguments: As for `rdmc_team_all_reduce`.
int32_t rdmc_team_reduce_scatter(const struct rdmc_team *team,
                                 void *values,
                                 uint64_t count,
                                 int32_t element,
                                 int32_t op,
                                 uint64_t timeout_ms,
                                 struct rdmc_error *error);

// Sends each member its part of the root's bytes. At the root `data` has one part of equal length for each member, in rank order,
// and does not change; at other members it is one part, which is replaced by the member's own. `length` is that of `data`.
//
// Arguments: `team` is valid; `data` has `length` bytes that only this call uses; `error` may be null.
int32_t rdmc_team_scatter(const struct rdmc_team *team,
                          uint32_t root,
                          void *data,
                          uint64_t length,
                          uint64_t timeout_ms,
                          struct rdmc_error *error);

// Collects the parts of all members at the root: `rdmc_team_scatter` backwards. At the root `data` has one part of equal length for
// each member, in rank order, its own in its place before the call; at other members it is the member's part, and does not change.
//
// Arguments: As for `rdmc_team_scatter`.
int32_t rdmc_team_gather(const struct rdmc_team *team,
                         uint32_t root,
                         void *data,
                         uint64_t length,
                         uint64_t timeout_ms,
                         struct rdmc_error *error);

// Creates a team of those members of `team` that give the same color, ordered by key, and by rank where keys are equal. All members
// of `team` make this call, in the same order as operations. A negative color: no team, and `*part` becomes `NULL`. The new team has
// connections of its own; either team may end first. `context` is that of `team`.
//
// Arguments: `context` and `team` are valid; `part` is writable; `error` may be null.
int32_t rdmc_team_split(const struct rdmc_context *context,
                        const struct rdmc_team *team,
                        int64_t color,
                        int64_t key,
                        uint64_t timeout_ms,
                        struct rdmc_team **part,
                        struct rdmc_error *error);

// Writes the counters of a team at this member. Does not block.
//
// Arguments: `team` is valid; `counters` is writable; `error` may be null.
int32_t rdmc_team_counters(const struct rdmc_team *team,
                           struct rdmc_operation_counters *counters,
                           struct rdmc_error *error);

// Fails the team at all members, for this reason (`NULL`: a default text).
//
// Arguments: `team` is valid; `reason` is null or NUL-terminated; `error` may be null.
int32_t rdmc_team_abort(const struct rdmc_team *team, const char *reason, struct rdmc_error *error);

// Closes a team once all members have called this, and frees it, whatever the result. Does nothing for null.
//
// Arguments: `team` is null, or valid and not used again; `error` may be null.
int32_t rdmc_team_close(struct rdmc_team *team, uint64_t timeout_ms, struct rdmc_error *error);

// Frees a team without closing it; the team fails at all other members. Does nothing for null.
//
// Arguments: `team` is null, or valid and not used again.
void rdmc_team_free(struct rdmc_team *team);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RDMC_H */
