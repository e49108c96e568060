// What rdmc.hpp has, by threads of one process that are its members. Prints `ok` for each part.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <rdmc.hpp>
#include <string_view>
#include <thread>

namespace {

constexpr std::size_t MEMBERS = 3;
// Far beyond what anything here takes.
constexpr std::chrono::minutes PATIENCE(3);

void expect(bool what, int line) {
  if (what) return;
  std::fprintf(stderr, "classes.cc:%d: not as expected\n", line);
  std::_Exit(1);
}
#define EXPECT(what) expect(what, __LINE__)

// Runs something that has to throw, and returns what it throws.
template <typename Body>
rdmc::error error_of(Body body, int line) {
  try {
    body();
  } catch (const rdmc::error &failure) {
    return failure;
  }
  expect(false, line);
  std::abort();
}
#define ERROR_OF(body) error_of([&] { body; }, __LINE__)

std::vector<rdmc::context> contexts;
std::vector<std::string> addresses;

void start() {
  EXPECT(rdmc::version() == std::string(RDMC_EXPECTED_VERSION) && !rdmc::has("nothing"));
  const std::string secret = rdmc::random_secret();
  EXPECT(secret.size() == 64 && secret != rdmc::random_secret());
  for (std::size_t rank = 0; rank < MEMBERS; rank++) {
    contexts.emplace_back("127.0.0.1:0", secret);
    addresses.push_back(contexts.back().address());
  }
}

// Runs a member on each rank at the same time.
template <typename Member>
void run(Member member) {
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < MEMBERS; rank++) {
    threads.emplace_back([&member, rank] {
      try {
        member(rank);
      } catch (const rdmc::error &failure) {
        std::fprintf(stderr, "member %u: %s\n", static_cast<unsigned>(rank), failure.what());
        std::_Exit(1);
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
}

// Elements that somebody else owns, as std::span of C++20.
struct view {
  int *first;
  std::size_t count;
  int *data() const { return first; }
  std::size_t size() const { return count; }
};

template <typename Memory>
void buffer_has(Memory memory, const void *data, std::uint64_t length, int line) {
  rdmc_buffer buffer = rdmc::buffer_of(std::move(memory));
  expect(buffer.length == length && (data == nullptr || buffer.data == data), line);
  buffer.release(buffer.private_data);
}

// A buffer keeps its owner until it is released, and has the bytes of the elements.
void lend() {
  auto shared = std::make_shared<std::vector<char>>(10);
  rdmc_buffer kept = rdmc::buffer_of(shared);
  EXPECT(kept.data == shared->data() && kept.length == 10 && shared.use_count() == 2);
  kept.release(kept.private_data);
  EXPECT(shared.use_count() == 1);
  auto readable = std::make_shared<const std::string>("text");
  buffer_has(readable, readable->data(), 4, __LINE__);
  auto unique = std::make_unique<std::vector<double>>(3);
  const void *data = unique->data();
  buffer_has(std::move(unique), data, 24, __LINE__);
  buffer_has(std::shared_ptr<std::string>(), nullptr, 0, __LINE__);
  buffer_has(std::vector<std::uint16_t>(5), nullptr, 10, __LINE__);
  buffer_has(std::string("longer than what a string keeps in itself"), nullptr, 41, __LINE__);
  buffer_has(std::array<int, 4>{1, 2, 3, 4}, nullptr, 16, __LINE__);
  std::vector<int> numbers{1, 2, 3};
  buffer_has(view{numbers.data(), 2}, numbers.data(), 8, __LINE__);
  buffer_has(std::string_view("text"), nullptr, 4, __LINE__);
  int released = 0;
  rdmc_buffer own = rdmc::buffer_of(numbers.data(), 12, [&] { released++; });
  own.release(own.private_data);
  EXPECT(released == 1);
  rdmc_buffer zeros = rdmc::allocate(1000);
  EXPECT(zeros.length == 1000 && static_cast<char *>(zeros.data)[999] == 0);
  zeros.release(zeros.private_data);
  std::puts("ok lend");
}

class listener : public rdmc::application {
 public:
  listener(std::atomic<std::uint64_t> &blocks, std::atomic<int> &complete) : blocks_(blocks), complete_(complete) {}
  rdmc_answer incoming(std::uint64_t, std::uint64_t length, rdmc_buffer &buffer) noexcept override {
    buffer = rdmc::allocate(length);
    return RDMC_ACCEPT;
  }
  void block(std::uint64_t, std::uint64_t, std::uint64_t length) noexcept override { blocks_ += length; }
  void complete(std::uint64_t, void *, std::uint64_t) noexcept override { complete_++; }

 private:
  std::atomic<std::uint64_t> &blocks_;
  std::atomic<int> &complete_;
};

// A group with callbacks sends parts of a region; then one that fails has the reason at all members.
void replicate(std::uint32_t rank) {
  constexpr std::uint64_t LENGTH = 1000000;
  rdmc::context &context = contexts[rank];
  std::atomic<std::uint64_t> blocks{0};
  std::atomic<int> complete{0};
  rdmc_group_settings settings{};
  settings.report_blocks = 1;
  rdmc::group group =
      context.create_group(1, addresses, rank, std::make_unique<listener>(blocks, complete), settings);
  EXPECT(!group.failure() && group.block_bytes() > 0 && !group.algorithm().empty());
  if (rank == 0) {
    rdmc::region region = context.create_region(rdmc::allocate(2 * LENGTH));
    group.send(region.buffer(0, LENGTH), PATIENCE);
    group.send(region.buffer(LENGTH, LENGTH), PATIENCE);
    EXPECT(ERROR_OF(region.buffer(LENGTH, LENGTH + 1)).code() == RDMC_INVALID);
  }
  group.close(PATIENCE);
  EXPECT(complete == 2 && (rank == 0 || blocks == 2 * LENGTH));
  rdmc_counters counters = context.counters();
  EXPECT(rank == 0 ? counters.bytes_sent >= 2 * LENGTH : counters.bytes_received == 2 * LENGTH);

  rdmc::group failing = context.create_group(2, addresses, rank);
  static std::atomic<bool> is_refused{false};
  if (rank == 0) is_refused = ERROR_OF(failing.receive(PATIENCE)).code() == RDMC_STATE;
  while (rank == 1 && !is_refused) std::this_thread::yield();
  if (rank == 1) failing.abort("on purpose");
  if (rank != 0) ERROR_OF(failing.receive(PATIENCE));
  if (rank == 0) {
    EXPECT(is_refused);
    ERROR_OF(failing.wait_delivered(1, PATIENCE));
  }
  std::optional<rdmc::error> failure = failing.failure();
  EXPECT(failure && failure->code() == RDMC_APPLICATION && failure->member() == 1);
  EXPECT(std::string(failure->what()).find("on purpose") != std::string::npos);
  EXPECT(ERROR_OF(context.create_group(3, addresses, rank, nullptr)).code() == RDMC_INVALID);
  EXPECT(ERROR_OF(context.fd()).code() == RDMC_STATE);
}

template <typename Element>
void sums(rdmc::team &team, Element one, Element all) {
  std::array<Element, 5> values;
  values.fill(one);
  team.all_reduce(values.data(), values.size(), RDMC_OP_SUM, PATIENCE);
  for (Element value : values) EXPECT(value == all);
}

void agree(std::uint32_t rank) {
  rdmc::team team = contexts[rank].create_team(4, addresses, rank);
  sums<unsigned long long>(team, 1ULL << 40, 3ULL << 40);
  sums<unsigned long>(team, 2, 6);
  sums<long long>(team, -1, -3);
  sums<long>(team, -2, -6);
  sums<int>(team, -1, -3);
  sums<unsigned short>(team, 7, 21);
  sums<signed char>(team, -1, -3);
  sums<std::uint8_t>(team, 5, 15);
  sums<float>(team, 0.5F, 1.5F);
  sums<double>(team, 0.25, 0.75);
  rdmc::f16 half{0x3c00};  // 1
  team.all_reduce(&half, 1, RDMC_OP_SUM, PATIENCE);
  rdmc::bf16 brain{0x3f80};  // 1
  team.all_reduce(&brain, 1, RDMC_OP_SUM, PATIENCE);
  EXPECT(half.bits == 0x4200 && brain.bits == 0x4040);
  half.bits = 0x3c00;
  team.reduce(2, &half.bits, 1, RDMC_TYPE_F16, RDMC_OP_SUM, PATIENCE);
  EXPECT(half.bits == (rank == 2 ? 0x4200 : 0x3c00));
  std::uint32_t root = rank;
  team.broadcast(1, &root, 1, PATIENCE);
  EXPECT(root == 1);
  std::array<std::uint32_t, MEMBERS> ranks{};
  ranks[rank] = rank + 10;
  team.all_gather(ranks.data(), ranks.size(), PATIENCE);
  EXPECT(ranks[0] == 10 && ranks[2] == 12);
  team.gather(2, rank == 2 ? ranks.data() : &ranks[rank], rank == 2 ? ranks.size() : 1, PATIENCE);
  EXPECT(ranks[0] == 10 && ranks[1] == 11);
  team.scatter(0, ranks.data(), rank == 0 ? ranks.size() : 1, PATIENCE);
  EXPECT(ranks[0] == rank + 10);
  team.reduce_scatter(ranks.data(), ranks.size(), RDMC_OP_MAX, PATIENCE);
  EXPECT(ranks[rank] == (rank == 1 ? 11U : 12U));
  std::optional<rdmc::team> pair = contexts[rank].split(team, rank == 1 ? -1 : 0, 0, PATIENCE);
  EXPECT(pair.has_value() == (rank != 1));
  if (pair) pair->close(PATIENCE);
  // One aborts while the others wait in an operation, or before they call it.
  static std::atomic<std::size_t> ready{0};
  for (ready++; rank == 2 && ready < MEMBERS;) std::this_thread::yield();
  EXPECT(team.counters().operations > 10);
  if (rank == 2) team.abort("on purpose");
  rdmc::error failure = ERROR_OF(team.barrier(PATIENCE));
  EXPECT(failure.member() == 2 && std::string(failure.what()).find("on purpose") != std::string::npos);
}

}  // namespace

int main(int argc, char **argv) {
  start();
  lend();
  run(replicate);
  std::puts("ok replicate");
  run(agree);
  std::puts("ok agree");
  // The stand-in for CUDA's driver.
  if (argc > 1) {
    EXPECT(ERROR_OF(rdmc::device(0, "/nowhere/libcuda.so.1")).code() == RDMC_UNSUPPORTED);
    run([&](std::uint32_t rank) {
      rdmc::team team = contexts[rank].create_team(5, addresses, rank);
      rdmc::device device(0, argv[1], 4096);
      EXPECT(ERROR_OF(team.broadcast_device(MEMBERS, device, 16, 16, 0, PATIENCE)).code() == RDMC_INVALID);
      device.settle(PATIENCE);
      team.all_reduce_device(device, 0, 0, RDMC_TYPE_F32, RDMC_OP_SUM, 0, PATIENCE);
      team.close(PATIENCE);
    });
    std::puts("ok devices");
  }
  for (rdmc::context &context : contexts) context.close(PATIENCE);
  return 0;
}
