// Plain TCP from memory to memory, timed at every member: copies to all members at once, or a chain.
// Usage: sockets copies|chain RANK MEMBERS ADDRESS BYTES REPEATS
// Prints `listening PORT` and reads the members' ports; then, wherever members wait for each other, prints `ready` and reads a line.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"

// A member of the chain reads at most this before it writes it.
#define PIECE_BYTES (64u << 10)
#define MEMBERS_MAX 64

struct copy {
  int target;
  const char *object;
  uint64_t bytes;
};

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void await_line(char *line, int size) {
  fflush(stdout);
  if (fgets(line, size, stdin) == NULL) exit(1);
}

static void await_others(void) {
  char line[8];
  printf("ready\n");
  await_line(line, sizeof line);
}

static struct sockaddr_in address_of(const char *ip, int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (inet_pton(AF_INET, ip, &address.sin_addr) != 1) die(ip);
  return address;
}

static int connect_to(const char *ip, int port) {
  struct sockaddr_in address = address_of(ip, port);
  int one = 1, target = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(target, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
  setsockopt(target, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return target;
}

static void write_all(int target, const char *bytes, uint64_t left) {
  while (left > 0) {
    ssize_t written = write(target, bytes, left);
    if (written <= 0) die("write");
    bytes += written;
    left -= (uint64_t)written;
  }
}

static void *write_copy(void *argument) {
  struct copy *copy = argument;
  write_all(copy->target, copy->object, copy->bytes);
  return NULL;
}

static void write_to_all(const int *targets, int count, const char *object, uint64_t bytes) {
  struct copy copies[MEMBERS_MAX];
  pthread_t threads[MEMBERS_MAX];
  for (int index = 0; index < count; index++) {
    copies[index] = (struct copy){targets[index], object, bytes};
    if (pthread_create(&threads[index], NULL, write_copy, &copies[index]) != 0) die("thread");
  }
  for (int index = 0; index < count; index++) pthread_join(threads[index], NULL);
}

static void pass_on(int source, const int *targets, int count, char *object, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    uint64_t left = bytes - done;
    ssize_t got = read(source, object + done, left < PIECE_BYTES ? left : PIECE_BYTES);
    if (got <= 0) die("the source ended");
    for (int index = 0; index < count; index++) write_all(targets[index], object + done, (uint64_t)got);
    done += (uint64_t)got;
  }
}

int main(int argc, char **argv) {
  if (argc != 7) return 2;
  int is_chain = strcmp(argv[1], "chain") == 0, rank = atoi(argv[2]), members = atoi(argv[3]);
  uint64_t bytes = strtoull(argv[5], NULL, 10), repeats = strtoull(argv[6], NULL, 10);
  if (members < 2 || members > MEMBERS_MAX || rank >= members) return 2;

  struct sockaddr_in own = address_of(argv[4], 0);
  socklen_t length = sizeof own;
  int listener = socket(AF_INET, SOCK_STREAM, 0), source = -1, targets[MEMBERS_MAX], count = 0;
  if (bind(listener, (struct sockaddr *)&own, sizeof own) != 0 || listen(listener, 1) != 0) die("listen");
  getsockname(listener, (struct sockaddr *)&own, &length);
  printf("listening %d\n", ntohs(own.sin_port));
  // ADDRESS PORT of every member.
  char line[MEMBERS_MAX * 24], *rest = line;
  await_line(line, sizeof line);
  for (int other = 0; other < members; other++) {
    char *ip = strsep(&rest, " "), *port = strsep(&rest, " ");
    if (port == NULL) return 2;
    int is_target = is_chain ? other == rank + 1 : rank == 0 && other > 0;
    if (is_target) targets[count++] = connect_to(ip, atoi(port));
  }
  if (rank > 0 && (source = accept(listener, NULL, NULL)) < 0) die("accept");

  char *object = malloc(bytes > WARM_UP_BYTES ? bytes : WARM_UP_BYTES);
  if (object == NULL) die("memory");
  // Touched, since page faults would take longer than a transfer.
  memset(object, 1, bytes > WARM_UP_BYTES ? bytes : WARM_UP_BYTES);
  for (uint64_t round = 0; round <= repeats; round++) {
    // The first only opens the connections' windows.
    uint64_t repeat = round - 1, length_bytes = round == 0 ? WARM_UP_BYTES : bytes;
    if (round > 0 && rank == 0) fill((uint64_t *)object, bytes / 8, repeat);
    await_others();
    uint64_t cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID), started_ns = now_ns(CLOCK_MONOTONIC);
    if (rank == 0) write_to_all(targets, count, object, length_bytes);
    else pass_on(source, targets, count, object, length_bytes);
    uint64_t ended_ns = now_ns(CLOCK_MONOTONIC);
    cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    // Checking takes processor time, which would delay members that still receive.
    await_others();
    if (round == 0) continue;
    check((uint64_t *)object, bytes / 8, repeat, rank);
    report(repeat, rank, started_ns, ended_ns, cpu_ns);
  }
  // A member of a chain may still be needed by the next.
  await_others();
  return 0;
}
