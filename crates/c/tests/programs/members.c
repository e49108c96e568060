// Members of a group in one process, by the C interface alone: send, receive, failure, close. Prints `ok` for each part.
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <rdmc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"

enum { MEMBERS = 3, TIMEOUT_MS = 60000 };
static const uint64_t LENGTH = 3 * 65536 + 17;

static char secret[65];
static rdmc_context *contexts[MEMBERS];
static char addresses[MEMBERS][64];
static const char *members[MEMBERS];
static int released;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void give_back(void *memory) {
  free(memory);
  pthread_mutex_lock(&lock);
  released++;
  pthread_mutex_unlock(&lock);
}

// Waits until this many buffers were released, as the library may hold on to them for a moment.
static void expect_released(int count) {
  for (int tries = 0; tries < 6000; tries++) {
    pthread_mutex_lock(&lock);
    int now = released;
    pthread_mutex_unlock(&lock);
    if (now == count) return;
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  die("%d buffers were released, not %d", released, count);
}

static rdmc_buffer make_buffer(uint64_t length) {
  rdmc_buffer buffer = {.data = malloc(length), .length = length, .release = give_back};
  buffer.private_data = buffer.data;
  EXPECT(buffer.data != NULL);
  return buffer;
}

static uint8_t expected(uint64_t at) { return (uint8_t)(at * 31 + (at >> 8)); }

static void fill(rdmc_buffer buffer) {
  for (uint64_t at = 0; at < buffer.length; at++) ((uint8_t *)buffer.data)[at] = expected(at);
}

static void check(const void *data, uint64_t length) {
  for (uint64_t at = 0; at < length; at++) EXPECT(((const uint8_t *)data)[at] == expected(at));
}

static rdmc_group_settings settings_of(uint64_t number, uint32_t rank) {
  rdmc_group_settings settings = {.size = sizeof settings, .number = number, .rank = rank};
  settings.members = members;
  settings.member_count = MEMBERS;
  settings.block_bytes = 4096;
  return settings;
}

static void start_contexts(uint32_t caller_makes_progress) {
  DO(rdmc_secret_random(secret, sizeof secret, &error));
  for (int rank = 0; rank < MEMBERS; rank++) {
    rdmc_context_settings settings = {.size = sizeof settings, .listen = "127.0.0.1:0", .secret = secret};
    settings.caller_makes_progress = caller_makes_progress;
    DO(rdmc_context_start(&settings, &contexts[rank], &error));
    DO(rdmc_context_address(contexts[rank], addresses[rank], sizeof addresses[rank], &error));
    members[rank] = addresses[rank];
  }
}

// Runs a member on each rank at the same time.
static void run(void *(*member)(void *rank)) {
  pthread_t threads[MEMBERS];
  for (intptr_t rank = 0; rank < MEMBERS; rank++)
    EXPECT(pthread_create(&threads[rank], NULL, member, (void *)rank) == 0);
  for (int rank = 0; rank < MEMBERS; rank++) EXPECT(pthread_join(threads[rank], NULL) == 0);
}

// Message 0 is read in order, message 1 block by block, message 2 goes into memory that was posted.
static void receive_all(rdmc_group *group) {
  rdmc_message *message;
  static const size_t PIECE = 1000;
  for (int number = 0; number < 3; number++) {
    DO(rdmc_receive(group, TIMEOUT_MS, &message, &error));
    EXPECT(message != NULL && rdmc_message_number(message) == (uint64_t)number);
    EXPECT(rdmc_message_length(message) == LENGTH);
    uint64_t seen = 0;
    if (number == 0) {
      uint8_t *all = malloc(LENGTH);
      for (size_t count = 1; count > 0; seen += count)
        DO(rdmc_message_read(message, all + seen, LENGTH - seen < PIECE ? LENGTH - seen : PIECE, &count, &error));
      check(all, LENGTH);
      free(all);
    } else if (number == 1) {
      const void *data;
      for (uint64_t offset, length = 1; length > 0; seen += length) {
        DO(rdmc_message_next_block(message, TIMEOUT_MS, &offset, &data, &length, &error));
        for (uint64_t at = 0; at < length; at++) EXPECT(((const uint8_t *)data)[at] == expected(offset + at));
      }
    } else {
      const void *data;
      DO(rdmc_message_data(message, TIMEOUT_MS, &data, &error));
      check(data, LENGTH);
      seen = LENGTH;
    }
    EXPECT(seen == LENGTH);
    DO(rdmc_message_finish(message, TIMEOUT_MS, &error));
  }
  DO(rdmc_receive(group, TIMEOUT_MS, &message, &error));
  EXPECT(message == NULL);
}

static void *replicate(void *rank_of) {
  uint32_t rank = (uint32_t)(intptr_t)rank_of;
  rdmc_group_settings settings = settings_of(1, rank);
  rdmc_group *group;
  DO(rdmc_group_create(contexts[rank], &settings, &group, &error));
  if (rank == 0) {
    uint64_t number;
    rdmc_message *nothing = NULL;
    rdmc_error refused;
    EXPECT(rdmc_receive(group, UINT64_MAX, &nothing, &refused) == RDMC_STATE && strstr(refused.text, "member 0 is the root"));
    for (uint64_t message = 0; message < 3; message++) {
      rdmc_buffer buffer = make_buffer(LENGTH);
      fill(buffer);
      DO(rdmc_send(group, buffer, TIMEOUT_MS, &number, &error));
      EXPECT(number == message);
    }
    DO(rdmc_wait_complete(group, 3, TIMEOUT_MS, &error));
    DO(rdmc_wait_delivered(group, 3, TIMEOUT_MS, &error));
    EXPECT(rdmc_delivered(group) == 3);
    DO(rdmc_group_close(group, TIMEOUT_MS, &error));
    DO(rdmc_receive(group, UINT64_MAX, &nothing, &error));
    EXPECT(nothing == NULL);
    rdmc_error error;
    EXPECT(rdmc_send(group, make_buffer(1), 0, NULL, &error) == RDMC_CLOSED && error.member == -1);
  } else {
    for (int message = 0; message < 3; message++) DO(rdmc_post_receive_buffer(group, make_buffer(LENGTH), &error));
    receive_all(group);
  }
  rdmc_group_free(group);
  return NULL;
}

// All members take what the root chooses, for what they leave open.
static void *agree(void *rank_of) {
  uint32_t rank = (uint32_t)(intptr_t)rank_of;
  static const struct {
    const char *algorithm, *taken;
    uint64_t message_bytes, block_bytes;
  } CASES[] = {{NULL, NULL, 0, 0}, {"auto", NULL, 20000, 0}, {"chain", "chain", 0, 1234}};
  for (size_t number = 0; number < sizeof CASES / sizeof *CASES; number++) {
    rdmc_group_settings settings = settings_of(100 + number, rank);
    rdmc_group *group;
    char algorithm[64];
    settings.block_bytes = 0;
    if (rank == 0) {
      settings.algorithm = CASES[number].algorithm;
      settings.message_bytes = CASES[number].message_bytes;
      settings.block_bytes = CASES[number].block_bytes;
    }
    DO(rdmc_group_create(contexts[rank], &settings, &group, &error));
    DO(rdmc_group_algorithm(group, algorithm, sizeof algorithm, &error));
    EXPECT(rdmc_group_algorithm(group, algorithm, 3, NULL) == RDMC_INVALID);
    EXPECT(CASES[number].taken == NULL || strcmp(algorithm, CASES[number].taken) == 0);
    uint64_t block_bytes = rdmc_group_block_bytes(group);
    EXPECT(CASES[number].block_bytes == 0 || block_bytes == CASES[number].block_bytes);
    EXPECT(CASES[number].message_bytes == 0 || block_bytes <= 2 * CASES[number].message_bytes);
    DO(rdmc_group_close(group, TIMEOUT_MS, &error));
    rdmc_group_free(group);
  }
  return NULL;
}

// A name that is none is refused with the names there are.
static void unknown_algorithm(void) {
  rdmc_group_settings settings = settings_of(200, 0);
  rdmc_group *group;
  rdmc_error error;
  settings.algorithm = "slowest";
  EXPECT(rdmc_group_create(contexts[0], &settings, &group, &error) == RDMC_INVALID);
  EXPECT(strstr(error.text, "auto") != NULL && strstr(error.text, "chain") != NULL);
}

// The others do not come.
static void alone(void) {
  rdmc_group_settings settings = settings_of(201, 0);
  rdmc_team_settings team_settings = {.size = sizeof team_settings, .number = 202, .members = members, .member_count = MEMBERS};
  rdmc_group *group;
  rdmc_team *team;
  rdmc_error error;
  settings.connect_timeout_ms = team_settings.connect_timeout_ms = 123;
  EXPECT(rdmc_group_create(contexts[0], &settings, &group, &error) == RDMC_TIMEOUT && strstr(error.text, "123 ms"));
  EXPECT(rdmc_team_create(contexts[0], &team_settings, &team, &error) == RDMC_TIMEOUT && strstr(error.text, "123 ms"));
}

// Member 1 gives up; all others learn who, and why.
static void *fail(void *rank_of) {
  uint32_t rank = (uint32_t)(intptr_t)rank_of;
  rdmc_group_settings settings = settings_of(2, rank);
  rdmc_group *group;
  rdmc_error error;
  DO(rdmc_group_create(contexts[rank], &settings, &group, &error));
  if (rank == 1) {
    DO(rdmc_group_abort(group, "out of cheese", &error));
  } else {
    rdmc_message *message = NULL;
    // The root waits for a message that it does not send: a close could come before the failure.
    int code = rank == 0 ? rdmc_wait_complete(group, 1, TIMEOUT_MS, &error)
                         : rdmc_receive(group, TIMEOUT_MS, &message, &error);
    if (code != RDMC_APPLICATION) die("rank %u: code %d, member %d: %s", rank, code, (int)error.member, error.text);
    EXPECT(error.code == code && error.member == 1);
    EXPECT(strstr(error.text, "out of cheese") != NULL);
    EXPECT(rdmc_group_failure(group, NULL) == RDMC_APPLICATION);
  }
  rdmc_group_free(group);
  return NULL;
}

struct seen {
  uint64_t complete, blocks;
  int closed, destroyed;
};

static int32_t incoming(void *data, uint64_t message, uint64_t length, rdmc_buffer *buffer) {
  (void)data, (void)message;
  *buffer = make_buffer(length);
  return RDMC_ACCEPT;
}

static void complete(void *data, uint64_t message, void *at, uint64_t length) {
  check(at, length);
  ((struct seen *)data)->complete += message + length;
}

static void block(void *data, uint64_t message, uint64_t offset, uint64_t length) {
  (void)message, (void)offset;
  ((struct seen *)data)->blocks += length;
}

static void closed(void *data) { ((struct seen *)data)->closed++; }
static void destroy(void *data) { ((struct seen *)data)->destroyed++; }

static void *call_back(void *rank_of) {
  uint32_t rank = (uint32_t)(intptr_t)rank_of;
  rdmc_group_settings settings = settings_of(3, rank);
  settings.report_blocks = 1;
  struct seen *seen = calloc(1, sizeof *seen);
  rdmc_callbacks callbacks = {.size = sizeof callbacks, .user_data = seen, .incoming = incoming, .complete = complete};
  callbacks.block = block, callbacks.closed = closed, callbacks.destroy = destroy;
  rdmc_group *group;
  DO(rdmc_group_create_with_callbacks(contexts[rank], &settings, &callbacks, &group, &error));
  if (rank == 0) {
    rdmc_buffer buffer = make_buffer(LENGTH);
    fill(buffer);
    DO(rdmc_send(group, buffer, TIMEOUT_MS, NULL, &error));
  }
  DO(rdmc_group_close(group, TIMEOUT_MS, &error));
  rdmc_group_free(group);
  // The context's threads end, and with them the last reference to the callbacks.
  DO(rdmc_context_close(contexts[rank], TIMEOUT_MS, &error));
  EXPECT(seen->complete == LENGTH && seen->closed == 1 && seen->destroyed == 1);
  EXPECT(seen->blocks == (rank == 0 ? 0 : LENGTH));
  free(seen);
  return NULL;
}

struct later {
  uint64_t announced, complete;
  int closed;
};

static int32_t answer_later(void *data, uint64_t message, uint64_t length, rdmc_buffer *buffer) {
  (void)buffer;
  EXPECT(message == 0);
  ((struct later *)data)->announced = length;
  return RDMC_LATER;
}

static void complete_later(void *data, uint64_t message, void *at, uint64_t length) {
  (void)message;
  check(at, length);
  ((struct later *)data)->complete = length;
}

static void closed_later(void *data) { ((struct later *)data)->closed = 1; }

// Makes progress until a callback has set a value. Callbacks run in this thread only.
static void progress_until(rdmc_context *context, const struct later *seen, int (*is_so)(const struct later *)) {
  for (int tries = 0; !is_so(seen); tries++) {
    int32_t ran;
    EXPECT(tries < 60000);
    DO(rdmc_progress(context, 1, &ran, &error));
    EXPECT(ran == 0 || ran == 1);
  }
}

static int is_announced(const struct later *seen) { return seen->announced > 0; }
static int is_complete(const struct later *seen) { return seen->complete > 0; }
static int is_closed(const struct later *seen) { return seen->closed; }

// The caller makes progress, and says only later where a message is received.
static void *accept_later(void *rank_of) {
  uint32_t rank = (uint32_t)(intptr_t)rank_of;
  rdmc_group_settings settings = settings_of(4, rank);
  struct later seen = {0};
  rdmc_callbacks callbacks = {.size = sizeof callbacks, .user_data = &seen, .incoming = answer_later};
  callbacks.complete = complete_later, callbacks.closed = closed_later;
  rdmc_group *group;
  rdmc_error error;
  DO(rdmc_group_create_with_callbacks(contexts[rank], &settings, &callbacks, &group, &error));
  if (rank == 0) {
    rdmc_buffer buffer = make_buffer(LENGTH);
    fill(buffer);
    DO(rdmc_send(group, buffer, 0, NULL, &error));
  } else {
    progress_until(contexts[rank], &seen, is_announced);
    EXPECT(seen.announced == LENGTH);
    EXPECT(rdmc_accept(group, 0, make_buffer(LENGTH - 1), &error) != RDMC_OK);
    EXPECT(rdmc_accept(group, 7, make_buffer(LENGTH), &error) != RDMC_OK);
    DO(rdmc_accept(group, 0, make_buffer(LENGTH), &error));
  }
  progress_until(contexts[rank], &seen, is_complete);
  EXPECT(seen.complete == LENGTH);
  DO(rdmc_group_start_close(group, &error));
  progress_until(contexts[rank], &seen, is_closed);
  rdmc_group_free(group);
  DO(rdmc_context_close(contexts[rank], TIMEOUT_MS, &error));
  return NULL;
}

static void *work_together(void *rank_of) {
  uint32_t rank = (uint32_t)(intptr_t)rank_of;
  rdmc_team_settings settings = {.size = sizeof settings, .number = 9, .rank = rank, .members = members};
  settings.member_count = MEMBERS;
  rdmc_team *team;
  DO(rdmc_team_create(contexts[rank], &settings, &team, &error));
  double values[2] = {rank + 1.0, -1.0 * rank};
  DO(rdmc_team_all_reduce(team, values, 2, RDMC_TYPE_F64, RDMC_OP_SUM, TIMEOUT_MS, &error));
  EXPECT(values[0] == 6.0 && values[1] == -3.0);
  int32_t least[1] = {(int32_t)rank + 5};
  DO(rdmc_team_reduce(team, 2, least, 1, RDMC_TYPE_I32, RDMC_OP_MIN, TIMEOUT_MS, &error));
  EXPECT(least[0] == (rank == 2 ? 5 : (int32_t)rank + 5));
  char text[6] = "";
  if (rank == 1) memcpy(text, "hello", 6);
  DO(rdmc_team_broadcast(team, 1, text, sizeof text, TIMEOUT_MS, &error));
  EXPECT(strcmp(text, "hello") == 0);
  uint16_t ranks[MEMBERS] = {0};
  ranks[rank] = (uint16_t)(rank + 100);
  DO(rdmc_team_all_gather(team, ranks, sizeof ranks, TIMEOUT_MS, &error));
  EXPECT(ranks[0] == 100 && ranks[1] == 101 && ranks[2] == 102);
  uint32_t counts[MEMBERS] = {rank, 10 + rank, 20 + rank};
  DO(rdmc_team_reduce_scatter(team, counts, MEMBERS, RDMC_TYPE_U32, RDMC_OP_SUM, TIMEOUT_MS, &error));
  EXPECT(counts[rank] == 30 * rank + 3);
  uint16_t parts[MEMBERS] = {7, 8, 9};
  const uint64_t length = rank == 1 ? sizeof parts : sizeof *parts;
  DO(rdmc_team_scatter(team, 1, parts, length, TIMEOUT_MS, &error));
  EXPECT(rank == 1 ? parts[2] == 9 : parts[0] == 7 + rank);
  DO(rdmc_team_gather(team, 1, parts, length, TIMEOUT_MS, &error));
  EXPECT(rank == 1 ? parts[0] == 7 && parts[2] == 9 : parts[0] == 7 + rank);
  rdmc_team *part;
  const int64_t color = rank == 0 ? -1 : 5, key = -(int64_t)rank;
  DO(rdmc_team_split(contexts[rank], team, color, key, TIMEOUT_MS, &part, &error));
  EXPECT((part == NULL) == (rank == 0));
  if (part != NULL) {
    uint32_t first = rank;
    DO(rdmc_team_broadcast(part, 0, &first, sizeof first, TIMEOUT_MS, &error));
    EXPECT(first == 2);
    DO(rdmc_team_close(part, TIMEOUT_MS, &error));
  }
  DO(rdmc_team_barrier(team, TIMEOUT_MS, &error));
  rdmc_operation_counters counters;
  DO(rdmc_team_counters(team, &counters, &error));
  EXPECT(counters.operations == 9 && counters.reserved == 0);
  EXPECT(counters.bytes_sent > 0 && counters.bytes_received > 0);
  rdmc_error error;
  EXPECT(rdmc_team_counters(team, NULL, &error) == RDMC_INVALID);
  EXPECT(rdmc_team_all_reduce(team, values, 2, 99, RDMC_OP_SUM, 0, &error) == RDMC_INVALID);
  EXPECT(rdmc_team_all_reduce(team, values, 2, RDMC_TYPE_F64, RDMC_OP_BXOR, 0, &error) == RDMC_INVALID);
  EXPECT(rdmc_team_all_reduce(team, NULL, 1, RDMC_TYPE_F64, RDMC_OP_SUM, 0, &error) == RDMC_INVALID);
  DO(rdmc_team_close(team, TIMEOUT_MS, &error));
  return NULL;
}

static void refuse(void) {
  rdmc_error error;
  rdmc_context *context;
  rdmc_context_settings settings = {.size = sizeof settings, .listen = "somewhere", .secret = secret};
  EXPECT(rdmc_context_start(&settings, &context, &error) == RDMC_INVALID);
  EXPECT(strstr(error.text, "10.0.0.1:7000") != NULL);
  settings.listen = NULL;
  EXPECT(rdmc_context_start(&settings, &context, NULL) == RDMC_INVALID);
  settings.listen = "127.0.0.1:0", settings.secret = "12";
  EXPECT(rdmc_context_start(&settings, &context, &error) == RDMC_INVALID);
  EXPECT(strstr(error.text, "64 hexadecimal digits") != NULL);
  settings.secret = secret, settings.fabric = "no-such-fabric";
  EXPECT(rdmc_context_start(&settings, &context, &error) == RDMC_UNSUPPORTED);
  EXPECT(rdmc_group_close(NULL, 0, &error) == RDMC_INVALID);
  EXPECT(rdmc_send(NULL, make_buffer(5), 0, NULL, &error) == RDMC_INVALID);
  rdmc_group_free(NULL), rdmc_message_free(NULL), rdmc_context_free(NULL), rdmc_team_free(NULL), rdmc_region_free(NULL);
}

static void use_regions(void) {
  rdmc_region *region;
  rdmc_buffer part;
  pthread_mutex_lock(&lock);
  int before = released;
  pthread_mutex_unlock(&lock);
  DO(rdmc_region_create(contexts[0], make_buffer(1000), &region, &error));
  rdmc_error error;
  EXPECT(rdmc_region_buffer(region, 990, 11, &part, &error) == RDMC_INVALID);
  DO(rdmc_region_buffer(region, 990, 10, &part, &error));
  rdmc_region_free(region);
  memset(part.data, 7, part.length);
  EXPECT(part.length == 10);
  expect_released(before);
  part.release(part.private_data);
  expect_released(before + 1);
  DO(rdmc_allocate(4096, &part, &error));
  EXPECT(((char *)part.data)[4095] == 0);
  part.release(part.private_data);
}

static void fork_once(void) {
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    rdmc_error error;
    rdmc_counters counters;
    int code = rdmc_context_counters(contexts[0], &counters, &error);
    rdmc_context_free(contexts[0]);
    _exit(code == RDMC_FORKED && strstr(error.text, "fork") != NULL ? 0 : 1);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  rdmc_counters counters;
  DO(rdmc_context_counters(contexts[0], &counters, &error));
  EXPECT(counters.blocks_sent > 0);
}

int main(int argc, char **argv) {
  // A tool that follows processes only slowly leaves this part out.
  int forks = argc < 2 || strcmp(argv[1], "--no-fork") != 0;
  EXPECT(strcmp(rdmc_version(), RDMC_EXPECTED_VERSION) == 0 && rdmc_has("nonsense") == 0);
  start_contexts(0);
  puts("ok start");
  run(replicate);
  // Of 3 messages at the root and 2 receivers, and the one that a closed group refused.
  expect_released(3 + 2 * 3 + 1);
  puts("ok replicate");
  run(agree);
  unknown_algorithm();
  alone();
  puts("ok agree");
  run(fail);
  puts("ok fail");
  refuse();
  puts("ok refuse");
  use_regions();
  puts("ok regions");
  run(work_together);
  puts("ok teams");
  if (forks) fork_once();
  run(call_back);
  puts("ok callbacks");
  rdmc_error error;
  start_contexts(0);
  EXPECT(rdmc_progress(contexts[0], 0, NULL, &error) == RDMC_STATE);
  for (int rank = 0; rank < MEMBERS; rank++) rdmc_context_free(contexts[rank]);
  start_contexts(1);
  run(accept_later);
  puts("ok progress");
  return 0;
}
