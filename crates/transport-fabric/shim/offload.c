/* Deferred work: operations that the provider starts by itself when a counter reaches a threshold. */
#include "shim.h"

#include <stdlib.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

/* libfabric requires that none of it moves until the work is done. */
struct work {
    struct fi_deferred_work deferred;
    union {
        struct fi_op_tagged tagged;
        struct fi_op_cntr count;
    } op;
    struct iovec iov;
    void *description;
};

int rdmc_fabric_counter_open(void *domain, void **counter) {
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE};
    return fi_cntr_open(domain, &attr, (struct fid_cntr **)counter, NULL);
}

uint64_t rdmc_fabric_counter_read(void *counter) { return fi_cntr_read(counter); }

int rdmc_fabric_counter_add(void *counter, uint64_t value) { return fi_cntr_add(counter, value); }

void *rdmc_fabric_work_new(void) { return calloc(1, sizeof(struct work)); }

void rdmc_fabric_work_free(void *work) { free(work); }

uint64_t rdmc_fabric_work_context(void *work) { return (uint64_t)&((struct work *)work)->deferred.context; }

static int queue(struct fid_domain *domain, struct work *work, enum fi_op_type type,
                 struct fid_cntr *trigger, uint64_t threshold, struct fid_cntr *completion) {
    work->deferred.op_type = type;
    work->deferred.triggering_cntr = trigger;
    work->deferred.threshold = threshold;
    work->deferred.completion_cntr = completion;
    return fi_control(&domain->fid, FI_QUEUE_WORK, &work->deferred);
}

int rdmc_fabric_work_tagged(void *domain, void *opaque, int receive, void *endpoint, void *start,
                     size_t bytes, void *description, uint64_t peer, uint64_t tag, void *counter,
                     uint64_t threshold) {
    struct work *work = opaque;
    work->iov = (struct iovec){.iov_base = start, .iov_len = bytes};
    work->description = description;
    work->op.tagged = (struct fi_op_tagged){
        .ep = endpoint,
        .msg =
            {
                .msg_iov = &work->iov,
                .desc = &work->description,
                .iov_count = 1,
                .addr = peer,
                .tag = tag,
                .context = &work->deferred.context,
            },
    };
    work->deferred.op.tagged = &work->op.tagged;
    return queue(domain, work, receive ? FI_OP_TRECV : FI_OP_TSEND, counter, threshold, counter);
}

int rdmc_fabric_work_add(void *domain, void *opaque, void *counter, uint64_t threshold, void *target) {
    struct work *work = opaque;
    work->op.count = (struct fi_op_cntr){.cntr = target, .value = 1};
    work->deferred.op.cntr = &work->op.count;
    return queue(domain, work, FI_OP_CNTR_ADD, counter, threshold, target);
}
