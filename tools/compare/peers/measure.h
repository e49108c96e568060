// What all programs of peers share: contents that differ by place and by message, the clocks, and the
// lines that report the times. A line is
//     times REPEAT RANK STARTED_NS ENDED_NS CPU_NS
// by CLOCK_MONOTONIC, which all processes of a machine share, and the processor time of this process.
#ifndef MEASURE_H
#define MEASURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Opens connections and their windows before the time starts.
#define WARM_UP_BYTES (8u << 20)

static inline uint64_t now_ns(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline uint64_t word(uint64_t repeat, uint64_t index) {
  return ((repeat + 1) * 0xD6E8FEB86659FD93u) ^ (index * 0x9E3779B97F4A7C15u);
}

// Callers pass lengths in whole words.
static inline void fill(uint64_t *words, uint64_t count, uint64_t repeat) {
  for (uint64_t index = 0; index < count; index++) words[index] = word(repeat, index);
}

static inline void check(const uint64_t *words, uint64_t count, uint64_t repeat, int rank) {
  for (uint64_t index = 0; index < count; index++) {
    if (words[index] == word(repeat, index)) continue;
    fprintf(stderr, "member %d has wrong contents at byte %llu\n", rank, (unsigned long long)index * 8);
    exit(1);
  }
}

static inline void report(uint64_t repeat, int rank, uint64_t started_ns, uint64_t ended_ns, uint64_t cpu_ns) {
  printf("times %llu %d %llu %llu %llu\n", (unsigned long long)repeat, rank, (unsigned long long)started_ns,
         (unsigned long long)ended_ns, (unsigned long long)cpu_ns);
  fflush(stdout);
}

#endif
