// Members whose one thread waits for the descriptors of their contexts, and calls rdmc_progress only when one is readable. Prints `ok`
// for each part. Neighbours exchange heartbeats rarely, so that nothing but what a part waits for makes a descriptor readable.
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <pthread.h>
#include <rdmc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

// A wait that ends by PATIENCE_MS has failed. It is far shorter than the intervals of heartbeats and of checks for stalls, which would hide that.
enum { MEMBERS = 3, PATIENCE_MS = 60000, SILENCE_MS = 3600000, SHORT_MS = 5000, MESSAGES = 20 };
static const uint64_t LONG = 3 * 1048576 + 17;

static char secret[65];
static char addresses[MEMBERS][64];
static const char *members[MEMBERS];

struct member {
  rdmc_context *context;
  rdmc_group *group;
  uint32_t rank;
  int fd;
  int complete;
  int closed;
  int32_t failure;
  int64_t suspect;
  // Of the group that is created next.
  uint64_t number;
};

static struct member all[MEMBERS];

static void start(uint64_t silence_timeout_ms) {
  DO(rdmc_secret_random(secret, sizeof secret, &error));
  for (uint32_t rank = 0; rank < MEMBERS; rank++) {
    rdmc_context_settings settings = {.size = sizeof settings, .listen = "127.0.0.1:0", .secret = secret};
    settings.caller_makes_progress = 1;
    settings.silence_timeout_ms = silence_timeout_ms;
    all[rank] = (struct member){.rank = rank};
    DO(rdmc_context_start(&settings, &all[rank].context, &error));
    DO(rdmc_context_address(all[rank].context, addresses[rank], sizeof addresses[rank], &error));
    DO(rdmc_context_fd(all[rank].context, &all[rank].fd, &error));
    members[rank] = addresses[rank];
  }
}

static void *stop_one(void *data) {
  struct member *member = data;
  rdmc_group_free(member->group);
  rdmc_context_free(member->context);
  return NULL;
}

// At once: each waits a moment for the others.
static void stop(void) {
  pthread_t threads[MEMBERS];
  for (int rank = 0; rank < MEMBERS; rank++) EXPECT(pthread_create(&threads[rank], NULL, stop_one, &all[rank]) == 0);
  for (int rank = 0; rank < MEMBERS; rank++) EXPECT(pthread_join(threads[rank], NULL) == 0);
}

static rdmc_group_settings settings_of(uint64_t number, uint32_t rank) {
  rdmc_group_settings settings = {.size = sizeof settings, .number = number, .rank = rank};
  settings.members = members;
  settings.member_count = MEMBERS;
  settings.block_bytes = 65536;
  settings.algorithm = "chain";
  settings.stall_timeout_ms = SILENCE_MS;
  return settings;
}

static int32_t incoming(void *member, uint64_t message, uint64_t length, rdmc_buffer *buffer) {
  (void)member, (void)message;
  return rdmc_allocate(length, buffer, NULL) == RDMC_OK ? RDMC_ACCEPT : RDMC_REFUSE;
}

static void complete(void *data, uint64_t message, void *at, uint64_t length) {
  struct member *member = data;
  EXPECT((int)message == member->complete && length == (message % 2 == 0 ? LONG : message));
  for (uint64_t byte = 0; byte < length; byte++) EXPECT(((uint8_t *)at)[byte] == (uint8_t)(byte * 7 + message));
  member->complete++;
}

static void failed(void *data, const rdmc_error *failure) {
  struct member *member = data;
  member->failure = failure->code;
  member->suspect = failure->member;
}

static void closed(void *data) { ((struct member *)data)->closed = 1; }

static void *create(void *data) {
  struct member *member = data;
  rdmc_group_settings settings = settings_of(member->number, member->rank);
  rdmc_callbacks callbacks = {.size = sizeof callbacks, .user_data = member, .incoming = incoming, .complete = complete};
  callbacks.failed = failed;
  callbacks.closed = closed;
  DO(rdmc_group_create_with_callbacks(member->context, &settings, &callbacks, &member->group, &error));
  return NULL;
}

static void *create_plain(void *data) {
  struct member *member = data;
  rdmc_group_settings settings = settings_of(member->number, member->rank);
  DO(rdmc_group_create(member->context, &settings, &member->group, &error));
  return NULL;
}

