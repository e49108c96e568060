// The receiver of docs/reference/c.md, which is written behind this, with a root: PROGRAM SECRET ADDRESS ADDRESS RANK [dies].
#include <inttypes.h>
#include <rdmc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int receive_all(const char *const *members, uint32_t count, uint32_t rank, const char *secret, uint64_t timeout_ms);

static const uint64_t TIMEOUT_MS = 600000;

void use(const void *data, uint64_t length) {
  printf("%.*s\n", (int)length, (const char *)data);
  fflush(stdout);
}

// Sends a message, and dies then or closes the group.
static int send_one(const char *const *members, const char *secret, int dies) {
  rdmc_error error;
  rdmc_context_settings here = {.size = sizeof here, .listen = members[0], .secret = secret};
  rdmc_group_settings all = {.size = sizeof all, .number = 1, .members = members, .member_count = 2};
  rdmc_context *context;
  rdmc_group *group;
  rdmc_buffer buffer = {.data = (void *)"hello", .length = 5};
  if (rdmc_context_start(&here, &context, &error) || rdmc_group_create(context, &all, &group, &error) ||
      rdmc_send(group, buffer, TIMEOUT_MS, NULL, &error) || rdmc_wait_delivered(group, 1, TIMEOUT_MS, &error)) {
    fprintf(stderr, "the root: %s\n", error.text);
    return 1;
  }
  if (dies) _exit(9);
  if (rdmc_group_close(group, TIMEOUT_MS, &error)) return 1;
  rdmc_group_free(group);
  rdmc_context_free(context);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  const char *members[2] = {argv[2], argv[3]};
  if (strcmp(argv[4], "0") == 0) return send_one(members, argv[1], argc > 5);
  return receive_all(members, 2, 1, argv[1], TIMEOUT_MS) == RDMC_OK ? 0 : 1;
}

