#include "shim.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <infiniband/verbs.h>

/* The macro calls an inline function that would have to be linked with the library. */
#undef ibv_query_port

/* Functions that are not inline. Set once, under the caller's lock, and never changed. */
static struct {
    void *library;
    struct ibv_device **(*get_device_list)(int *);
    void (*free_device_list)(struct ibv_device **);
    const char *(*get_device_name)(struct ibv_device *);
    struct ibv_context *(*open_device)(struct ibv_device *);
    int (*close_device)(struct ibv_context *);
    ssize_t (*query_gid_table)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t);
    int (*query_port)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *);
    int (*dealloc_pd)(struct ibv_pd *);
    struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *);
    int (*destroy_comp_channel)(struct ibv_comp_channel *);
    struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
    int (*destroy_cq)(struct ibv_cq *);
    int (*get_cq_event)(struct ibv_comp_channel *, struct ibv_cq **, void **);
    void (*ack_cq_events)(struct ibv_cq *, unsigned int);
    struct ibv_mr *(*register_mr)(struct ibv_pd *, void *, size_t, int);
    int (*deregister_mr)(struct ibv_mr *);
    struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
    int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
    int (*destroy_qp)(struct ibv_qp *);
} lib;

static const struct {
    const char *name;
    void **place;
} functions[] = {
    {"ibv_get_device_list", (void **)&lib.get_device_list},
    {"ibv_free_device_list", (void **)&lib.free_device_list},
    {"ibv_get_device_name", (void **)&lib.get_device_name},
    {"ibv_open_device", (void **)&lib.open_device},
    {"ibv_close_device", (void **)&lib.close_device},
    {"_ibv_query_gid_table", (void **)&lib.query_gid_table},
    {"ibv_query_port", (void **)&lib.query_port},
    {"ibv_alloc_pd", (void **)&lib.alloc_pd},
    {"ibv_dealloc_pd", (void **)&lib.dealloc_pd},
    {"ibv_create_comp_channel", (void **)&lib.create_comp_channel},
    {"ibv_destroy_comp_channel", (void **)&lib.destroy_comp_channel},
    {"ibv_create_cq", (void **)&lib.create_cq},
    {"ibv_destroy_cq", (void **)&lib.destroy_cq},
    {"ibv_get_cq_event", (void **)&lib.get_cq_event},
    {"ibv_ack_cq_events", (void **)&lib.ack_cq_events},
    {"ibv_reg_mr", (void **)&lib.register_mr},
    {"ibv_dereg_mr", (void **)&lib.deregister_mr},
    {"ibv_create_qp", (void **)&lib.create_qp},
    {"ibv_modify_qp", (void **)&lib.modify_qp},
    {"ibv_destroy_qp", (void **)&lib.destroy_qp},
};

struct rv_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    int gid_index;
    uint32_t mtu_bytes;
    char name[64];
};

struct rv_queue_pair {
    struct rv_device *device;
    struct ibv_qp *qp;
};

enum { PORT = 1, GIDS_MAX = 1024 };

/* The library's own errors are positive errnos, or -1 with errno. */
static int negative(int result) {
    if (result == 0)
        return 0;
    if (result > 0)
        return -result;
    return errno ? -errno : -EIO;
}

static int rv_load(char *why, size_t why_bytes) {
    if (lib.library)
        return 0;
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < sizeof functions / sizeof *functions; i++) {
        *functions[i].place = dlsym(library, functions[i].name);
        if (!*functions[i].place) {
            dlclose(library);
            library = NULL;
        }
    }
    if (!library) {
        const char *text = dlerror();
        snprintf(why, why_bytes, "%s", text ? text : "a function is missing");
        return -ENOENT;
    }
    lib.library = library;
    return 0;
}

/* The index of the address for RoCE version 2, and on this interface if it is to be one. */
static int find_gid(struct ibv_context *context, const uint8_t gid[16], uint32_t interface) {
    struct ibv_gid_entry *entries = calloc(GIDS_MAX, sizeof *entries);
    if (!entries)
        return -ENOMEM;
    int found = -EADDRNOTAVAIL;
    ssize_t count = lib.query_gid_table(context, entries, GIDS_MAX, 0, sizeof *entries);
    for (ssize_t i = 0; i < count && found < 0; i++) {
        const struct ibv_gid_entry *entry = &entries[i];
        /* One device can be seen from several network namespaces, where others have its address. */
        bool is_there = !interface || entry->ndev_ifindex == interface;
        bool is_usable = entry->port_num == PORT && entry->gid_type == IBV_GID_TYPE_ROCE_V2;
        if (is_there && is_usable && !memcmp(entry->gid.raw, gid, sizeof entry->gid.raw))
            found = (int)entry->gid_index;
    }
    free(entries);
    return found;
}

/* What the port carries now; 0 if it is down. */
static uint32_t active_mtu_bytes(struct ibv_context *context) {
    struct ibv_port_attr port = {0};
    if (lib.query_port(context, PORT, (struct _compat_ibv_port_attr *)&port) || port.state != IBV_PORT_ACTIVE)
        return 0;
    return 128U << port.active_mtu;
}