// Creation blocks until all members call it.
static void create_all(void *(*how)(void *), uint64_t number) {
  pthread_t threads[MEMBERS];
  for (int rank = 0; rank < MEMBERS; rank++) {
    all[rank].number = number;
    EXPECT(pthread_create(&threads[rank], NULL, how, &all[rank]) == 0);
  }
  for (int rank = 0; rank < MEMBERS; rank++) EXPECT(pthread_join(threads[rank], NULL) == 0);
}

// Waits until descriptors of the first `count` members are readable, and makes progress there. Returns how many were.
static int turn(int count, int patience_ms) {
  struct pollfd waits[MEMBERS];
  for (int rank = 0; rank < count; rank++) waits[rank] = (struct pollfd){.fd = all[rank].fd, .events = POLLIN};
  int ready = poll(waits, (nfds_t)count, patience_ms);
  EXPECT(ready >= 0);
  for (int rank = 0; rank < count; rank++) {
    EXPECT((waits[rank].revents & ~POLLIN) == 0);
    if (waits[rank].revents != 0) DO(rdmc_progress(all[rank].context, 0, NULL, &error));
  }
  return ready;
}

static void turn_or_die(int line, int count) {
  if (turn(count, PATIENCE_MS) == 0) die("line %d: no descriptor became readable", line);
}

// Until nothing is readable; a descriptor that stays so keeps a processor busy.
static void settle(void) {
  int turns = 0;
  while (turn(MEMBERS, 0) > 0) EXPECT(++turns < 10000);
}

// The root's thread that sends is not the one that waits.
static void *send_all(void *data) {
  for (uint64_t message = 0; message < MESSAGES; message++) {
    rdmc_buffer buffer;
    DO(rdmc_allocate(message % 2 == 0 ? LONG : message, &buffer, &error));
    for (uint64_t at = 0; at < buffer.length; at++) ((uint8_t *)buffer.data)[at] = (uint8_t)(at * 7 + message);
    DO(rdmc_send(data, buffer, 0, NULL, &error));
  }
  DO(rdmc_group_start_close(data, &error));
  return NULL;
}

static void replicate(void) {
  start(SILENCE_MS);
  create_all(create, 1);
  settle();
  pthread_t sender;
  EXPECT(pthread_create(&sender, NULL, send_all, all[0].group) == 0);
  while (!all[0].closed || !all[1].closed || !all[2].closed) turn_or_die(__LINE__, MEMBERS);
  EXPECT(pthread_join(sender, NULL) == 0);
  for (int rank = 0; rank < MEMBERS; rank++) EXPECT(all[rank].complete == MESSAGES && all[rank].failure == 0);
  settle();
  stop();
  puts("ok replicate");
}

// Two groups without callbacks: a call that receives of one makes progress for both, and what it found of the other is not forgotten.
static void receive(void) {
  start(SILENCE_MS);
  create_all(create_plain, 1);
  rdmc_group *first[MEMBERS];
  for (int rank = 0; rank < MEMBERS; rank++) first[rank] = all[rank].group;
  create_all(create_plain, 2);
  settle();
  rdmc_buffer buffer = {.data = "hello", .length = 5};
  DO(rdmc_send(first[0], buffer, 0, NULL, &error));
  for (int rank = 1; rank < MEMBERS; rank++) {
    rdmc_message *message = NULL;
    // Progress of the root and of those before, until the message is on its way to this one.
    struct pollfd wait = {.fd = all[rank].fd, .events = POLLIN};
    while (poll(&wait, 1, 0) == 0) turn_or_die(__LINE__, rank);
    EXPECT(rdmc_receive(all[rank].group, 0, &message, NULL) == RDMC_TIMEOUT);
    while (rdmc_receive(first[rank], 0, &message, NULL) == RDMC_TIMEOUT) {
      EXPECT(rdmc_receive(all[rank].group, 0, &message, NULL) == RDMC_TIMEOUT);
      turn_or_die(__LINE__, rank + 1);
    }
    EXPECT(rdmc_message_length(message) == 5);
    rdmc_message_free(message);
  }
  for (int rank = 0; rank < MEMBERS; rank++) rdmc_group_free(first[rank]);
  stop();
  puts("ok receive");
}

