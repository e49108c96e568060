// The interface of figure 1 of the paper (Behrens, Jha, Birman, Tremel: RDMC, DSN 2018), for C++17; part of rdmc.hpp, which includes
// it. License: Apache-2.0.
#ifndef RDMC_PAPER_HPP
#define RDMC_PAPER_HPP

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#ifndef RDMC_HPP
#error "include rdmc.hpp"
#endif

namespace rdmc {

// The interface of figure 1 of the paper, as it stands. What the figure leaves out: initialize() once in each process, before all
// else, and shut_down() in the end. Members are numbers of the addresses that initialize() is given.
//
// Threads: functions may be called on any thread, initialize() and shut_down() only while none of the others runs. Callbacks run on a
// thread of the group, one at a time, and may not throw. Errors: initialize() throws rdmc::error; the functions of the figure throw
// nothing but std::bad_alloc: they return false, and last_error() says why.
namespace paper {

// Where to receive a message. The application keeps the memory until the completion callback, or until the group has failed.
struct memory_region {
  char *data = nullptr;
  std::size_t size = 0;
};

// Called at receivers when a transfer starts; called with the message's length.
using incoming_message_callback = std::function<memory_region(std::size_t size)>;
// A message is complete here, sent or received: its memory can be reused. Others may still be receiving it.
using message_completion_callback = std::function<void(char *data, std::size_t size)>;
// The group has failed; the number of the member that is suspected, or -1.
using failure_callback = std::function<void(int suspect)>;

namespace detail {

struct node {
  std::unique_ptr<context> endpoint;
  std::map<int, std::string> addresses;
  int self = -1;
  milliseconds timeout{};
  std::mutex lock;
  // Shared: a call goes on with a group that another thread destroys.
  std::map<int, std::shared_ptr<group>> groups;
  static node &get() {
    static node one;
    return one;
  }
  // What last_error() returns on this thread.
  static std::string &problem() {
    static thread_local std::string text;
    return text;
  }
  // Returns false, with the text for last_error().
  static bool refuse(std::string why) {
    problem() = std::move(why);
    return false;
  }
  std::shared_ptr<group> find(int number) {
    std::lock_guard<std::mutex> held(lock);
    auto found = groups.find(number);
    if (found != groups.end()) return found->second;
    refuse("there is no group " + std::to_string(number) + "; create it, or it was destroyed");
    return nullptr;
  }
};

// The place of a number in a list; its length if it is not there.
inline std::size_t place_of(int number, const std::vector<int> &members) {
  std::size_t at = 0;
  while (at < members.size() && members[at] != number) at++;
  return at;
}

class functions : public application {
 public:
  functions(std::vector<int> members, incoming_message_callback incoming, message_completion_callback complete,
            failure_callback failed)
      : members_(std::move(members)), incoming_(std::move(incoming)), complete_(std::move(complete)),
        failed_(std::move(failed)) {}
  rdmc_answer incoming(std::uint64_t, std::uint64_t length, rdmc_buffer &buffer) noexcept override {
    memory_region region = incoming_ ? incoming_(static_cast<std::size_t>(length)) : memory_region{};
    if (region.size < length) return RDMC_REFUSE;
    buffer.data = region.data;
    buffer.length = region.size;
    return RDMC_ACCEPT;
  }
  void complete(std::uint64_t, void *data, std::uint64_t length) noexcept override {
    if (complete_) complete_(static_cast<char *>(data), static_cast<std::size_t>(length));
  }
  void failed(const error &failure) noexcept override {
    std::int64_t rank = failure.member();
    if (failed_) failed_(rank < 0 ? -1 : members_.at(static_cast<std::size_t>(rank)));
  }

