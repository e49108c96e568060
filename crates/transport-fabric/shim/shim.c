#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

/* The requested version, whatever that of the headers: nothing newer than 1.17 is used. */
#define API FI_VERSION(1, 17)

/* The few functions that are not inline. Set once, under the caller's lock, and never changed. */
static struct {
    void *library;
    int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
                   struct fi_info **);
    void (*freeinfo)(struct fi_info *);
    struct fi_info *(*dupinfo)(const struct fi_info *);
    int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
    const char *(*strerror)(int);
    uint32_t (*version)(void);
} lib;

/* A library that libfabric loads (libinfinipath) installs signal handlers, which end the process on
 * SIGINT: the previous handlers are restored. */
static void *open_quietly(const char *name) {
    struct sigaction before[SIGSYS + 1];
    bool known[SIGSYS + 1] = {false};
    for (int number = 1; number <= SIGSYS; number++)
        known[number] = sigaction(number, NULL, &before[number]) == 0;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    for (int number = 1; number <= SIGSYS; number++)
        if (known[number])
            sigaction(number, &before[number], NULL); /* SIGKILL and SIGSTOP refuse, unchanged. */
    return library;
}

int rdmc_fabric_load(char *why, size_t why_bytes) {
    static const char *const names[] = {"fi_getinfo", "fi_freeinfo", "fi_dupinfo",
                                        "fi_fabric",  "fi_strerror", "fi_version"};
    void **const places[] = {(void **)&lib.getinfo, (void **)&lib.freeinfo, (void **)&lib.dupinfo,
                             (void **)&lib.fabric,  (void **)&lib.strerror, (void **)&lib.version};
    if (lib.library)
        return 0;
    void *library = open_quietly("libfabric.so.1");
    for (size_t i = 0; library && i < sizeof names / sizeof *names; i++) {
        *places[i] = dlsym(library, names[i]);
        if (!*places[i]) {
            dlclose(library);
            library = NULL;
        }
    }
    if (!library) {
        const char *text = dlerror();
        snprintf(why, why_bytes, "%s", text ? text : "unknown error");
        return -ENOENT;
    }
    lib.library = library;
    return 0;
}

uint32_t rdmc_fabric_version(void) { return lib.version(); }

const char *rdmc_fabric_strerror(int error) { return lib.strerror(error); }

int rdmc_fabric_getinfo(const char *provider, int message_endpoints, const char *source, void **first) {
    struct fi_info *hints = lib.dupinfo(NULL);
    struct fi_info *found = NULL;
    if (!hints)
        return -FI_ENOMEM;
    hints->ep_attr->type = message_endpoints ? FI_EP_MSG : FI_EP_RDM;
    /* FI_CONTEXT is not offered: contexts here are numbers. */
    hints->mode = FI_RX_CQ_DATA;
    hints->domain_attr->mode = ~0ull;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    if (provider)
        hints->fabric_attr->prov_name = strdup(provider);
    /* Some providers offer capabilities and orders only on request, so all are requested first. */
    const uint64_t flags = source ? FI_SOURCE : 0;
    const uint64_t base = message_endpoints ? FI_MSG | FI_RMA : FI_TAGGED;
    const uint64_t orders[] = {FI_ORDER_SAS | FI_ORDER_WAW | FI_ORDER_SAW,
                               FI_ORDER_SAS | FI_ORDER_WAW, FI_ORDER_SAS, 0};
    int result = -FI_ENODATA;
    for (size_t i = 0; result && i < sizeof orders / sizeof *orders; i++) {
        const uint64_t caps = orders[i] ? base | FI_RMA : base;
        hints->tx_attr->msg_order = hints->rx_attr->msg_order = orders[i];
        hints->caps = caps | FI_TAGGED | FI_TRIGGER;
        if (provider)
            result = lib.getinfo(API, source, NULL, flags, hints, &found);
        if (result) {
            hints->caps = caps;
            result = lib.getinfo(API, source, NULL, flags, hints, &found);
        }
    }
    lib.freeinfo(hints);
    *first = found;
    return result;
}

void *rdmc_fabric_info_next(void *info) { return ((struct fi_info *)info)->next; }

