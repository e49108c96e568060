/* A flat interface to the parts of libfabric that rdmc uses.
 *
 * libfabric's functions are mostly inline calls through tables in its objects, which only a C
 * compiler with the installed headers can compile. Here each becomes a function over opaque
 * pointers. Functions that can fail return 0 (or a count) or a negative errno of libfabric.
 * The only state is the opened library.
 */
#ifndef RDMC_FABRIC_SHIM_H
#define RDMC_FABRIC_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* What src/native/sys reads of one way to use one device. Strings are valid as long as the info. */
struct rdmc_fabric_info {
    const char *provider;
    const char *domain;
    const char *fabric;
    uint64_t max_message_bytes;
    uint64_t receives_max;
    uint64_t sends_max;
    uint64_t inject_bytes_max; /* Of posts whose memory is free when the call returns. */
    uint64_t link_bits_per_second; /* 0: unknown */
    int is_message_endpoint;
    int needs_local_registration;
    int writes_consume_receives;
    int virtual_addresses;
    int binds_registrations;
    int has_triggers;
    int has_writes;
    int orders_sends;
    int orders_writes; /* They are placed in the order of posts. */
    int orders_sends_behind_writes;
    uint64_t data_bytes; /* Bytes of data that an operation carries to the peer's queue. */
    int link_is_up; /* -1: unknown */
};

enum rdmc_fabric_completion_kind { RDMC_DONE = 0, RDMC_WRITTEN = 1 };

struct rdmc_fabric_completion {
    uint64_t context;
    uint64_t bytes;
    uint64_t data;
    int32_t kind;
    int32_t error; /* 0, or a positive errno */
    int32_t provider_error;
    int32_t has_data;
};

enum rdmc_fabric_event_kind {
    RDMC_NO_EVENT = 0,
    RDMC_REQUEST = 1,
    RDMC_CONNECTED = 2,
    RDMC_SHUT_DOWN = 3,
    RDMC_FAILED = 4,
    RDMC_OTHER = 5,
};

struct rdmc_fabric_event {
    void *endpoint; /* for a request: the passive endpoint */
    void *info;     /* of a request; to be accepted or rejected, then freed */
    int32_t kind;
    int32_t error;
    uint32_t parameter_bytes;
    uint8_t parameter[64];
};

int rdmc_fabric_load(char *why, size_t why_bytes);
uint32_t rdmc_fabric_version(void);
const char *rdmc_fabric_strerror(int error);

int rdmc_fabric_getinfo(const char *provider, int message_endpoints, const char *source, void **first);
void *rdmc_fabric_info_next(void *info);
void rdmc_fabric_info_read(void *info, struct rdmc_fabric_info *out);
void *rdmc_fabric_info_copy(void *info);
/* A copy for an endpoint that will connect to this address; of `bytes`, as many as the format has are read. */
void *rdmc_fabric_info_toward(void *info, const void *address, size_t bytes);
void rdmc_fabric_info_free(void *info);

int rdmc_fabric_open(void *info, void **fabric);
int rdmc_fabric_domain_open(void *fabric, void *info, void **domain);
int rdmc_fabric_eq_open(void *fabric, void **eq);
int rdmc_fabric_cq_open(void *domain, size_t entries, int with_wait, void **cq);
int rdmc_fabric_wait_fd(void *object, int *fd);
int rdmc_fabric_try_wait(void *fabric, void **objects, int count);
int rdmc_fabric_av_open(void *domain, void **av);
int rdmc_fabric_av_insert(void *av, const void *address, uint64_t *peer);
int rdmc_fabric_passive_open(void *fabric, void *info, void *eq, void **passive);
int rdmc_fabric_endpoint_open(void *domain, void *info, void *cq, void *eq, void *av, void **endpoint);
int rdmc_fabric_name(void *object, void *address, size_t *bytes);
int rdmc_fabric_connect(void *endpoint, const void *address, const void *parameter, size_t bytes);
int rdmc_fabric_accept(void *endpoint);
int rdmc_fabric_reject(void *passive, void *info);
int rdmc_fabric_shutdown(void *endpoint);
int rdmc_fabric_close(void *object);

int rdmc_fabric_register(void *domain, const void *start, size_t bytes, int for_peers, int writable,
                  uint64_t wanted_key, void **registration, void **description, uint64_t *key);
/* For domains with FI_MR_ENDPOINT: memory that peers write belongs to one endpoint. */
int rdmc_fabric_bind_registration(void *registration, void *endpoint);

long rdmc_fabric_receive(void *endpoint, void *start, size_t bytes, void *description, uint64_t context);
long rdmc_fabric_send(void *endpoint, const void *start, size_t bytes, void *description, uint64_t data,
               uint64_t context);
long rdmc_fabric_tagged_receive(void *endpoint, void *start, size_t bytes, void *description,
                         uint64_t peer, uint64_t tag, uint64_t context);
long rdmc_fabric_tagged_send(void *endpoint, const void *start, size_t bytes, void *description,
                      uint64_t data, uint64_t peer, uint64_t tag, uint64_t context);
/* The peer's queue reports the write only with `data`, which may be NULL. With `delivered`, which takes
 * no data, this end's queue reports it only when it is in the peer's memory. `peer` is FI_ADDR_UNSPEC
 * for message endpoints. */
long rdmc_fabric_write(void *endpoint, const void *start, size_t bytes, void *description,
                const uint64_t *data, int delivered, uint64_t peer, uint64_t address,
                uint64_t key, uint64_t context);

/* The same without a completion at this end; the memory is free when they return. */
long rdmc_fabric_inject_write(void *endpoint, const void *start, size_t bytes, uint64_t data,
                       uint64_t peer, uint64_t address, uint64_t key);
long rdmc_fabric_inject_tagged_send(void *endpoint, const void *start, size_t bytes, uint64_t data,
                             uint64_t peer, uint64_t tag);

long rdmc_fabric_cq_read(void *cq, struct rdmc_fabric_completion *out, size_t count);
int rdmc_fabric_eq_read(void *eq, struct rdmc_fabric_event *out);

/* offload.c: counters, and work that waits for them. */
int rdmc_fabric_counter_open(void *domain, void **counter);
uint64_t rdmc_fabric_counter_read(void *counter);
int rdmc_fabric_counter_add(void *counter, uint64_t value);
/* Memory for one piece of work, or NULL; freed when the work is done or its counter is closed. */
void *rdmc_fabric_work_new(void);
void rdmc_fabric_work_free(void *work);
/* The context of its completions with an error. */
uint64_t rdmc_fabric_work_context(void *work);
/* When the counter has reached the threshold: receives or sends, then adds one to the counter. */
int rdmc_fabric_work_tagged(void *domain, void *work, int receive, void *endpoint, void *start,
                     size_t bytes, void *description, uint64_t peer, uint64_t tag, void *counter,
                     uint64_t threshold);
/* When the counter has reached the threshold: adds one to the target. */
int rdmc_fabric_work_add(void *domain, void *work, void *counter, uint64_t threshold, void *target);

#endif
