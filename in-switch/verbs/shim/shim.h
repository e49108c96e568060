/* What the crate needs of libibverbs, most of which is inline functions. Functions answer 0 or a
 * negative errno unless they say otherwise. A build without libibverbs' headers has no such table.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct rv_device;
struct rv_queue_pair;
struct rv_memory;

struct rv_connection {
    uint8_t peer[16]; /* As a GID. */
    uint32_t peer_qpn;
    uint32_t send_psn;
    uint32_t receive_psn;
    uint32_t mtu_bytes;
    uint8_t timeout;
    uint8_t retries;
    uint8_t not_ready_retries;
    uint8_t not_ready_timer;
};

struct rv_work {
    uint64_t id;
    uint64_t address; /* At this end. */
    uint32_t bytes;
    uint32_t local_key;
    uint32_t is_write;
    uint32_t has_immediate;
    uint32_t immediate;
    uint32_t remote_key;
    uint64_t remote_address;
};

struct rv_completion {
    uint64_t id;
    uint32_t status;
    uint32_t kind; /* 0: sent, 1: received, 2: written by the peer. */
    uint32_t bytes;
    uint32_t has_immediate;
    uint32_t immediate;
    uint32_t qpn;
};

/* All of it. */
struct rv_functions {
    /* Opens the library. On failure there is a reason. */
    int (*load)(char *why, size_t why_bytes);

    /* The device of this name, or any that is up if there is none, with a completion queue, by the address
     * that `gid` is, on the network interface of this number, or any if it is 0. */
    int (*open)(const char *name, const uint8_t gid[16], uint32_t interface, uint32_t depth,
                struct rv_device **device);
    void (*close)(struct rv_device *device);
    const char *(*name)(const struct rv_device *device);
    /* Payload of a packet, at most; 0 if the port was down. */
    uint32_t (*mtu_bytes)(const struct rv_device *device);
    /* Readable when there may be completions; see arm. */
    int (*fd)(const struct rv_device *device);
    /* Makes the descriptor readable at the next completion. */
    int (*arm)(struct rv_device *device);
    /* Answers how many. */
    int (*poll)(struct rv_device *device, struct rv_completion *completions, uint32_t most);

    /* Memory that the device may read, and write if it may, and peers if they are to. */
    int (*register_memory)(struct rv_device *device, void *begin, size_t bytes, uint32_t may_write,
                    uint32_t for_peers, struct rv_memory **memory);
    void (*deregister_memory)(struct rv_memory *memory);
    uint32_t (*local_key)(const struct rv_memory *memory);
    uint32_t (*remote_key)(const struct rv_memory *memory);

    int (*create)(struct rv_device *device, uint32_t depth, struct rv_queue_pair **queue_pair);
    void (*destroy)(struct rv_queue_pair *queue_pair);
    uint32_t (*qpn)(const struct rv_queue_pair *queue_pair);
    int (*connect)(struct rv_queue_pair *queue_pair, const struct rv_connection *connection);
    int (*send)(struct rv_queue_pair *queue_pair, const struct rv_work *work);
    int (*receive)(struct rv_queue_pair *queue_pair, uint64_t id, uint64_t address, uint32_t bytes,
                   uint32_t local_key);
};

extern const struct rv_functions rv_functions;
