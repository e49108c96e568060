// rdmc for C++17: the functions of rdmc.h with owners, exceptions and spans. License: Apache-2.0.
//
// What blocks, who owns what and which thread calls what is said in rdmc.h. Owners move and do not copy; errors are thrown
// as rdmc::error, which names the member. Times are std::chrono::milliseconds; rdmc::forever means no limit.
//
// rdmc::paper is the interface of figure 1 of the paper (Behrens, Jha, Birman, Tremel: RDMC, DSN 2018).
#ifndef RDMC_HPP
#define RDMC_HPP

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rdmc.h"

namespace rdmc {

using milliseconds = std::chrono::milliseconds;

// No limit.
inline constexpr milliseconds forever = milliseconds::max();

// A call that has failed.
class error : public std::exception {
 public:
  explicit error(const rdmc_error &from) : error_(from) {}
  const char *what() const noexcept override { return error_.text; }
  // What kind of failure it is.
  rdmc_code code() const noexcept { return static_cast<rdmc_code>(error_.code); }
  // The rank of the member that caused it; -1 if none did, or if it is not known.
  std::int64_t member() const noexcept { return error_.member; }
  // Of a group that has failed: how many messages are known to be at every member.
  std::uint64_t delivered() const noexcept { return error_.delivered; }

 private:
  rdmc_error error_;
};

namespace detail {

inline std::uint64_t count(milliseconds time) {
  if (time == forever) return UINT64_MAX;
  return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

// Calls a function of rdmc.h with an rdmc_error as its last argument, and throws that.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments) {
  rdmc_error failure;
  if (function(arguments..., &failure) != RDMC_OK) throw error(failure);
}

template <typename Handle, void (*release)(Handle *)>
struct deleter {
  void operator()(Handle *handle) const noexcept { release(handle); }
};

template <typename Handle, void (*release)(Handle *)>
using owner = std::unique_ptr<Handle, deleter<Handle, release>>;

inline std::vector<const char *> pointers(const std::vector<std::string> &texts) {
  std::vector<const char *> all;
  for (const std::string &text : texts) all.push_back(text.c_str());
  return all;
}

}  // namespace detail

// Bytes that somebody else owns.
struct bytes {
  const std::uint8_t *data = nullptr;
  std::size_t size = 0;
  const std::uint8_t *begin() const noexcept { return data; }
  const std::uint8_t *end() const noexcept { return data + size; }
};

// Memory for the library, which keeps `memory` until it no longer uses it: a container of bytes, or a shared pointer to one.
template <typename Container>
rdmc_buffer buffer_of(Container memory) {
  auto kept = std::make_unique<Container>(std::move(memory));
  rdmc_buffer buffer{};
  buffer.data = const_cast<void *>(static_cast<const void *>(kept->data()));
  buffer.length = kept->size() * sizeof(*kept->data());
  buffer.private_data = kept.release();
  buffer.release = [](void *kept) { delete static_cast<Container *>(kept); };
  return buffer;
}

// Memory that the caller keeps until the library is done with it, and calls `released` then, on any thread.
inline rdmc_buffer buffer_of(void *data, std::size_t length, std::function<void()> released = {}) {
  rdmc_buffer buffer{};
  buffer.data = data;
  buffer.length = length;
  if (released) {
    buffer.private_data = new std::function<void()>(std::move(released));
    buffer.release = [](void *function) {
      std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()> *>(function));
      (*owned)();
    };
  }
  return buffer;
}

// A message that is received; its bytes may still be arriving.
class message {
 public:
  explicit message(rdmc_message *handle) : handle_(handle) {}
  // False for what rdmc::group::receive returns when the group is closed.
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  std::uint64_t number() const noexcept { return rdmc_message_number(handle_.get()); }
  std::uint64_t size() const noexcept { return rdmc_message_length(handle_.get()); }
  // The next bytes in order, at least one; 0 at the end.
  std::size_t read(void *into, std::size_t length) {
    std::size_t count = 0;
    detail::call(rdmc_message_read, handle_.get(), into, length, &count);
    return count;
  }
  // All bytes, once they have arrived; until the message is gone.
  bytes data(milliseconds timeout) {
    const void *data = nullptr;
    detail::call(rdmc_message_data, handle_.get(), detail::count(timeout), &data);
    return {static_cast<const std::uint8_t *>(data), static_cast<std::size_t>(size())};
  }
  // The next bytes in the order of arrival, and where they are in the message; none at the end. Until the next call.
  std::pair<std::uint64_t, bytes> next_block(milliseconds timeout) {
    std::uint64_t offset = 0, length = 0;
    const void *data = nullptr;
    detail::call(rdmc_message_next_block, handle_.get(), detail::count(timeout), &offset, &data, &length);
    return {offset, {static_cast<const std::uint8_t *>(data), static_cast<std::size_t>(length)}};
  }
  // Waits until this member is done with the message; a buffer that was posted for it is released then.
  void finish(milliseconds timeout) { detail::call(rdmc_message_finish, handle_.release(), detail::count(timeout)); }

