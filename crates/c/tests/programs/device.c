// Operations of a team on memory of GPUs, of two members in one process. CUDA's driver is the first argument: the real one, or a
// stand-in. Prints `ok` for each part.
#include <dlfcn.h>
#include <pthread.h>
#include <rdmc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

enum { MEMBERS = 2, COUNT = 1000003, CHUNK = 1 << 20, TIMEOUT_MS = 60000 };

static char secret[65];
static rdmc_context *contexts[MEMBERS];
static char addresses[MEMBERS][64];
static const char *members[MEMBERS];
static const char *library;
static void *driver;

// A call of the driver, by its name.
typedef int call_of_driver();
static call_of_driver *find(const char *name) {
  union {
    void *symbol;
    call_of_driver *call;
  } found = {dlsym(driver, name)};
  EXPECT(found.symbol != NULL);
  return found.call;
}

// The device's context stays the thread's current one.
static uint64_t allocate(int ordinal, size_t length, size_t *stream) {
  size_t context;
  uint64_t address;
  EXPECT(find("cuDevicePrimaryCtxRetain")(&context, ordinal) == 0);
  EXPECT(find("cuCtxPushCurrent_v2")(context) == 0);
  EXPECT(find("cuMemAlloc_v2")(&address, length) == 0);
  EXPECT(find("cuStreamCreate")(stream, 1) == 0);
  return address;
}

static void *work(void *rank_of) {
  uint32_t rank = (uint32_t)(intptr_t)rank_of;
  rdmc_team_settings settings = {.size = sizeof settings, .number = 1, .rank = rank, .members = members};
  settings.member_count = MEMBERS;
  rdmc_team *team;
  rdmc_device *device;
  rdmc_error error;
  DO(rdmc_team_create(contexts[rank], &settings, &team, &error));
  DO(rdmc_device_open(library, rank % 2, CHUNK, &device, &error));
  size_t stream, length = COUNT * sizeof(float);
  uint64_t memory = allocate((int)rank % 2, length, &stream);
  float *values = malloc(length);
  for (int at = 0; at < COUNT; at++) values[at] = (float)(at % 1000) + (float)rank;
  // In the stream's order, as are the operations; memory that is not pinned is copied before these return.
  EXPECT(find("cuMemcpyHtoDAsync_v2")(memory, values, length, stream) == 0);
  DO(rdmc_team_broadcast_device(team, 1, device, memory, length, stream, TIMEOUT_MS, &error));
  DO(rdmc_team_all_reduce_device(team, device, memory, COUNT, RDMC_TYPE_F32, RDMC_OP_SUM, stream, TIMEOUT_MS, &error));
  EXPECT(find("cuMemcpyDtoHAsync_v2")(values, memory, length, stream) == 0);
  DO(rdmc_device_settle(device, TIMEOUT_MS, &error));
  for (int at = 0; at < COUNT; at++) EXPECT(values[at] == 2.0f * ((float)(at % 1000) + 1.0f));
  EXPECT(rdmc_team_broadcast_device(team, 1, device, memory, length + 1, stream, 0, &error) == RDMC_INVALID);
  EXPECT(rdmc_team_broadcast_device(team, 1, device, (uint64_t)(uintptr_t)values, 4, stream, 0, &error) == RDMC_INVALID);
  EXPECT(rdmc_team_all_reduce_device(team, device, memory, 1, 99, 0, stream, 0, &error) == RDMC_INVALID);
  free(values);
  DO(rdmc_team_barrier(team, TIMEOUT_MS, &error));
  DO(rdmc_team_close(team, TIMEOUT_MS, &error));
  rdmc_device_free(device);
  return NULL;
}

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  library = argv[1];
  rdmc_device *device;
  rdmc_error error;
  EXPECT(rdmc_device_open("/nonexistent/libcuda.so.1", 0, 0, &device, &error) == RDMC_UNSUPPORTED);
  EXPECT(strstr(error.text, "no NVIDIA driver") != NULL);
  EXPECT(rdmc_device_open(library, 99, 0, &device, &error) == RDMC_INVALID);
  EXPECT(rdmc_device_open(library, 0, 17, &device, &error) == RDMC_INVALID);
  rdmc_device_free(NULL);
  puts("ok refuse");
  driver = dlopen(library, RTLD_NOW);
  EXPECT(driver != NULL);
  DO(rdmc_secret_random(secret, sizeof secret, &error));
  for (int rank = 0; rank < MEMBERS; rank++) {
    rdmc_context_settings settings = {.size = sizeof settings, .listen = "127.0.0.1:0", .secret = secret};
    DO(rdmc_context_start(&settings, &contexts[rank], &error));
    DO(rdmc_context_address(contexts[rank], addresses[rank], sizeof addresses[rank], &error));
    members[rank] = addresses[rank];
  }
  pthread_t threads[MEMBERS];
  for (intptr_t rank = 0; rank < MEMBERS; rank++) EXPECT(pthread_create(&threads[rank], NULL, work, (void *)rank) == 0);
  for (int rank = 0; rank < MEMBERS; rank++) EXPECT(pthread_join(threads[rank], NULL) == 0);
  puts("ok devices");
  for (int rank = 0; rank < MEMBERS; rank++) DO(rdmc_context_close(contexts[rank], TIMEOUT_MS, &error));
  return 0;
}
