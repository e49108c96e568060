// What programs of collective operations share: the list of cells, the rule of repeats, contents, and lines of times:
//     cell INDEX RANK START_NS END_NS START_NS END_NS ...
#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"

#define CELLS_MAX 128
// The most bytes that are warmed up more than once.
#define SHORT_BYTES (64u << 10)

struct cell {
  int is_broadcast;
  uint64_t bytes;
};

struct rule {
  uint64_t warm_up, budget_us, repeats_min, repeats_max;
};

// CELLS is a list such as broadcast:4,allreduce:1024. Returns how many there are, 0 for a list that is wrong; room is
// that of the longest.
static inline int parse(char **argv, struct cell *cells, struct rule *rule, uint64_t *room) {
  int count = 0;
  for (char *word = strtok(argv[1], ","); word != NULL; word = strtok(NULL, ",")) {
    char *colon = strchr(word, ':');
    if (colon == NULL || count == CELLS_MAX) return 0;
    *colon = 0;
    struct cell cell;
    cell.is_broadcast = strcmp(word, "broadcast") == 0;
    cell.bytes = strtoull(colon + 1, NULL, 10);
    if ((!cell.is_broadcast && strcmp(word, "allreduce") != 0) || cell.bytes == 0 || cell.bytes % 4 != 0) return 0;
    if (cell.bytes > *room) *room = cell.bytes;
    cells[count++] = cell;
  }
  rule->warm_up = strtoull(argv[2], NULL, 10);
  rule->budget_us = strtoull(argv[3], NULL, 10);
  rule->repeats_min = strtoull(argv[4], NULL, 10);
  rule->repeats_max = strtoull(argv[5], NULL, 10);
  return count;
}

static inline uint64_t in_budget(struct rule rule, uint64_t elapsed_ns) {
  return rule.budget_us * 1000 / (elapsed_ns > 10 ? elapsed_ns : 10);
}

static inline uint64_t at_most(uint64_t count, uint64_t most) { return count < most ? count : most; }

static inline uint64_t at_least(uint64_t count, uint64_t least) { return count > least ? count : least; }

// The number of operations to warm up, if the first took this long: no longer than the repeats.
static inline uint64_t warm_up(struct rule rule, uint64_t bytes, uint64_t elapsed_ns) {
  const uint64_t most = bytes <= SHORT_BYTES ? rule.warm_up : 1;
  return at_least(at_most(in_budget(rule, elapsed_ns), most), 1);
}

static inline uint64_t repeats(struct rule rule, uint64_t elapsed_ns) {
  return at_least(at_most(in_budget(rule, elapsed_ns), rule.repeats_max), rule.repeats_min);
}

// Small whole numbers, whose sums are exact in float.
static inline float element(uint64_t index, uint32_t factor) { return (float)((uint32_t)(index % 61 + 1) * factor); }

static inline void fill_cell(struct cell cell, float *values, int rank) {
  const uint32_t factor = cell.is_broadcast ? rank == 0 : (uint32_t)rank + 1;
  for (uint64_t index = 0; index < cell.bytes / 4; index++) values[index] = element(index, factor);
}

static inline void check_cell(struct cell cell, const float *values, int rank, int ranks) {
  const uint32_t factor = cell.is_broadcast ? 1 : (uint32_t)(ranks * (ranks + 1) / 2);
  for (uint64_t index = 0; index < cell.bytes / 4; index++) {
    if (values[index] == element(index, factor)) continue;
    fprintf(stderr, "member %d has a wrong result at element %llu\n", rank, (unsigned long long)index);
    exit(1);
  }
}

// A barrier in memory that the processes of all members have mapped (tools/bench/src/collectives/barrier.rs): each has a
// word, 64 bytes from the next, that counts its arrivals. Passed after the program's own barrier, which completes what it
// has begun.
#define BARRIER_BYTES 4096

struct barrier {
  uint64_t *words;
  uint64_t arrivals;
  int rank, ranks, yields;
};

// PATH is "-" for none.
static inline struct barrier open_barrier(const char *path, int rank, int ranks) {
  struct barrier barrier = {NULL, 0, rank, ranks, ranks > sysconf(_SC_NPROCESSORS_ONLN)};
  if (strcmp(path, "-") == 0) return barrier;
  const int file = open(path, O_RDWR);
  void *memory = file < 0 ? MAP_FAILED : mmap(NULL, BARRIER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED || (uint64_t)ranks * 64 > BARRIER_BYTES) {
    perror(path);
    exit(2);
  }
  barrier.words = (uint64_t *)memory;
  return barrier;
}

// Waits until all members have called it as often. Who started the program bounds the wait.
static inline void pass_barrier(struct barrier *barrier) {
  if (barrier->words == NULL) return;
  barrier->arrivals++;
  __atomic_store_n(&barrier->words[8 * barrier->rank], barrier->arrivals, __ATOMIC_RELEASE);
  for (int other = 0; other < barrier->ranks; other++) {
    while (__atomic_load_n(&barrier->words[8 * other], __ATOMIC_ACQUIRE) < barrier->arrivals) {
      if (barrier->yields) sched_yield();
    }
  }
}

static inline void print_times(int index, int rank, const uint64_t *times, uint64_t count) {
  printf("cell %d %d", index, rank);
  for (uint64_t at = 0; at < 2 * count; at++) printf(" %llu", (unsigned long long)times[at]);
  printf("\n");
  fflush(stdout);
}

#endif