void rdmc_fabric_info_read(void *opaque, struct rdmc_fabric_info *out) {
    const struct fi_info *info = opaque;
    const int mode = info->domain_attr->mr_mode;
    const struct fi_link_attr *link = info->nic ? info->nic->link_attr : NULL;
    memset(out, 0, sizeof *out);
    out->provider = info->fabric_attr->prov_name;
    out->domain = info->domain_attr->name;
    out->fabric = info->fabric_attr->name;
    out->max_message_bytes = info->ep_attr->max_msg_size;
    out->receives_max = info->rx_attr->size;
    out->sends_max = info->tx_attr->size;
    out->inject_bytes_max = info->tx_attr->inject_size;
    out->link_bits_per_second = link ? link->speed : 0;
    out->is_message_endpoint = info->ep_attr->type == FI_EP_MSG;
    out->needs_local_registration = (mode & FI_MR_LOCAL) != 0;
    out->writes_consume_receives =
        ((info->mode | (info->rx_attr ? info->rx_attr->mode : 0)) & FI_RX_CQ_DATA) != 0;
    out->virtual_addresses = (mode & FI_MR_VIRT_ADDR) != 0;
    out->binds_registrations = (mode & FI_MR_ENDPOINT) != 0;
    out->has_triggers = (info->caps & FI_TRIGGER) != 0 && (info->caps & FI_TAGGED) != 0;
    const uint64_t order = info->tx_attr ? info->tx_attr->msg_order : 0;
    out->orders_sends = (order & FI_ORDER_SAS) != 0;
    out->has_writes = (info->caps & FI_RMA) != 0;
    out->orders_writes = (order & FI_ORDER_WAW) != 0;
    out->orders_sends_behind_writes = (order & FI_ORDER_SAW) != 0;
    out->data_bytes = info->domain_attr->cq_data_size;
    out->link_is_up = link ? link->state == FI_LINK_UP : -1;
}

void *rdmc_fabric_info_copy(void *info) { return lib.dupinfo(info); }

void *rdmc_fabric_info_toward(void *opaque, const void *address, size_t bytes) {
    struct fi_info *info = lib.dupinfo(opaque);
    if (!info || !info->src_addr || info->src_addrlen > bytes)
        return info;
    free(info->dest_addr);
    info->dest_addr = malloc(info->src_addrlen);
    info->dest_addrlen = info->dest_addr ? info->src_addrlen : 0;
    if (info->dest_addr)
        memcpy(info->dest_addr, address, info->src_addrlen);
    return info;
}

void rdmc_fabric_info_free(void *info) { lib.freeinfo(info); }

int rdmc_fabric_open(void *info, void **fabric) {
    return lib.fabric(((struct fi_info *)info)->fabric_attr, (struct fid_fabric **)fabric, NULL);
}

int rdmc_fabric_domain_open(void *fabric, void *info, void **domain) {
    return fi_domain(fabric, info, (struct fid_domain **)domain, NULL);
}

int rdmc_fabric_eq_open(void *fabric, void **eq) {
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};
    return fi_eq_open(fabric, &attr, (struct fid_eq **)eq, NULL);
}

int rdmc_fabric_cq_open(void *domain, size_t entries, int with_wait, void **cq) {
    struct fi_cq_attr attr = {
        .size = entries,
        .format = FI_CQ_FORMAT_DATA,
        .wait_obj = with_wait ? FI_WAIT_FD : FI_WAIT_NONE,
    };
    return fi_cq_open(domain, &attr, (struct fid_cq **)cq, NULL);
}

int rdmc_fabric_wait_fd(void *object, int *fd) { return fi_control(object, FI_GETWAIT, fd); }

int rdmc_fabric_try_wait(void *fabric, void **objects, int count) {
    return fi_trywait(fabric, (struct fid **)objects, count);
}

int rdmc_fabric_av_open(void *domain, void **av) {
    struct fi_av_attr attr = {.type = FI_AV_UNSPEC};
    return fi_av_open(domain, &attr, (struct fid_av **)av, NULL);
}

int rdmc_fabric_av_insert(void *av, const void *address, uint64_t *peer) {
    fi_addr_t inserted = FI_ADDR_NOTAVAIL;
    int count = fi_av_insert(av, address, 1, &inserted, 0, NULL);
    if (count < 0)
        return count;
    *peer = inserted;
    return count == 1 && inserted != FI_ADDR_NOTAVAIL ? 0 : -FI_EADDRNOTAVAIL;
}

