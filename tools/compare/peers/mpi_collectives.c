// MPI_Bcast and MPI_Allreduce by OSU's rules. Usage: mpi_collectives CELLS WARM_UP BUDGET_US REPEATS_MIN REPEATS_MAX BARRIER
#include <mpi.h>
#include <string.h>

#include "collectives.h"

static int rank, ranks;
static struct barrier shared;

static void start_together(void) {
  MPI_Barrier(MPI_COMM_WORLD);
  pass_barrier(&shared);
}

static void run(struct cell cell, float *values, float *sums) {
  const int count = (int)(cell.bytes / 4);
  if (cell.is_broadcast) {
    MPI_Bcast(values, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else {
    MPI_Allreduce(values, sums, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
}

// Runs the operation on contents that are compared; returns how long it took, in ns.
static uint64_t verify(struct cell cell, float *values, float *sums) {
  fill_cell(cell, values, rank);
  const uint64_t started_ns = now_ns(CLOCK_MONOTONIC);
  run(cell, values, sums);
  const uint64_t elapsed_ns = now_ns(CLOCK_MONOTONIC) - started_ns;
  check_cell(cell, cell.is_broadcast ? values : sums, rank, ranks);
  memset(values, 0, cell.bytes);
  return elapsed_ns;
}

// Rank 0's number.
static uint64_t agree(uint64_t count) {
  MPI_Bcast(&count, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  return count;
}

// All repeats of one cell at this member, as starts and ends; returns how many.
static uint64_t measure(struct cell cell, struct rule rule, float *values, float *sums, uint64_t **times) {
  uint64_t elapsed_ns = verify(cell, values, sums);
  const uint64_t first = agree(warm_up(rule, cell.bytes, elapsed_ns));
  for (uint64_t index = 0; index < first; index++) {
    const uint64_t started_ns = now_ns(CLOCK_MONOTONIC);
    start_together();
    run(cell, values, sums);
    elapsed_ns = now_ns(CLOCK_MONOTONIC) - started_ns;
  }
  const uint64_t count = agree(repeats(rule, elapsed_ns));
  *times = malloc(sizeof(uint64_t) * 2 * count);
  if (*times == NULL) MPI_Abort(MPI_COMM_WORLD, 3);
  for (uint64_t index = 0; index < count; index++) {
    start_together();
    (*times)[2 * index] = now_ns(CLOCK_MONOTONIC);
    run(cell, values, sums);
    (*times)[2 * index + 1] = now_ns(CLOCK_MONOTONIC);
  }
  verify(cell, values, sums);
  return count;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  struct cell cells[CELLS_MAX];
  struct rule rule;
  uint64_t room = 0;
  const int count = argc == 7 ? parse(argv, cells, &rule, &room) : 0;
  if (count == 0) MPI_Abort(MPI_COMM_WORLD, 2);
  shared = open_barrier(argv[6], rank, ranks);
  float *values = calloc(room, 1), *sums = calloc(room, 1);
  if (values == NULL || sums == NULL) MPI_Abort(MPI_COMM_WORLD, 3);
  uint64_t *times[CELLS_MAX], counts[CELLS_MAX];
  for (int index = 0; index < count; index++)
    counts[index] = measure(cells[index], rule, values, sums, &times[index]);
  // Printed in the end, by rank 0: it takes processor time, which others need.
  for (int index = 0; index < count; index++) {
    const int length = (int)(2 * counts[index]);
    uint64_t *all = malloc(sizeof(uint64_t) * (uint64_t)length * (uint64_t)ranks);
    if (all == NULL) MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Gather(times[index], length, MPI_UINT64_T, all, length, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int from = 0; rank == 0 && from < ranks; from++)
      print_times(index, from, all + (uint64_t)length * (uint64_t)from, counts[index]);
    free(all);
  }
  MPI_Finalize();
  return 0;
}
