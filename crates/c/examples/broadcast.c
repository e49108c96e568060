// Sends a file from rank 0 to all other ranks of a launcher: mpirun, srun, or any that sets the rank in the environment. Each rank
// writes it to OUTPUT.RANK, which is complete only if the exit code is 0. Build: cc broadcast.c $(pkg-config --cflags --libs rdmc)
//
//   export RDMC_SECRET=$(rdmc secret)
//   mpirun -n 3 -x RDMC_SECRET ./broadcast FILE OUTPUT 10.0.0.1:7000 10.0.0.2:7000 10.0.0.3:7000
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <rdmc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const uint64_t TIMEOUT_MS = 10 * 60 * 1000;

// The rank that a launcher has set in one of these variables; -1 if none is set.
static long rank_of_environment(void) {
  static const char *const NAMES[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"};
  for (size_t at = 0; at < sizeof NAMES / sizeof *NAMES; at++) {
    const char *value = getenv(NAMES[at]);
    if (value != NULL) return strtol(value, NULL, 10);
  }
  return -1;
}

// Converts a system error to an error of rdmc, so that both are reported the same way.
static int32_t system_error(const char *what, rdmc_error *error) {
  snprintf(error->text, sizeof error->text, "%s: %s", what, strerror(errno != 0 ? errno : EIO));
  return RDMC_SYSTEM;
}

// Sends a file as one message and waits until it has reached every member.
static int32_t send_file(const rdmc_group *group, const char *path, rdmc_error *error) {
  struct stat status;
  FILE *file = fopen(path, "rb");
  if (file == NULL) return system_error(path, error);
  rdmc_buffer buffer;
  int32_t code = RDMC_OK;
  if (fstat(fileno(file), &status) != 0) code = system_error(path, error);
  if (code == RDMC_OK) code = rdmc_allocate((uint64_t)status.st_size, &buffer, error);
  if (code == RDMC_OK && fread(buffer.data, 1, buffer.length, file) != buffer.length) {
    code = system_error(path, error);
    buffer.release(buffer.private_data);
  }
  // The library releases the buffer from here on.
  if (code == RDMC_OK) code = rdmc_send(group, buffer, TIMEOUT_MS, NULL, error);
  if (code == RDMC_OK) code = rdmc_group_close(group, TIMEOUT_MS, error);
  fclose(file);
  return code;
}

// Writes a message to a file while its bytes arrive.
static int32_t write_message(rdmc_message *message, const char *path, rdmc_error *error) {
  static char piece[1 << 20];
  FILE *file = fopen(path, "wb");
  if (file == NULL) return system_error(path, error);
  int32_t code = RDMC_OK;
  for (size_t count = 1; code == RDMC_OK && count > 0;) {
    code = rdmc_message_read(message, piece, sizeof piece, &count, error);
    if (code == RDMC_OK && fwrite(piece, 1, count, file) != count) code = system_error(path, error);
  }
  if (fclose(file) != 0 && code == RDMC_OK) code = system_error(path, error);
  return code;
}

// Receives until the root closes the group; on success every member has all messages.
static int32_t receive_all(const rdmc_group *group, const char *path, rdmc_error *error) {
  for (;;) {
    rdmc_message *message;
    int32_t code = rdmc_receive(group, TIMEOUT_MS, &message, error);
    if (code != RDMC_OK || message == NULL) return code;
    code = write_message(message, path, error);
    rdmc_message_free(message);
    if (code != RDMC_OK) return code;
  }
}

int main(int argc, char **argv) {
  const long rank = rank_of_environment();
  if (argc < 4) return fprintf(stderr, "usage: broadcast FILE OUTPUT ADDRESS...\n"), 2;
  if (rank < 0 || rank >= argc - 3) {
    return fprintf(stderr, "broadcast: no rank in the environment, or no address for it: start this with mpirun or srun\n"), 2;
  }
  const char *const *members = (const char *const *)argv + 3;
  rdmc_context_settings here = {.size = sizeof here, .listen = members[rank], .secret = getenv("RDMC_SECRET")};
  rdmc_group_settings all = {.size = sizeof all, .number = 1, .members = members};
  all.member_count = (uint32_t)(argc - 3);
  all.rank = (uint32_t)rank;
  char path[4096];
  snprintf(path, sizeof path, "%s.%ld", argv[2], rank);
  rdmc_context *context = NULL;
  rdmc_group *group = NULL;
  rdmc_error error;
  int32_t code = rdmc_context_start(&here, &context, &error);
  if (code == RDMC_OK) code = rdmc_group_create(context, &all, &group, &error);
  if (code == RDMC_OK) code = rank == 0 ? send_file(group, argv[1], &error) : receive_all(group, path, &error);
  rdmc_group_free(group);
  if (code == RDMC_OK) {
    code = rdmc_context_close(context, TIMEOUT_MS, &error);
  } else {
    rdmc_context_free(context);
  }
  if (code != RDMC_OK) fprintf(stderr, "broadcast: %s\n", error.text);
  return code == RDMC_OK ? 0 : 1;
}
