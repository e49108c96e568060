/* MPI_Bcast over SimGrid's network, by SMPI: bcast BYTES
 *
 * Prints "0 seconds": when the last member had the message. Clocks are simulated and the same everywhere. The message's
 * memory is shared by all members, since its contents do not matter. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  size_t bytes = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : 0;
  if (bytes == 0 || bytes > 0x7fffffff) {
    fprintf(stderr, "bcast: usage: bcast BYTES, below 2 GiB\n");
    return 2;
  }
  void *message = SMPI_SHARED_MALLOC(bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime(), first, last;
  MPI_Bcast(message, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
  double end = MPI_Wtime();
  MPI_Reduce(&start, &first, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
  MPI_Reduce(&end, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf("0 %.9f\n", last - first);
  SMPI_SHARED_FREE(message);
  MPI_Finalize();
  return 0;
}