/* Completes a device that has a context and an index. */
static int complete(struct rv_device *device, uint32_t depth) {
    errno = 0;
    device->mtu_bytes = active_mtu_bytes(device->context);
    device->pd = lib.alloc_pd(device->context);
    device->channel = lib.create_comp_channel(device->context);
    if (device->channel)
        device->cq = lib.create_cq(device->context, (int)depth, NULL, device->channel, 0);
    if (!device->pd || !device->cq)
        return negative(-1);
    return negative(fcntl(device->channel->fd, F_SETFL, O_NONBLOCK));
}

/* -EADDRNOTAVAIL if the device has not got the address, or is down where it has to be up. */
static int open_one(struct rv_device *device, struct ibv_device *one, const uint8_t gid[16], uint32_t interface,
                    bool is_to_be_up) {
    errno = 0;
    device->context = lib.open_device(one);
    if (!device->context)
        return negative(-1);
    device->gid_index = find_gid(device->context, gid, interface);
    if (device->gid_index < 0 || (is_to_be_up && !active_mtu_bytes(device->context))) {
        lib.close_device(device->context);
        return -EADDRNOTAVAIL;
    }
    snprintf(device->name, sizeof device->name, "%s", lib.get_device_name(one));
    return 0;
}

static int open_by(struct rv_device *device, const char *name, const uint8_t gid[16], uint32_t interface) {
    int count = 0;
    struct ibv_device **list = lib.get_device_list(&count);
    int error = name ? -ENODEV : -EADDRNOTAVAIL;
    for (int i = 0; list && i < count && error; i++) {
        if (name && strcmp(lib.get_device_name(list[i]), name))
            continue;
        int result = open_one(device, list[i], gid, interface, !name);
        /* That one cannot be opened says more than that another one has not got the address. */
        if (name || result != -EADDRNOTAVAIL)
            error = result;
    }
    if (list)
        lib.free_device_list(list);
    return error;
}

static void rv_close(struct rv_device *device);

static int rv_open(const char *name, const uint8_t gid[16], uint32_t interface, uint32_t depth,
                   struct rv_device **opened) {
    struct rv_device *device = calloc(1, sizeof *device);
    if (!device)
        return -ENOMEM;
    int error = open_by(device, name, gid, interface);
    if (error) {
        free(device);
        return error;
    }
    error = complete(device, depth);
    if (error) {
        rv_close(device);
        return error;
    }
    *opened = device;
    return 0;
}

static void rv_close(struct rv_device *device) {
    if (device->cq)
        lib.destroy_cq(device->cq);
    if (device->channel)
        lib.destroy_comp_channel(device->channel);
    if (device->pd)
        lib.dealloc_pd(device->pd);
    lib.close_device(device->context);
    free(device);
}

static const char *rv_name(const struct rv_device *device) { return device->name; }

static uint32_t rv_mtu_bytes(const struct rv_device *device) { return device->mtu_bytes; }

static int rv_fd(const struct rv_device *device) { return device->channel->fd; }

static int rv_arm(struct rv_device *device) {
    struct ibv_cq *cq;
    void *context;
    while (!lib.get_cq_event(device->channel, &cq, &context))
        lib.ack_cq_events(cq, 1);
    return negative(ibv_req_notify_cq(device->cq, 0));
}

static int rv_poll(struct rv_device *device, struct rv_completion *completions, uint32_t most) {
    struct ibv_wc found[16];
    int count = ibv_poll_cq(device->cq, most < 16 ? (int)most : 16, found);
    for (int i = 0; i < count; i++) {
        const struct ibv_wc *wc = &found[i];
        bool is_receive = wc->opcode & IBV_WC_RECV;
        completions[i] = (struct rv_completion){
            .id = wc->wr_id,
            .status = wc->status,
            .qpn = wc->qp_num,
        };
        /* Where it failed, the other fields say nothing. */
        if (wc->status != IBV_WC_SUCCESS)
            continue;
        completions[i].kind = !is_receive ? 0 : wc->opcode == IBV_WC_RECV ? 1 : 2;
        completions[i].bytes = is_receive ? wc->byte_len : 0;
        completions[i].has_immediate = !!(wc->wc_flags & IBV_WC_WITH_IMM);
        completions[i].immediate = ntohl(wc->imm_data);
    }
    return count < 0 ? -EIO : count;
}

static int rv_register(struct rv_device *device, void *begin, size_t bytes, uint32_t may_write,
                       uint32_t for_peers, struct rv_memory **memory) {
    errno = 0;
    int access = (may_write ? IBV_ACCESS_LOCAL_WRITE : 0) | (for_peers ? IBV_ACCESS_REMOTE_WRITE : 0);
    struct ibv_mr *mr = lib.register_mr(device->pd, begin, bytes, access);
    *memory = (struct rv_memory *)mr;
    return mr ? 0 : negative(-1);
}

