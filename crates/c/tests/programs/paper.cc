// A program written to figure 1 of the paper, and one part by the classes of rdmc.hpp. Each member is a process.
//
// Usage: paper SECRET IP MEMBERS (each member has two ports from 7100 on; ends with 0 if all members did)
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <rdmc.hpp>

using rdmc::paper::memory_region;

namespace {

constexpr int MESSAGES = 5;
constexpr std::size_t LENGTH = 1000003;
// Far beyond what anything here takes.
constexpr std::chrono::minutes PATIENCE(3);

void expect(bool what, int line) {
  if (what) return;
  std::fprintf(stderr, "paper.cc:%d: not as expected; %s\n", line, rdmc::paper::last_error().c_str());
  std::_Exit(1);
}
#define EXPECT(what) expect(what, __LINE__)

char byte_of(int message, std::size_t at) { return static_cast<char>(message * 7 + at * 13); }

// Group 1: the first member sends. Its receivers check what arrives, in order.
void replicate(int self, const std::vector<int> &members) {
  std::vector<std::vector<char>> memory(MESSAGES, std::vector<char>(LENGTH));
  int started = 0, complete = 0;
  std::mutex lock;
  std::condition_variable changed;
  auto incoming = [&](std::size_t size) {
    EXPECT(size == LENGTH && started < MESSAGES);
    return memory_region{memory[started++].data(), size};
  };
  auto completed = [&](char *data, std::size_t size) {
    std::lock_guard<std::mutex> held(lock);
    EXPECT(size == LENGTH && data == memory[complete].data());
    for (std::size_t at = 0; at < size; at++) EXPECT(data[at] == byte_of(complete, at));
    complete++;
    changed.notify_all();
  };
  EXPECT(rdmc::paper::create_group(1, members, incoming, completed));
  for (int message = 0; message < MESSAGES; message++) {
    if (self == members[0])
      for (std::size_t at = 0; at < LENGTH; at++) memory[message][at] = byte_of(message, at);
    EXPECT(rdmc::paper::send(1, memory[message].data(), LENGTH) == (self == members[0]));
  }
  {
    std::unique_lock<std::mutex> held(lock);
    EXPECT(changed.wait_for(held, PATIENCE, [&] { return complete == MESSAGES; }));
  }
  EXPECT(rdmc::paper::destroy_group(1));
  EXPECT(!rdmc::paper::destroy_group(1) && !rdmc::paper::send(1, nullptr, 0));
}

// Group 2: the last member is the root; the first one is gone suddenly, and the others suspect it.
void suspect(int self, const std::vector<int> &members) {
  std::mutex lock;
  std::condition_variable changed;
  int suspected = -2;
  auto failed = [&](int member) {
    std::lock_guard<std::mutex> held(lock);
    suspected = member;
    changed.notify_all();
  };
  auto refuse = [](std::size_t) { return memory_region{}; };
  auto nothing = [](char *, std::size_t) {};
  EXPECT(rdmc::paper::create_group(2, members, members.back(), refuse, nothing, failed));
  if (self == members[0]) std::_Exit(0);
  std::unique_lock<std::mutex> held(lock);
  EXPECT(changed.wait_for(held, PATIENCE, [&] { return suspected != -2; }));
  EXPECT(suspected == members[0]);
  held.unlock();
  EXPECT(!rdmc::paper::destroy_group(2));
}

// create_group returns false and throws nothing; what last_error() returns has this.
void refused(int group, const std::vector<int> &members, int root, const std::string &why, int line) {
  auto refuse = [](std::size_t) { return memory_region{}; };
  auto nothing = [](char *, std::size_t) {};
  expect(!rdmc::paper::create_group(group, members, root, refuse, nothing), line);
  expect(rdmc::paper::last_error().find(why) != std::string::npos, line);
}

// Before initialize().
void misuse_early(const std::map<int, std::string> &addresses, const std::string &secret) {
  refused(1, {100, 101}, 100, "initialize()", __LINE__);
  EXPECT(!rdmc::paper::send(1, nullptr, 0) && !rdmc::paper::destroy_group(1));
  rdmc::paper::shut_down();
  try {
    rdmc::paper::initialize(addresses, 7, secret);
    EXPECT(false);
  } catch (const rdmc::error &failure) {
    EXPECT(failure.code() == RDMC_INVALID && std::string(failure.what()).find("member 7") != std::string::npos);
  }
  refused(1, {100, 101}, 100, "initialize()", __LINE__);
}

void misuse(int self, const std::vector<int> &members) {
  auto nothing = [](char *, std::size_t) {};
  EXPECT(!rdmc::paper::create_group(1, {}, {}, nothing));
  EXPECT(rdmc::paper::last_error().find("no members") != std::string::npos);
  refused(1, {}, 100, "no members", __LINE__);
  refused(1, {self, 99}, self, "member 99 has no address", __LINE__);
  refused(1, members, 77, "root 77 is not among", __LINE__);
  refused(1, members, -1, "root -1 is not among", __LINE__);
  int other = self == members[0] ? members[1] : members[0];
  refused(1, {other}, other, "member " + std::to_string(self), __LINE__);
  refused(1, {self, self}, self, "is listed twice", __LINE__);
}

// The same by classes, with a text, and a team.
void classes(const std::string &secret, const std::vector<std::string> &addresses, std::uint32_t rank) {
  rdmc::milliseconds minute = std::chrono::minutes(1);
  rdmc::context context(addresses[rank], secret);
  rdmc::group group = context.create_group(3, addresses, rank);
  if (rank == 0) {
    group.send(rdmc::buffer_of(std::string("the owner travels with the buffer")), minute);
    group.close(minute);
  } else {
    int count = 0;
    while (rdmc::message message = group.receive(minute)) {
      rdmc::bytes bytes = message.data(minute);
      EXPECT(std::string(bytes.begin(), bytes.end()) == "the owner travels with the buffer");
      count++;
    }
    EXPECT(count == 1);
    try {
      group.send(rdmc::buffer_of(std::vector<int>(3)), minute);
      EXPECT(false);
    } catch (const rdmc::error &error) {
      EXPECT(error.code() == RDMC_STATE || error.code() == RDMC_CLOSED);
    }
  }
  rdmc::team team = context.create_team(4, addresses, rank);
  std::vector<float> values(1000, static_cast<float>(rank));
  team.all_reduce(values.data(), values.size(), RDMC_OP_MAX, minute);
  EXPECT(values[999] == static_cast<float>(addresses.size() - 1));
  team.close(minute);
  context.close(minute);
}

int member(const std::string &secret, const std::string &ip, std::size_t count, int rank) {
  // Ports of their own for each part: members of the second come while others may still end the first.
  std::vector<std::string> addresses;
  // Numbers of members are names, which need not be ranks.
  std::map<int, std::string> numbers;
  std::vector<int> members;
  for (std::size_t at = 0; at < count; at++) {
    addresses.push_back(ip + ":" + std::to_string(7100 + 2 * at));
    numbers[static_cast<int>(100 + at)] = ip + ":" + std::to_string(7101 + 2 * at);
    members.push_back(static_cast<int>(100 + at));
  }
  classes(secret, addresses, static_cast<std::uint32_t>(rank));
  misuse_early(numbers, secret);
  rdmc::paper::initialize(numbers, 100 + rank, secret, std::chrono::minutes(1));
  misuse(100 + rank, members);
  replicate(100 + rank, members);
  suspect(100 + rank, members);
  rdmc::paper::shut_down();
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  const std::size_t members = std::stoul(argv[3]);
  std::vector<pid_t> children;
  for (std::size_t rank = 0; rank < members; rank++) {
    pid_t child = fork();
    if (child == 0) {
      try {
        std::_Exit(member(argv[1], argv[2], members, static_cast<int>(rank)));
      } catch (const std::exception &error) {
        std::fprintf(stderr, "member %zu: %s\n", rank, error.what());
        std::_Exit(1);
      }
    }
    children.push_back(child);
  }
  int failed = 0;
  for (pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    failed += status != 0;
  }
  return failed;
}