 private:
  detail::owner<rdmc_message, rdmc_message_free> handle_;
};

// The callbacks of a group, as virtual functions; the object lives until no more is called. They may not throw.
class application {
 public:
  virtual ~application() = default;
  // Where to receive a message: fills the buffer, or answers RDMC_LATER or RDMC_REFUSE.
  virtual rdmc_answer incoming(std::uint64_t message, std::uint64_t length, rdmc_buffer &buffer) noexcept = 0;
  // This member is done with a message, which is at `data` until this returns.
  virtual void complete(std::uint64_t message, void *data, std::uint64_t length) noexcept = 0;
  virtual void received(std::uint64_t) noexcept {}
  // Every member has so many messages; at the root, with `report_delivered` or while wait_delivered waits.
  virtual void delivered(std::uint64_t) noexcept {}
  virtual void failed(const error &) noexcept {}
  virtual void closed() noexcept {}
};

// One group at one member. Gone without close(): the group fails at all members.
class group {
 public:
  explicit group(rdmc_group *handle) : handle_(handle) {}
  rdmc_group *get() const noexcept { return handle_.get(); }
  // Queues a message for all members, and returns its number. The buffer is released when it is done, or if this throws.
  std::uint64_t send(rdmc_buffer buffer, milliseconds timeout) {
    std::uint64_t number = 0;
    detail::call(rdmc_send, get(), buffer, detail::count(timeout), &number);
    return number;
  }
  void wait_complete(std::uint64_t messages, milliseconds timeout) {
    detail::call(rdmc_wait_complete, get(), messages, detail::count(timeout));
  }
  // At the root: waits until every member has so many messages, counted from the first.
  void wait_delivered(std::uint64_t messages, milliseconds timeout) {
    detail::call(rdmc_wait_delivered, get(), messages, detail::count(timeout));
  }
  // How many messages every member has, as far as the root knows.
  std::uint64_t delivered() const noexcept { return rdmc_delivered(get()); }
  // The next message; false when the group is closed.
  message receive(milliseconds timeout) {
    rdmc_message *next = nullptr;
    detail::call(rdmc_receive, get(), detail::count(timeout), &next);
    return message(next);
  }
  void post_receive_buffer(rdmc_buffer buffer) { detail::call(rdmc_post_receive_buffer, get(), buffer); }
  void accept(std::uint64_t message, rdmc_buffer buffer) { detail::call(rdmc_accept, get(), message, buffer); }
  // Success: every message has reached every member.
  void close(milliseconds timeout) { detail::call(rdmc_group_close, get(), detail::count(timeout)); }
  void start_close() { detail::call(rdmc_group_start_close, get()); }
  void abort(const char *reason) { detail::call(rdmc_group_abort, get(), reason); }
  // What the group took, the same at all members: the name of its algorithm, and the length of a block.
  std::string algorithm() const {
    char text[64];
    detail::call(rdmc_group_algorithm, static_cast<const rdmc_group *>(get()), text, sizeof text);
    return text;
  }
  std::uint64_t block_bytes() const noexcept { return rdmc_group_block_bytes(get()); }

 private:
  detail::owner<rdmc_group, rdmc_group_free> handle_;
};

namespace detail {

template <typename Element>
struct type_of;
#define RDMC_TYPE_OF(element, code) \
  template <>                       \
  struct type_of<element> {         \
    static constexpr int32_t value = code; \
  };
RDMC_TYPE_OF(std::uint8_t, RDMC_TYPE_U8)
RDMC_TYPE_OF(std::uint16_t, RDMC_TYPE_U16)
RDMC_TYPE_OF(std::uint32_t, RDMC_TYPE_U32)
RDMC_TYPE_OF(std::uint64_t, RDMC_TYPE_U64)
RDMC_TYPE_OF(std::int8_t, RDMC_TYPE_I8)
RDMC_TYPE_OF(std::int16_t, RDMC_TYPE_I16)
RDMC_TYPE_OF(std::int32_t, RDMC_TYPE_I32)
RDMC_TYPE_OF(std::int64_t, RDMC_TYPE_I64)
RDMC_TYPE_OF(float, RDMC_TYPE_F32)
RDMC_TYPE_OF(double, RDMC_TYPE_F64)
#undef RDMC_TYPE_OF

}  // namespace detail