 private:
  std::vector<int> members_;
  incoming_message_callback incoming_;
  message_completion_callback complete_;
  failure_callback failed_;
};

}  // namespace detail

// Starts this process's endpoint. `addresses`: of all members, by their numbers; `self`: the number of this one; `secret`: 64
// hexadecimal digits that all know; `timeout`: for destroy_group, and for sends while as many are queued as may be. Throws rdmc::error:
// `self` has no address, or the endpoint cannot be started.
inline void initialize(std::map<int, std::string> addresses, int self, const std::string &secret,
                       milliseconds timeout = std::chrono::minutes(10)) {
  detail::node &node = detail::node::get();
  auto own = addresses.find(self);
  if (own == addresses.end()) {
    rdmc::detail::fail(RDMC_INVALID, "this process is member " + std::to_string(self) + ", which has no address; add it");
  }
  node.endpoint = std::make_unique<context>(own->second, secret);
  node.addresses = std::move(addresses);
  node.self = self;
  node.timeout = timeout;
}

// Why the last of the functions below that has returned false on this thread did: what, which member, and the remedy.
inline std::string last_error() { return detail::node::problem(); }

// Creates a group with the designated members, of which `root` sends; called concurrently, with the same
// members, by all of them. Blocks until all have called it, for 30 seconds at most. False: not initialized; a member has no address; this
// process or the root is no member; a member could not be reached, or has said other things.
inline bool create_group(int group_number, std::vector<int> members, int root, incoming_message_callback incoming,
                         message_completion_callback complete, failure_callback failed = {}) {
  detail::node &node = detail::node::get();
  const std::string what = "group " + std::to_string(group_number) + ": ";
  if (!node.endpoint) return node.refuse(what + "call initialize() before it is created");
  if (members.empty()) return node.refuse(what + "it has no members; the root and this process have to be among them");
  std::vector<std::string> addresses;
  for (int member : members) {
    const std::string name = "member " + std::to_string(member);
    auto found = node.addresses.find(member);
    if (found == node.addresses.end()) return node.refuse(what + name + " has no address; give one to initialize()");
    if (detail::place_of(member, members) != addresses.size()) return node.refuse(what + name + " is listed twice");
    addresses.push_back(found->second);
  }
  const std::size_t root_rank = detail::place_of(root, members), rank = detail::place_of(node.self, members);
  if (root_rank == members.size()) {
    return node.refuse(what + "the root " + std::to_string(root) + " is not among its members");
  }
  if (rank == members.size()) {
    return node.refuse(what + "this process, member " + std::to_string(node.self) + ", is not among its members");
  }
  rdmc_group_settings settings{};
  settings.root = static_cast<std::uint32_t>(root_rank);
  auto callbacks = std::make_unique<detail::functions>(std::move(members), std::move(incoming), std::move(complete),
                                                       std::move(failed));
  try {
    auto number = static_cast<std::uint64_t>(group_number);
    auto made = std::make_shared<group>(node.endpoint->create_group(number, addresses, static_cast<std::uint32_t>(rank),
                                                                    std::move(callbacks), settings));
    std::lock_guard<std::mutex> held(node.lock);
    node.groups[group_number] = std::move(made);
    return true;
  } catch (const error &failure) {
    return node.refuse(failure.what());
  }
}

// As above; the first member is the root.
inline bool create_group(int group_number, std::vector<int> members, incoming_message_callback incoming,
                         message_completion_callback complete, failure_callback failed = {}) {
  // Without members there is none either, which is refused there.
  int root = members.empty() ? -1 : members.front();
  return create_group(group_number, std::move(members), root, std::move(incoming), std::move(complete),
                      std::move(failed));
}

// Sends a message to the group, whose memory is the library's until the completion callback. False: this member is not
// the root, or the group is not there or has failed.
inline bool send(int group_number, char *data, std::size_t size) {
  detail::node &node = detail::node::get();
  auto found = node.find(group_number);
  if (!found) return false;
  try {
    found->send(buffer_of(data, size), node.timeout);
    return true;
  } catch (const error &failure) {
    return node.refuse(failure.what());
  }
}

// Closes the group and frees it: true if every message has reached every destination. Not from a callback.
inline bool destroy_group(int group_number) {
  detail::node &node = detail::node::get();
  auto found = node.find(group_number);
  if (!found) return false;
  bool is_complete = true;
  try {
    found->close(node.timeout);
  } catch (const error &failure) {
    is_complete = node.refuse(failure.what());
  }
  std::lock_guard<std::mutex> held(node.lock);
  node.groups.erase(group_number);
  return is_complete;
}

// Ends all groups and this process's endpoint.
inline void shut_down() {
  detail::node &node = detail::node::get();
  std::map<int, std::shared_ptr<group>> groups;
  {
    std::lock_guard<std::mutex> held(node.lock);
    groups.swap(node.groups);
  }
  groups.clear();
  node.endpoint.reset();
}

}  // namespace paper

}  // namespace rdmc

#endif  // RDMC_PAPER_HPP
