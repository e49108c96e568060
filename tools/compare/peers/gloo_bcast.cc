// Gloo's broadcast over TCP from memory to memory, timed at every rank.
// Usage: gloo_bcast RANK RANKS ADDRESS MEETING_DIRECTORY BYTES REPEATS
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <exception>
#include <memory>
#include <vector>

#include "measure.h"

static void broadcast(const std::shared_ptr<gloo::Context> &context, uint64_t *words, uint64_t count) {
  gloo::BroadcastOptions options(context);
  options.setOutput(words, count);
  options.setRoot(0);
  gloo::broadcast(options);
}

static void barrier(const std::shared_ptr<gloo::Context> &context) {
  gloo::BarrierOptions options(context);
  gloo::barrier(options);
}

static void run(int rank, int ranks, const char *address, const char *directory, uint64_t bytes, uint64_t repeats) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(directory);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->setTimeout(std::chrono::minutes(10));
  context->connectFullMesh(store, device);

  const uint64_t count = bytes / 8, warm = WARM_UP_BYTES / 8;
  std::vector<uint64_t> object(count > warm ? count : warm);
  fill(object.data(), object.size(), repeats);
  broadcast(context, object.data(), warm);
  for (uint64_t repeat = 0; repeat < repeats; repeat++) {
    if (rank == 0) fill(object.data(), count, repeat);
    barrier(context);
    const uint64_t cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID), started_ns = now_ns(CLOCK_MONOTONIC);
    broadcast(context, object.data(), count);
    const uint64_t ended_ns = now_ns(CLOCK_MONOTONIC);
    const uint64_t spent_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    // Checking takes processor time, which would delay members that still receive.
    barrier(context);
    check(object.data(), count, repeat, rank);
    report(repeat, rank, started_ns, ended_ns, spent_ns);
  }
  // Other members may still need the connections.
  barrier(context);
}

int main(int argc, char **argv) {
  if (argc != 7) return 2;
  try {
    run(atoi(argv[1]), atoi(argv[2]), argv[3], argv[4], strtoull(argv[5], NULL, 10), strtoull(argv[6], NULL, 10));
  } catch (const std::exception &error) {
    fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