// Members that call operations together. Gone without close(): the team fails at all other members.
class team {
 public:
  explicit team(rdmc_team *handle) : handle_(handle) {}
  void barrier(milliseconds timeout) { detail::call(rdmc_team_barrier, handle_.get(), detail::count(timeout)); }
  template <typename Element>
  void broadcast(std::uint32_t root, Element *values, std::size_t count, milliseconds timeout) {
    static_assert(std::is_trivially_copyable_v<Element>, "bytes are copied");
    void *data = values;
    std::uint64_t length = count * sizeof(Element);
    detail::call(rdmc_team_broadcast, handle_.get(), root, data, length, detail::count(timeout));
  }
  template <typename Element>
  void all_reduce(Element *values, std::size_t count, rdmc_op op, milliseconds timeout) {
    void *data = values;
    detail::call(rdmc_team_all_reduce, handle_.get(), data, static_cast<std::uint64_t>(count),
                 detail::type_of<Element>::value, static_cast<std::int32_t>(op), detail::count(timeout));
  }
  template <typename Element>
  void reduce(std::uint32_t root, Element *values, std::size_t count, rdmc_op op, milliseconds timeout) {
    void *data = values;
    detail::call(rdmc_team_reduce, handle_.get(), root, data, static_cast<std::uint64_t>(count),
                 detail::type_of<Element>::value, static_cast<std::int32_t>(op), detail::count(timeout));
  }
  template <typename Element>
  void all_gather(Element *values, std::size_t count, milliseconds timeout) {
    static_assert(std::is_trivially_copyable_v<Element>, "bytes are copied");
    void *data = values;
    std::uint64_t length = count * sizeof(Element);
    detail::call(rdmc_team_all_gather, handle_.get(), data, length, detail::count(timeout));
  }
  void close(milliseconds timeout) { detail::call(rdmc_team_close, handle_.release(), detail::count(timeout)); }

 private:
  detail::owner<rdmc_team, rdmc_team_free> handle_;
};

// A member's endpoint in the network.
class context {
 public:
  // `settings.size` is set here; what is 0 or NULL means the default.
  explicit context(rdmc_context_settings settings) {
    settings.size = sizeof settings;
    rdmc_context *made = nullptr;
    detail::call(rdmc_context_start, &settings, &made);
    handle_.reset(made);
  }
  context(const std::string &listen, const std::string &secret) : context(settings_of(listen, secret)) {}
  rdmc_context *get() const noexcept { return handle_.get(); }
  // On which others connect to it, with the port that was selected.
  std::string address() const {
    char text[64];
    detail::call(rdmc_context_address, static_cast<const rdmc_context *>(get()), text, sizeof text);
    return text;
  }
  group create_group(std::uint64_t number, const std::vector<std::string> &members, std::uint32_t rank,
                     rdmc_group_settings settings = {}) {
    auto texts = fill(settings, number, members, rank);
    rdmc_group *made = nullptr;
    detail::call(rdmc_group_create, get(), &settings, &made);
    return group(made);
  }
  group create_group(std::uint64_t number, const std::vector<std::string> &members, std::uint32_t rank,
                     std::unique_ptr<application> callbacks, rdmc_group_settings settings = {}) {
    auto texts = fill(settings, number, members, rank);
    rdmc_callbacks functions = functions_of(std::move(callbacks));
    rdmc_group *made = nullptr;
    detail::call(rdmc_group_create_with_callbacks, get(), &settings, &functions, &made);
    return group(made);
  }
  team create_team(std::uint64_t number, const std::vector<std::string> &members, std::uint32_t rank,
                   rdmc_team_settings settings = {}) {
    auto texts = fill(settings, number, members, rank);
    rdmc_team *made = nullptr;
    detail::call(rdmc_team_create, get(), &settings, &made);
    return team(made);
  }
  bool progress(milliseconds wait) {
    std::int32_t ran = 0;
    detail::call(rdmc_progress, get(), detail::count(wait), &ran);
    return ran != 0;
  }
  void close(milliseconds timeout) { detail::call(rdmc_context_close, handle_.release(), detail::count(timeout)); }

