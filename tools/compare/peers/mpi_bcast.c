// MPI_Bcast from memory to memory, timed at every rank. Usage: mpi_bcast BYTES REPEATS
#include <mpi.h>

#include "measure.h"

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  uint64_t bytes = strtoull(argv[1], NULL, 10), repeats = strtoull(argv[2], NULL, 10);
  uint64_t count = bytes / 8, room = bytes > WARM_UP_BYTES ? bytes : WARM_UP_BYTES;
  uint64_t *object = malloc(room);
  if (object == NULL || bytes > INT32_MAX) MPI_Abort(MPI_COMM_WORLD, 3);
  fill(object, room / 8, repeats);
  MPI_Bcast(object, WARM_UP_BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);

  uint64_t *all = malloc(sizeof(uint64_t) * 3 * (uint64_t)ranks);
  for (uint64_t repeat = 0; repeat < repeats; repeat++) {
    if (rank == 0) fill(object, count, repeat);
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID), started_ns = now_ns(CLOCK_MONOTONIC);
    MPI_Bcast(object, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    uint64_t ended_ns = now_ns(CLOCK_MONOTONIC);
    uint64_t own[3] = {started_ns, ended_ns, now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns};
    // Checking takes processor time, which would delay members that still receive.
    MPI_Barrier(MPI_COMM_WORLD);
    check(object, count, repeat, rank);
    MPI_Gather(own, 3, MPI_UINT64_T, all, 3, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int from = 0; rank == 0 && from < ranks; from++)
      report(repeat, from, all[3 * from], all[3 * from + 1], all[3 * from + 2]);
  }
  MPI_Finalize();
  return 0;
}
