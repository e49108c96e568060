// Copies rank 0's standard input to the standard output of all other ranks, in one thread: an epoll loop that waits for input and
// for rdmc. Build: cc event_loop.c $(pkg-config --cflags --libs rdmc)
//
//   export RDMC_SECRET=$(rdmc secret)
//   ./event_loop 1 10.0.0.1:7000 10.0.0.2:7000             # at 10.0.0.2
//   tail -f log | ./event_loop 0 10.0.0.1:7000 10.0.0.2:7000   # at 10.0.0.1
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <rdmc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct loop {
  int epoll;
  int is_over;
  int status;
  // Used by one message at a time.
  char input[65536];
};

static void end(struct loop *loop, const char *failure) {
  if (failure != NULL) fprintf(stderr, "event_loop: %s\n", failure);
  loop->is_over = 1;
  loop->status = failure != NULL;
}

static void watch(struct loop *loop, int operation, int fd, uint32_t events) {
  struct epoll_event event = {.events = events, .data.fd = fd};
  if (epoll_ctl(loop->epoll, operation, fd, &event) != 0) end(loop, strerror(errno));
}

// One-shot: the input buffer is in use while a message is sent.
static void watch_input(struct loop *loop, int operation) { watch(loop, operation, STDIN_FILENO, EPOLLIN | EPOLLONESHOT); }

// Callbacks run in rdmc_progress, and thus in the loop.
static int32_t incoming(void *loop, uint64_t message, uint64_t length, rdmc_buffer *buffer) {
  (void)loop, (void)message;
  return rdmc_allocate(length, buffer, NULL) == RDMC_OK ? RDMC_ACCEPT : RDMC_REFUSE;
}

static void complete_at_root(void *loop, uint64_t message, void *data, uint64_t length) {
  (void)message, (void)data, (void)length;
  watch_input(loop, EPOLL_CTL_MOD);
}

// Blocks while nothing reads the output. The other members consider a member lost that is blocked for longer than
// `silence_timeout_ms`; if that can happen, the loop should also wait for the output.
static void complete_at_receiver(void *loop, uint64_t message, void *data, uint64_t length) {
  (void)message;
  if (fwrite(data, 1, length, stdout) != length || fflush(stdout) != 0) end(loop, strerror(errno));
}

static void failed(void *loop, const rdmc_error *failure) { end(loop, failure->text); }
static void closed(void *loop) { end(loop, NULL); }

// The end of the input closes the group; the callback `closed` follows once every member has all messages.
static void send_input(struct loop *loop, const rdmc_group *group) {
  rdmc_error error;
  ssize_t length = read(STDIN_FILENO, loop->input, sizeof loop->input);
  rdmc_buffer buffer = {.data = loop->input, .length = (uint64_t)length};
  if (length < 0) end(loop, strerror(errno));
  if (length == 0 && rdmc_group_start_close(group, &error) != RDMC_OK) end(loop, error.text);
  if (length > 0 && rdmc_send(group, buffer, 0, NULL, &error) != RDMC_OK) end(loop, error.text);
}

static void run(struct loop *loop, const rdmc_context *context, const rdmc_group *group) {
  while (!loop->is_over) {
    rdmc_error error;
    struct epoll_event event;
    int count = epoll_wait(loop->epoll, &event, 1, -1);
    if (count < 0 && errno != EINTR) end(loop, strerror(errno));
    if (count <= 0) continue;
    if (event.data.fd == STDIN_FILENO) {
      send_input(loop, group);
    } else if (rdmc_progress(context, 0, NULL, &error) != RDMC_OK) {
      end(loop, error.text);
    }
  }
}

int main(int argc, char **argv) {
  static struct loop loop;
  if (argc < 3) return fprintf(stderr, "usage: event_loop RANK ADDRESS...\n"), 2;
  const uint32_t rank = (uint32_t)strtoul(argv[1], NULL, 10), count = (uint32_t)(argc - 2);
  if (rank >= count) return fprintf(stderr, "event_loop: there is no address for rank %u\n", rank), 2;
  const char *const *members = (const char *const *)argv + 2;
  rdmc_context_settings here = {.size = sizeof here, .listen = members[rank], .secret = getenv("RDMC_SECRET")};
  here.caller_makes_progress = 1;
  rdmc_group_settings all = {.size = sizeof all, .members = members, .member_count = count, .rank = rank};
  rdmc_callbacks callbacks = {.size = sizeof callbacks, .user_data = &loop, .failed = failed, .closed = closed};
  callbacks.incoming = incoming;
  callbacks.complete = rank == 0 ? complete_at_root : complete_at_receiver;
  rdmc_context *context = NULL;
  rdmc_group *group = NULL;
  rdmc_error error;
  int fd;
  loop.epoll = epoll_create1(EPOLL_CLOEXEC);
  // Creating the group blocks until all members have joined.
  if (loop.epoll < 0) {
    end(&loop, strerror(errno));
  } else if (rdmc_context_start(&here, &context, &error) != RDMC_OK ||
             rdmc_context_fd(context, &fd, &error) != RDMC_OK ||
             rdmc_group_create_with_callbacks(context, &all, &callbacks, &group, &error) != RDMC_OK) {
    end(&loop, error.text);
  } else {
    watch(&loop, EPOLL_CTL_ADD, fd, EPOLLIN);
    if (rank == 0) watch_input(&loop, EPOLL_CTL_ADD);
    run(&loop, context, group);
  }
  // Before the context is freed, which also closes its descriptor.
  close(loop.epoll);
  rdmc_group_free(group);
  rdmc_context_free(context);
  return loop.status;
}