 private:
  static rdmc_context_settings settings_of(const std::string &listen, const std::string &secret) {
    rdmc_context_settings settings{};
    settings.listen = listen.c_str();
    settings.secret = secret.c_str();
    return settings;
  }
  // The pointers that the settings refer to.
  template <typename Settings>
  static std::vector<const char *> fill(Settings &settings, std::uint64_t number,
                                        const std::vector<std::string> &members, std::uint32_t rank) {
    std::vector<const char *> texts = detail::pointers(members);
    settings.size = sizeof settings;
    settings.number = number;
    settings.members = texts.data();
    settings.member_count = static_cast<std::uint32_t>(texts.size());
    settings.rank = rank;
    return texts;
  }
  static rdmc_callbacks functions_of(std::unique_ptr<application> callbacks) {
    using self = application *;
    rdmc_callbacks functions{};
    functions.size = sizeof functions;
    functions.user_data = callbacks.release();
    functions.incoming = [](void *data, std::uint64_t message, std::uint64_t length, rdmc_buffer *buffer) {
      return static_cast<std::int32_t>(static_cast<self>(data)->incoming(message, length, *buffer));
    };
    functions.complete = [](void *data, std::uint64_t message, void *at, std::uint64_t length) {
      static_cast<self>(data)->complete(message, at, length);
    };
    functions.received = [](void *data, std::uint64_t message) { static_cast<self>(data)->received(message); };
    functions.delivered = [](void *data, std::uint64_t messages) { static_cast<self>(data)->delivered(messages); };
    functions.failed = [](void *data, const rdmc_error *failure) { static_cast<self>(data)->failed(error(*failure)); };
    functions.closed = [](void *data) { static_cast<self>(data)->closed(); };
    functions.destroy = [](void *data) { delete static_cast<self>(data); };
    return functions;
  }

  detail::owner<rdmc_context, rdmc_context_free> handle_;
};

// The interface of figure 1 of the paper, as it stands. What the figure leaves out: initialize() once in each process, before all
// else, and shut_down() in the end. Members are numbers of the addresses that initialize() is given.
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
  std::shared_ptr<group> find(int number) {
    std::lock_guard<std::mutex> held(lock);
    auto found = groups.find(number);
    if (found != groups.end()) return found->second;
    problem() = "there is no group " + std::to_string(number);
    return nullptr;
  }
};

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
    if (failed_) failed_(rank < 0 ? -1 : members_[static_cast<std::size_t>(rank)]);
  }

 private:
  std::vector<int> members_;
  incoming_message_callback incoming_;
  message_completion_callback complete_;
  failure_callback failed_;
};

}  // namespace detail

// Starts this process's endpoint. `addresses`: of all members, by their numbers; `self`: the number of this one; `secret`: 64
// hexadecimal digits that all know; `timeout`: for destroy_group, and for sends while as many are queued as may be.
inline void initialize(std::map<int, std::string> addresses, int self, const std::string &secret,
                       milliseconds timeout = std::chrono::minutes(10)) {
  detail::node &node = detail::node::get();
  node.endpoint = std::make_unique<context>(addresses.at(self), secret);
  node.addresses = std::move(addresses);
  node.self = self;
  node.timeout = timeout;
}

// Why the last of the functions below that has returned false on this thread did: what, which member, and the remedy.
inline std::string last_error() { return detail::node::problem(); }

// Creates a group with the designated members, of which `root` sends; called concurrently, with the same
// members, by all of them. False: a member could not be reached, or has said other things.
inline bool create_group(int group_number, std::vector<int> members, int root, incoming_message_callback incoming,
                         message_completion_callback complete, failure_callback failed = {}) {
  detail::node &node = detail::node::get();
  std::vector<std::string> addresses;
  rdmc_group_settings settings{};
  std::uint32_t rank = UINT32_MAX;
  settings.root = UINT32_MAX;
  for (std::size_t at = 0; at < members.size(); at++) {
    addresses.push_back(node.addresses.at(members[at]));
    if (members[at] == root) settings.root = static_cast<std::uint32_t>(at);
    if (members[at] == node.self) rank = static_cast<std::uint32_t>(at);
  }
  auto callbacks = std::make_unique<detail::functions>(std::move(members), std::move(incoming), std::move(complete),
                                                       std::move(failed));
  try {
    auto number = static_cast<std::uint64_t>(group_number);
    auto made = std::make_shared<group>(
        node.endpoint->create_group(number, addresses, rank, std::move(callbacks), settings));
    std::lock_guard<std::mutex> held(node.lock);
    node.groups[group_number] = std::move(made);
    return true;
  } catch (const error &failure) {
    detail::node::problem() = failure.what();
    return false;
  }
}

// As above; the first member is the root.
inline bool create_group(int group_number, std::vector<int> members, incoming_message_callback incoming,
                         message_completion_callback complete, failure_callback failed = {}) {
  int root = members.at(0);
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
    detail::node::problem() = failure.what();
    return false;
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
    detail::node::problem() = failure.what();
    is_complete = false;
  }
  std::lock_guard<std::mutex> held(node.lock);
  node.groups.erase(group_number);
  return is_complete;
}

// Ends all groups and this process's endpoint.
inline void shut_down() {
  detail::node &node = detail::node::get();
  {
    std::lock_guard<std::mutex> held(node.lock);
    node.groups.clear();
  }
  node.endpoint.reset();
}

}  // namespace paper

}  // namespace rdmc

#endif  // RDMC_HPP