int rdmc_fabric_passive_open(void *fabric, void *info, void *eq, void **out) {
    struct fid_pep *passive = NULL;
    int result = fi_passive_ep(fabric, info, &passive, NULL);
    if (result)
        return result;
    result = fi_pep_bind(passive, &((struct fid_eq *)eq)->fid, 0);
    if (!result)
        result = fi_listen(passive);
    if (result) {
        fi_close(&passive->fid);
        return result;
    }
    *out = passive;
    return 0;
}

int rdmc_fabric_endpoint_open(void *domain, void *info, void *cq, void *eq, void *av, void **out) {
    struct fid_ep *endpoint = NULL;
    int result = fi_endpoint(domain, info, &endpoint, NULL);
    if (result)
        return result;
    if (eq)
        result = fi_ep_bind(endpoint, &((struct fid_eq *)eq)->fid, 0);
    if (!result && av)
        result = fi_ep_bind(endpoint, &((struct fid_av *)av)->fid, 0);
    if (!result)
        result = fi_ep_bind(endpoint, &((struct fid_cq *)cq)->fid, FI_TRANSMIT | FI_RECV);
    if (!result)
        result = fi_enable(endpoint);
    if (result) {
        fi_close(&endpoint->fid);
        return result;
    }
    *out = endpoint;
    return 0;
}

int rdmc_fabric_name(void *object, void *address, size_t *bytes) {
    return fi_getname(object, address, bytes);
}

int rdmc_fabric_connect(void *endpoint, const void *address, const void *parameter, size_t bytes) {
    return fi_connect(endpoint, address, parameter, bytes);
}

int rdmc_fabric_accept(void *endpoint) { return fi_accept(endpoint, NULL, 0); }

int rdmc_fabric_reject(void *passive, void *info) {
    return fi_reject(passive, ((struct fi_info *)info)->handle, NULL, 0);
}

int rdmc_fabric_shutdown(void *endpoint) { return fi_shutdown(endpoint, 0); }

/* Every object of libfabric starts with its fid. */
int rdmc_fabric_close(void *object) { return fi_close(object); }

int rdmc_fabric_register(void *domain, const void *start, size_t bytes, int for_peers, int writable,
                  uint64_t wanted_key, void **registration, void **description, uint64_t *key) {
    struct fid_mr *mr = NULL;
    uint64_t access = for_peers ? FI_REMOTE_WRITE : FI_SEND | FI_WRITE;
    if (!for_peers && writable)
        access |= FI_RECV;
    int result = fi_mr_reg(domain, start, bytes, access, 0, wanted_key, 0, &mr, NULL);
    if (result)
        return result;
    *registration = mr;
    *description = fi_mr_desc(mr);
    *key = fi_mr_key(mr);
    return 0;
}

int rdmc_fabric_bind_registration(void *registration, void *endpoint) {
    int result = fi_mr_bind(registration, &((struct fid_ep *)endpoint)->fid, 0);
    return result ? result : fi_mr_enable(registration);
}

long rdmc_fabric_receive(void *endpoint, void *start, size_t bytes, void *description,
                  uint64_t context) {
    return fi_recv(endpoint, start, bytes, description, FI_ADDR_UNSPEC, (void *)context);
}

long rdmc_fabric_send(void *endpoint, const void *start, size_t bytes, void *description, uint64_t data,
               uint64_t context) {
    return fi_senddata(endpoint, start, bytes, description, data, FI_ADDR_UNSPEC,
                       (void *)context);
}

long rdmc_fabric_tagged_receive(void *endpoint, void *start, size_t bytes, void *description,
                         uint64_t peer, uint64_t tag, uint64_t context) {
    return fi_trecv(endpoint, start, bytes, description, peer, tag, 0, (void *)context);
}

long rdmc_fabric_tagged_send(void *endpoint, const void *start, size_t bytes, void *description,
                      uint64_t data, uint64_t peer, uint64_t tag, uint64_t context) {
    return fi_tsenddata(endpoint, start, bytes, description, data, peer, tag, (void *)context);
}

