// Gloo's broadcast and allreduce over TCP by OSU's rules.
// Usage: gloo_collectives CELLS WARM_UP BUDGET_US REPEATS_MIN REPEATS_MAX BARRIER RANK RANKS ADDRESS MEETING_DIRECTORY ALGORITHM
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <vector>

#include "collectives.h"

struct Member {
  std::shared_ptr<gloo::Context> context;
  gloo::AllreduceOptions::Algorithm algorithm;
  std::vector<float> values, sums;
  struct barrier shared;

  void run(struct cell cell) {
    if (cell.is_broadcast) {
      gloo::BroadcastOptions options(context);
      options.setOutput(values.data(), cell.bytes / 4);
      options.setRoot(0);
      gloo::broadcast(options);
      return;
    }
    gloo::AllreduceOptions options(context);
    options.setInput(values.data(), cell.bytes / 4);
    options.setOutput(sums.data(), cell.bytes / 4);
    options.setAlgorithm(algorithm);
    options.setReduceFunction(static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

  void barrier() {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
    pass_barrier(&shared);
  }

  // Runs the operation on contents that are compared; returns how long it took, in ns.
  uint64_t verify(struct cell cell) {
    fill_cell(cell, values.data(), context->rank);
    const uint64_t started_ns = now_ns(CLOCK_MONOTONIC);
    run(cell);
    const uint64_t elapsed_ns = now_ns(CLOCK_MONOTONIC) - started_ns;
    check_cell(cell, cell.is_broadcast ? values.data() : sums.data(), context->rank, context->size);
    std::fill_n(values.begin(), cell.bytes / 4, 0.0f);
    return elapsed_ns;
  }

  // Rank 0's number.
  uint64_t agree(uint64_t count) {
    gloo::BroadcastOptions options(context);
    options.setOutput(&count, 1);
    options.setRoot(0);
    gloo::broadcast(options);
    return count;
  }

  // All repeats of one cell at this member, as starts and ends.
  std::vector<uint64_t> measure(struct cell cell, struct rule rule) {
    uint64_t elapsed_ns = verify(cell);
    const uint64_t first = agree(warm_up(rule, cell.bytes, elapsed_ns));
    for (uint64_t index = 0; index < first; index++) {
      const uint64_t started_ns = now_ns(CLOCK_MONOTONIC);
      barrier();
      run(cell);
      elapsed_ns = now_ns(CLOCK_MONOTONIC) - started_ns;
    }
    std::vector<uint64_t> times(2 * agree(repeats(rule, elapsed_ns)));
    for (size_t index = 0; index < times.size(); index += 2) {
      barrier();
      times[index] = now_ns(CLOCK_MONOTONIC);
      run(cell);
      times[index + 1] = now_ns(CLOCK_MONOTONIC);
    }
    verify(cell);
    return times;
  }
};

static int run(char **argv) {
  struct cell cells[CELLS_MAX];
  struct rule rule;
  uint64_t room = 0;
  const int count = parse(argv, cells, &rule, &room), rank = atoi(argv[7]), ranks = atoi(argv[8]);
  if (count == 0) return 2;
  gloo::transport::tcp::attr attributes;
  attributes.hostname = argv[9];
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(argv[10]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->setTimeout(std::chrono::minutes(2));
  context->connectFullMesh(store, device);

  using Algorithm = gloo::AllreduceOptions::Algorithm;
  const auto algorithm = strcmp(argv[11], "bcube") == 0 ? Algorithm::BCUBE : Algorithm::UNSPECIFIED;
  Member member{context, algorithm, std::vector<float>(room / 4), std::vector<float>(room / 4),
                open_barrier(argv[6], rank, ranks)};
  std::vector<std::vector<uint64_t>> times;
  for (int index = 0; index < count; index++) times.push_back(member.measure(cells[index], rule));
  // Printed in the end: it takes processor time, which others need.
  member.barrier();
  for (int index = 0; index < count; index++) print_times(index, rank, times[index].data(), times[index].size() / 2);
  // Other members may still need the connections.
  member.barrier();
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 12) return 2;
  try {
    return run(argv);
  } catch (const std::exception &error) {
    fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