static void rv_deregister(struct rv_memory *memory) { lib.deregister_mr((struct ibv_mr *)memory); }

static uint32_t rv_local_key(const struct rv_memory *memory) { return ((const struct ibv_mr *)memory)->lkey; }

static uint32_t rv_remote_key(const struct rv_memory *memory) { return ((const struct ibv_mr *)memory)->rkey; }

static int rv_create(struct rv_device *device, uint32_t depth, struct rv_queue_pair **created) {
    struct ibv_qp_init_attr wanted = {
        .send_cq = device->cq,
        .recv_cq = device->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1},
        .sq_sig_all = 1,
    };
    struct rv_queue_pair *queue_pair = calloc(1, sizeof *queue_pair);
    if (!queue_pair)
        return -ENOMEM;
    errno = 0;
    queue_pair->device = device;
    queue_pair->qp = lib.create_qp(device->pd, &wanted);
    if (!queue_pair->qp) {
        free(queue_pair);
        return negative(-1);
    }
    *created = queue_pair;
    return 0;
}

static void rv_destroy(struct rv_queue_pair *queue_pair) {
    lib.destroy_qp(queue_pair->qp);
    free(queue_pair);
}

static uint32_t rv_qpn(const struct rv_queue_pair *queue_pair) { return queue_pair->qp->qp_num; }

static int mtu_code(uint32_t bytes, enum ibv_mtu *code) {
    static const struct {
        uint32_t bytes;
        enum ibv_mtu code;
    } known[] = {{256, IBV_MTU_256},   {512, IBV_MTU_512},   {1024, IBV_MTU_1024},
                 {2048, IBV_MTU_2048}, {4096, IBV_MTU_4096}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].bytes == bytes) {
            *code = known[i].code;
            return 0;
        }
    }
    return -EINVAL;
}

static int rv_connect(struct rv_queue_pair *queue_pair, const struct rv_connection *wanted) {
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .port_num = PORT,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };
    int error = negative(lib.modify_qp(queue_pair->qp, &attributes,
                                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    if (error)
        return error;
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .dest_qp_num = wanted->peer_qpn,
        .rq_psn = wanted->receive_psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = wanted->not_ready_timer,
        .ah_attr = {.is_global = 1,
                    .grh = {.sgid_index = (uint8_t)queue_pair->device->gid_index, .hop_limit = 64},
                    .port_num = PORT},
    };
    memcpy(attributes.ah_attr.grh.dgid.raw, wanted->peer, 16);
    error = mtu_code(wanted->mtu_bytes, &attributes.path_mtu);
    if (!error)
        error = negative(lib.modify_qp(queue_pair->qp, &attributes,
                                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                           IBV_QP_MIN_RNR_TIMER));
    if (error)
        return error;
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .timeout = wanted->timeout,
        .retry_cnt = wanted->retries,
        .rnr_retry = wanted->not_ready_retries,
        .sq_psn = wanted->send_psn,
        .max_rd_atomic = 1,
    };
    return negative(lib.modify_qp(queue_pair->qp, &attributes,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static int rv_send(struct rv_queue_pair *queue_pair, const struct rv_work *work) {
    struct ibv_sge part = {.addr = work->address, .length = work->bytes, .lkey = work->local_key};
    struct ibv_send_wr request = {
        .wr_id = work->id,
        .sg_list = &part,
        .num_sge = work->bytes ? 1 : 0,
        .send_flags = IBV_SEND_SIGNALED,
        .imm_data = htonl(work->immediate),
    };
    if (work->is_write) {
        request.opcode = work->has_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
        request.wr.rdma.remote_addr = work->remote_address;
        request.wr.rdma.rkey = work->remote_key;
    } else {
        request.opcode = work->has_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    }
    struct ibv_send_wr *refused;
    return negative(ibv_post_send(queue_pair->qp, &request, &refused));
}

static int rv_receive(struct rv_queue_pair *queue_pair, uint64_t id, uint64_t address, uint32_t bytes,
                      uint32_t local_key) {
    struct ibv_sge part = {.addr = address, .length = bytes, .lkey = local_key};
    struct ibv_recv_wr request = {.wr_id = id, .sg_list = &part, .num_sge = bytes ? 1 : 0};
    struct ibv_recv_wr *refused;
    return negative(ibv_post_recv(queue_pair->qp, &request, &refused));
}

const struct rv_functions rv_functions = {
    .load = rv_load,
    .open = rv_open,
    .close = rv_close,
    .name = rv_name,
    .mtu_bytes = rv_mtu_bytes,
    .fd = rv_fd,
    .arm = rv_arm,
    .poll = rv_poll,
    .register_memory = rv_register,
    .deregister_memory = rv_deregister,
    .local_key = rv_local_key,
    .remote_key = rv_remote_key,
    .create = rv_create,
    .destroy = rv_destroy,
    .qpn = rv_qpn,
    .connect = rv_connect,
    .send = rv_send,
    .receive = rv_receive,
};