long rdmc_fabric_write(void *endpoint, const void *start, size_t bytes, void *description,
                const uint64_t *data, int delivered, uint64_t peer, uint64_t address,
                uint64_t key, uint64_t context) {
    if (delivered) {
        const struct iovec from = {.iov_base = (void *)start, .iov_len = bytes};
        const struct fi_rma_iov to = {.addr = address, .len = bytes, .key = key};
        const struct fi_msg_rma write = {
            .msg_iov = &from,
            .desc = &description,
            .iov_count = 1,
            .addr = peer,
            .rma_iov = &to,
            .rma_iov_count = 1,
            .context = (void *)context,
        };
        return fi_writemsg(endpoint, &write, FI_DELIVERY_COMPLETE | FI_COMPLETION);
    }
    if (!data)
        return fi_write(endpoint, start, bytes, description, peer, address, key, (void *)context);
    return fi_writedata(endpoint, start, bytes, description, *data, peer, address, key,
                        (void *)context);
}

long rdmc_fabric_inject_write(void *endpoint, const void *start, size_t bytes, uint64_t data,
                       uint64_t peer, uint64_t address, uint64_t key) {
    return fi_inject_writedata(endpoint, start, bytes, data, peer, address, key);
}

long rdmc_fabric_inject_tagged_send(void *endpoint, const void *start, size_t bytes, uint64_t data,
                             uint64_t peer, uint64_t tag) {
    return fi_tinjectdata(endpoint, start, bytes, data, peer, tag);
}

static int read_error(struct fid_cq *cq, struct rdmc_fabric_completion *out) {
    struct fi_cq_err_entry entry = {0};
    ssize_t count = fi_cq_readerr(cq, &entry, 0);
    if (count < 1)
        return 0;
    out->context = (uint64_t)entry.op_context;
    out->error = entry.err ? entry.err : FI_EOTHER;
    out->provider_error = entry.prov_errno;
    return 1;
}

long rdmc_fabric_cq_read(void *cq, struct rdmc_fabric_completion *out, size_t count) {
    struct fi_cq_data_entry entries[64];
    if (count > sizeof entries / sizeof *entries)
        count = sizeof entries / sizeof *entries;
    memset(out, 0, count * sizeof *out);
    ssize_t found = fi_cq_read(cq, entries, count);
    if (found == -FI_EAVAIL)
        return read_error(cq, out);
    if (found == -FI_EAGAIN)
        return 0;
    for (ssize_t i = 0; i < found; i++) {
        const uint64_t flags = entries[i].flags;
        out[i].context = (uint64_t)entries[i].op_context;
        out[i].bytes = entries[i].len;
        out[i].data = entries[i].data;
        out[i].kind = flags & FI_REMOTE_WRITE ? RDMC_WRITTEN : RDMC_DONE;
        out[i].has_data = (flags & FI_REMOTE_CQ_DATA) != 0;
    }
    return found;
}

int rdmc_fabric_eq_read(void *eq, struct rdmc_fabric_event *out) {
    /* With space for the parameter behind the entry; providers truncate it to what fits. */
    union {
        struct fi_eq_cm_entry entry;
        uint8_t bytes[sizeof(struct fi_eq_cm_entry) + 256];
    } event;
    uint32_t kind = 0;
    memset(out, 0, sizeof *out);
    memset(&event, 0, sizeof event);
    ssize_t bytes = fi_eq_read(eq, &kind, &event, sizeof event, 0);
    if (bytes == -FI_EAGAIN || bytes == 0)
        return 0;
    if (bytes == -FI_EAVAIL) {
        struct fi_eq_err_entry error = {0};
        if (fi_eq_readerr(eq, &error, 0) < 0)
            return 0;
        out->kind = RDMC_FAILED;
        out->endpoint = error.fid;
        out->error = error.err;
        return 1;
    }
    if (bytes < 0)
        return (int)bytes;
    out->endpoint = event.entry.fid;
    switch (kind) {
    case FI_CONNREQ:
        out->kind = RDMC_REQUEST;
        out->info = event.entry.info;
        break;
    case FI_CONNECTED:
        out->kind = RDMC_CONNECTED;
        break;
    case FI_SHUTDOWN:
        out->kind = RDMC_SHUT_DOWN;
        break;
    default:
        out->kind = RDMC_OTHER;
    }
    if ((size_t)bytes > sizeof event.entry) {
        size_t parameter = (size_t)bytes - sizeof event.entry;
        if (parameter > sizeof out->parameter)
            parameter = sizeof out->parameter;
        memcpy(out->parameter, event.entry.data, parameter);
        out->parameter_bytes = (uint32_t)parameter;
    }
    return 1;
}