// What comes of another group in the turn of a call that receives makes the descriptor readable.
static void notice(void) {
  start(SILENCE_MS);
  create_all(create_plain, 1);
  rdmc_group *first = all[1].group;
  rdmc_group *others[] = {all[0].group, all[2].group};
  create_all(create_plain, 2);
  settle();
  rdmc_buffer buffer = {.data = "hello", .length = 5};
  DO(rdmc_send(others[0], buffer, 0, NULL, &error));
  // Member 1 makes progress by calls for the second group alone; the last of them finds nothing at all.
  struct pollfd wait = {.fd = all[1].fd, .events = POLLIN};
  rdmc_message *message = NULL;
  for (int quiet = 0; quiet < 3; quiet++) {
    while (turn(1, 0) > 0) quiet = 0;
    EXPECT(rdmc_receive(all[1].group, 100, &message, NULL) == RDMC_TIMEOUT);
  }
  EXPECT(poll(&wait, 1, PATIENCE_MS) == 1);
  DO(rdmc_progress(all[1].context, 0, NULL, &error));
  DO(rdmc_receive(first, 0, &message, &error));
  EXPECT(message != NULL);
  rdmc_message_free(message);
  rdmc_group_free(first);
  rdmc_group_free(others[0]);
  rdmc_group_free(others[1]);
  stop();
  puts("ok notice");
}

static void *receive_nothing(void *member) {
  rdmc_message *message;
  EXPECT(rdmc_receive(((struct member *)member)->group, 3000, &message, NULL) == RDMC_TIMEOUT);
  __atomic_store_n(&((struct member *)member)->closed, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

// While another thread makes progress by a call that waits, the descriptor is readable now and then, not all the time.
static void share(void) {
  start(SHORT_MS);
  create_all(create_plain, 1);
  settle();
  pthread_t receiver;
  int turns = 0;
  EXPECT(pthread_create(&receiver, NULL, receive_nothing, &all[1]) == 0);
  for (; !__atomic_load_n(&all[1].closed, __ATOMIC_SEQ_CST); turns++) turn(MEMBERS, 100);
  EXPECT(pthread_join(receiver, NULL) == 0);
  if (turns >= 10000) die("descriptors were readable %d times", turns);
  stop();
  puts("ok share");
}

// A neighbour that makes no progress any more is found by time alone.
static void suspect(void) {
  start(SHORT_MS);
  create_all(create, 1);
  while (all[0].failure == 0 || all[1].failure == 0) turn_or_die(__LINE__, 2);
  for (int rank = 0; rank < 2; rank++) EXPECT(all[rank].suspect == 2 && all[rank].failure == RDMC_SILENT);
  stop();
  puts("ok suspect");
}

static void refuse(void) {
  rdmc_error error;
  rdmc_context *context;
  int fd = -1;
  start(SILENCE_MS);
  EXPECT(rdmc_context_fd(NULL, &fd, &error) == RDMC_INVALID && rdmc_context_fd(all[0].context, NULL, NULL) == RDMC_INVALID);
  DO(rdmc_context_fd(all[0].context, &fd, &error));
  EXPECT(fd == all[0].fd);
  pid_t child = fork();
  if (child == 0) _exit(rdmc_context_fd(all[0].context, &fd, NULL) == RDMC_FORKED ? 0 : 1);
  int status = 1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  stop();

  rdmc_context_settings settings = {.size = sizeof settings, .listen = "127.0.0.1:0", .secret = secret};
  DO(rdmc_context_start(&settings, &context, &error));
  EXPECT(rdmc_context_fd(context, &fd, &error) == RDMC_STATE && strstr(error.text, "thread") != NULL);
  rdmc_context_free(context);
  settings.caller_makes_progress = 1;
  settings.fabric = "ofi-tcp";
  // Where libfabric is not there, neither is the fabric.
  int32_t code = rdmc_context_start(&settings, &context, &error);
  if (code == RDMC_OK) {
    code = rdmc_context_fd(context, &fd, &error);
    EXPECT(strstr(error.text, "ofi-tcp") != NULL && strstr(error.text, "thread") != NULL);
    rdmc_context_free(context);
  }
  EXPECT(code == RDMC_UNSUPPORTED);
  puts("ok refuse");
}

int main(void) {
  // Before there are threads of the library.
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  replicate();
  receive();
  notice();
  share();
  suspect();
  refuse();
  return 0;
}
