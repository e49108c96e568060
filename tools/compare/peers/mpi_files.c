// Files from rank 0 to all other ranks by a chain: each rank passes chunks on to the next and writes them, as dbcast of
// mpifileutils does around a ring (its ranks read a shared file system; here rank 0 alone has the files).
// Usage: mpi_files SOURCE PREFIX; rank R writes into the directory PREFIX followed by R.
// Rank 0 prints "mpi_files started" when all ranks have, and "mpi_files copied" when all have closed all files.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES (1u << 20)
// Chunks that a rank holds; receives of all that are not being passed on are posted.
#define CHUNKS 4

// A directory or a file; its path begins with the source's last name.
struct entry {
  uint64_t bytes;
  uint32_t mode;
  char path[244];
};

static struct entry *entries;
static uint64_t count, room;
static size_t parent_bytes;
static int rank, ranks;

static void fail(const char *what, const char *path) {
  fprintf(stderr, "mpi_files: rank %d cannot %s %s: %s\n", rank, what, path, strerror(errno));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int list(const char *path, const struct stat *stat, int kind, struct FTW *place) {
  (void)place;
  if (kind != FTW_D && kind != FTW_F) return -1;
  if (count == room) {
    room = room * 2 + 1024;
    entries = realloc(entries, room * sizeof *entries);
    if (entries == NULL) return -1;
  }
  struct entry *entry = &entries[count++];
  memset(entry, 0, sizeof *entry);
  entry->bytes = kind == FTW_F ? (uint64_t)stat->st_size : 0;
  entry->mode = stat->st_mode;
  int length = snprintf(entry->path, sizeof entry->path, "%s", path + parent_bytes);
  return length < (int)sizeof entry->path ? 0 : -1;
}

// The list of rank 0, at all ranks.
static void share_list(const char *source) {
  if (rank == 0) {
    const char *name = strrchr(source, '/');
    parent_bytes = name == NULL ? 0 : (size_t)(name + 1 - source);
    if (nftw(source, list, 64, FTW_PHYS) != 0) fail("list", source);
  }
  MPI_Bcast(&count, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  if (rank != 0) entries = malloc(count * sizeof *entries + 1);
  if (entries == NULL || count * sizeof *entries > INT32_MAX) fail("hold the list of", source);
  MPI_Bcast(entries, (int)(count * sizeof *entries), MPI_BYTE, 0, MPI_COMM_WORLD);
}

// The chunk after this one: a part of a file, never of two.
static int next_chunk(uint64_t *index, uint64_t *offset, int *bytes) {
  *offset += (uint64_t)*bytes;
  while (*index < count && *offset >= entries[*index].bytes) *index += 1, *offset = 0;
  if (*index >= count) return 0;
  uint64_t left = entries[*index].bytes - *offset;
  *bytes = left < CHUNK_BYTES ? (int)left : (int)CHUNK_BYTES;
  return 1;
}

// Directories and empty files, which have no chunks; files are made when their first chunk comes.
static void make(const char *prefix) {
  char path[4096];
  for (uint64_t index = 0; rank != 0 && index < count; index++) {
    struct entry *entry = &entries[index];
    snprintf(path, sizeof path, "%s%d/%s", prefix, rank, entry->path);
    if (S_ISDIR(entry->mode) && mkdir(path, entry->mode & 07777) != 0) fail("make", path);
    if (S_ISREG(entry->mode) && entry->bytes == 0 && mknod(path, entry->mode, 0) != 0) fail("make", path);
  }
}

// Reads the chunk at rank 0, writes it at others. Files come one after another.
static void store(const char *top, uint64_t index, uint64_t offset, char *chunk, int bytes) {
  static int file = -1;
  char path[4096];
  struct entry *entry = &entries[index];
  if (offset == 0) {
    snprintf(path, sizeof path, "%s/%s", top, entry->path);
    file = rank == 0 ? open(path, O_RDONLY) : open(path, O_WRONLY | O_CREAT | O_EXCL, entry->mode & 07777);
    if (file < 0) fail("open", path);
  }
  for (int done = 0; done < bytes;) {
    ssize_t part = rank == 0 ? read(file, chunk + done, (size_t)(bytes - done))
                             : write(file, chunk + done, (size_t)(bytes - done));
    if (part <= 0) fail(rank == 0 ? "read" : "write", entry->path);
    done += (int)part;
  }
  if (offset + (uint64_t)bytes == entry->bytes && close(file) != 0) fail("close", entry->path);
}

static void copy(const char *top) {
  static char chunks[CHUNKS][CHUNK_BYTES];
  MPI_Request in[CHUNKS], out[CHUNKS];
  uint64_t index = 0, offset = 0, ahead_index = 0, ahead_offset = 0, number = 0, posted = 0;
  int bytes = 0, ahead_bytes = 0;
  for (int slot = 0; slot < CHUNKS; slot++) in[slot] = out[slot] = MPI_REQUEST_NULL;
  for (; next_chunk(&index, &offset, &bytes); number++) {
    int slot = (int)(number % CHUNKS);
    // Only the previous chunk may still be on its way out: receives take the places of those before it.
    MPI_Wait(&out[(number + CHUNKS - 2) % CHUNKS], MPI_STATUS_IGNORE);
    for (; rank > 0 && posted < number + CHUNKS - 1; posted++) {
      if (!next_chunk(&ahead_index, &ahead_offset, &ahead_bytes)) break;
      int free_slot = (int)(posted % CHUNKS);
      MPI_Irecv(chunks[free_slot], ahead_bytes, MPI_BYTE, rank - 1, 0, MPI_COMM_WORLD, &in[free_slot]);
    }
    if (rank == 0) store(top, index, offset, chunks[slot], bytes);
    MPI_Wait(&in[slot], MPI_STATUS_IGNORE);
    if (rank + 1 < ranks) MPI_Isend(chunks[slot], bytes, MPI_BYTE, rank + 1, 0, MPI_COMM_WORLD, &out[slot]);
    if (rank != 0) store(top, index, offset, chunks[slot], bytes);
  }
  MPI_Waitall(CHUNKS, out, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("mpi_files started\n"), fflush(stdout);
  share_list(argv[1]);
  make(argv[2]);
  // Paths in the list begin with the source's last name.
  char top[4096];
  if (rank == 0) snprintf(top, sizeof top, "%.*s", (int)parent_bytes, argv[1]);
  else snprintf(top, sizeof top, "%s%d", argv[2], rank);
  copy(top);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("mpi_files copied\n"), fflush(stdout);
  MPI_Finalize();
  return 0;
}
