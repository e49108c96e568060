// A schedule's transfers over SimGrid's network: replay PLATFORM.xml RECEIVES < plan
//
// The plan is what tools/bench/src/scale/plan.rs writes. Every member is an actor that sends its blocks in order. A
// block starts on its way when the member has it, when the block before it has left the member's port, and when the
// target still waits for fewer than RECEIVES blocks that come before it. How fast it goes is the network's matter.
//
// A port is free again when the last byte has left, yet the target has the block one latency later. So flows have no
// latency of their own (network/latency-factor), and the target waits for it instead.
//
// Prints a line "member seconds" for each member: when it had all blocks.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include <simgrid/s4u.hpp>

namespace sg4 = simgrid::s4u;

namespace {

[[noreturn]] void refuse(const char* what) {
  std::fprintf(stderr, "replay: %s\n", what);
  std::exit(2);
}

template <typename T> T read_number() {
  unsigned char bytes[sizeof(T)];
  if (std::fread(bytes, sizeof bytes, 1, stdin) != 1)
    refuse("the plan ends too early");
  T value = 0;
  for (std::size_t i = sizeof bytes; i-- > 0;)
    value = static_cast<T>(value << 8 | bytes[i]);
  return value;
}

struct Send {
  std::uint32_t target;
  std::uint32_t block;
  std::uint32_t place; // among the target's receives
};

struct Member {
  std::vector<Send> sends;
  std::vector<double> has;    // by block: since when, below 0 for not yet
  std::vector<bool> received; // by place
  std::uint32_t open = 0;     // the first place that is not received
  double complete = 0;
  std::vector<sg4::SemaphorePtr> waiting; // until this member receives their block
  sg4::SemaphorePtr arrival;
  bool awaits_block = false;
};

struct Plan {
  std::uint32_t blocks;
  std::uint64_t block_bytes, last_bytes;
  std::vector<Member> members;
};

Plan read_plan() {
  char magic[8];
  if (std::fread(magic, sizeof magic, 1, stdin) != 1 || std::memcmp(magic, "rdmcplan", 8) != 0)
    refuse("this is not a plan");
  Plan plan;
  const auto members = read_number<std::uint32_t>();
  plan.blocks = read_number<std::uint32_t>();
  plan.block_bytes = read_number<std::uint64_t>();
  plan.last_bytes = read_number<std::uint64_t>();
  plan.members.resize(members);
  for (auto& member : plan.members) {
    const auto count = read_number<std::uint32_t>();
    for (std::uint32_t i = 0; i < count; i++) {
      Send send{read_number<std::uint32_t>(), read_number<std::uint32_t>(), read_number<std::uint32_t>()};
      if (send.target >= members || send.block >= plan.blocks || send.place >= plan.blocks)
        refuse("a send is out of range");
      member.sends.push_back(send);
    }
    member.has.assign(plan.blocks, -1);
    member.received.assign(plan.blocks, false);
    member.arrival = sg4::Semaphore::create(0);
  }
  plan.members[0].has.assign(plan.blocks, 0);
  return plan;
}

class Replay {
public:
  Replay(Plan plan, std::vector<sg4::Host*> hosts, std::uint32_t receives)
      : plan_(std::move(plan)), hosts_(std::move(hosts)), receives_(receives) {}

  void start() {
    for (std::size_t i = 0; i < plan_.members.size(); i++) {
      mailboxes_.push_back(sg4::Mailbox::by_name(std::to_string(i)));
      if (!plan_.members[i].sends.empty())
        sg4::Actor::create("relay", hosts_[i], [this, i] { relay(i); });
      if (i != 0)
        sg4::Actor::create("receive", hosts_[i], [this, i] { receive(i); });
    }
  }

  const std::vector<Member>& members() const { return plan_.members; }

private:
  void relay(std::size_t rank) {
    Member& self = plan_.members[rank];
    for (const Send& send : self.sends) {
      wait_for_block(self, send.block);
      Member& target = plan_.members[send.target];
      wait_for_turn(target, send.place);
      const auto bytes = send.block + 1 == plan_.blocks ? plan_.last_bytes : plan_.block_bytes;
      mailboxes_[send.target]->put(&something_, bytes);
      deliver(target, send, latency(rank, send.target));
    }
  }

  // Sources choose when to send; here receives are only kept open for them. SimGrid could do without this actor
  // (Comm::sendto), but then each block costs it a search among all that are on their way.
  void receive(std::size_t rank) {
    std::deque<sg4::CommPtr> posted;
    for (std::uint32_t block = 0; block < plan_.blocks; block++) {
      posted.push_back(mailboxes_[rank]->get_async(&received_));
      if (posted.size() == receives_) {
        posted.front()->wait();
        posted.pop_front();
      }
    }
    for (const auto& receive : posted)
      receive->wait();
  }

  void wait_for_block(Member& self, std::uint32_t block) {
    while (self.has[block] < 0) {
      self.awaits_block = true;
      self.arrival->acquire();
    }
    if (self.has[block] > sg4::Engine::get_clock())
      sg4::this_actor::sleep_until(self.has[block]);
  }

  void wait_for_turn(Member& target, std::uint32_t place) {
    while (place >= target.open + receives_) {
      auto turn = sg4::Semaphore::create(0);
      target.waiting.push_back(turn);
      turn->acquire();
    }
  }

  void deliver(Member& target, const Send& send, double latency) {
    const double at = sg4::Engine::get_clock() + latency;
    if (target.has[send.block] >= 0 || target.received[send.place])
      refuse("a member is sent a block twice");
    target.has[send.block] = at;
    if (at > target.complete)
      target.complete = at;
    target.received[send.place] = true;
    while (target.open < plan_.blocks && target.received[target.open])
      target.open++;
    // Releasing lets others run, which may come here.
    const auto waiting = std::move(target.waiting);
    target.waiting.clear();
    const bool awaited = target.awaits_block;
    target.awaits_block = false;
    for (const auto& turn : waiting)
      turn->release();
    if (awaited)
      target.arrival->release();
  }

  double latency(std::size_t source, std::size_t target) {
    links_.clear();
    double seconds = 0;
    hosts_[source]->route_to(hosts_[target], links_, &seconds);
    return seconds;
  }

  Plan plan_;
  std::vector<sg4::Host*> hosts_;
  std::vector<sg4::Mailbox*> mailboxes_; // of each member
  char something_ = 0; // what is sent: only its size matters
  char* received_ = nullptr;
  std::uint32_t receives_;
  std::vector<sg4::Link*> links_;
};

} // namespace

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  if (argc != 3)
    refuse("usage: replay PLATFORM.xml RECEIVES < plan");
  engine.load_platform(argv[1]);
  Plan plan = read_plan();
  std::vector<sg4::Host*> hosts;
  for (std::size_t i = 0; i < plan.members.size(); i++)
    hosts.push_back(engine.host_by_name("h" + std::to_string(i)));

  Replay replay(std::move(plan), std::move(hosts), static_cast<std::uint32_t>(std::atoi(argv[2])));
  replay.start();
  engine.run();

  std::size_t rank = 0;
  for (const Member& member : replay.members()) {
    for (double since : member.has)
      if (since < 0)
        refuse("a member did not get all blocks");
    std::printf("%zu %.9f\n", rank++, member.complete);
  }
  return 0;
}
