// rdmc for C++17: the functions of rdmc.h with RAII handles, exceptions and spans. License: Apache-2.0.
//
// rdmc.h documents blocking, ownership and threads, for the function of the same name. Handles can be moved but not copied; a handle
// that was moved from or closed may only be assigned to or destroyed. Timeouts are std::chrono::milliseconds; rdmc::forever means no
// limit.
//
// Errors are thrown as rdmc::error, which names the member. The only other exception is std::bad_alloc, if there is no memory for an
// object of this header. noexcept functions and destructors do not throw. Functions of the application that this library calls
// (rdmc::application, and functions that release a buffer) must not throw; if one does, the process is terminated.
//
// rdmc::paper is the interface of figure 1 of the paper (Behrens, Jha, Birman, Tremel: RDMC, DSN 2018), in rdmc_paper.hpp.
#ifndef RDMC_HPP
#define RDMC_HPP

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rdmc.h"

namespace rdmc {

using milliseconds = std::chrono::milliseconds;

// No limit.
inline constexpr milliseconds forever = milliseconds::max();

// The error of a failed call.
class error : public std::exception {
 public:
  explicit error(const rdmc_error &from) : error_(from) {}
  const char *what() const noexcept override { return error_.text; }
  // The kind of failure.
  rdmc_code code() const noexcept { return static_cast<rdmc_code>(error_.code); }
  // The rank of the member that caused the error; -1 if none did, or if it is unknown.
  std::int64_t member() const noexcept { return error_.member; }
  // If a group has failed: the number of messages, counted from the first, that every member is known to have.
  std::uint64_t delivered() const noexcept { return error_.delivered; }

 private:
  rdmc_error error_;
};

namespace detail {

inline std::uint64_t count(milliseconds time) {
  if (time == forever) return UINT64_MAX;
  return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

// Calls a function of rdmc.h with an rdmc_error as its last argument, and throws the error if the call fails.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments) {
  rdmc_error failure;
  if (function(arguments..., &failure) != RDMC_OK) throw error(failure);
}

// Throws an error of this header.
[[noreturn]] inline void fail(rdmc_code code, const std::string &text) {
  rdmc_error failure{};
  failure.code = code;
  failure.member = -1;
  std::strncpy(failure.text, text.c_str(), sizeof failure.text - 1);
  throw error(failure);
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

// Whether a type's elements are contiguous: std::vector, std::string, std::array, std::span and similar types.
template <typename Type, typename = void>
struct is_contiguous : std::false_type {};
template <typename Type>
struct is_contiguous<Type, std::void_t<decltype(*std::declval<Type &>().data()), decltype(std::declval<Type &>().size())>>
    : std::true_type {};

}  // namespace detail

// Returns the version of the library, for example 0.1.0.
inline const char *version() noexcept { return rdmc_version(); }

// Whether the library was built with the feature: "fabric".
inline bool has(const char *feature) noexcept { return rdmc_has(feature) != 0; }

// Returns a new secret: 64 hexadecimal digits.
inline std::string random_secret() {
  char text[65];
  detail::call(rdmc_secret_random, text, sizeof text);
  return text;
}

// Bytes that another object owns.
struct bytes {
  const std::uint8_t *data = nullptr;
  std::size_t size = 0;
  const std::uint8_t *begin() const noexcept { return data; }
  const std::uint8_t *end() const noexcept { return data + size; }
};

// Makes a buffer of `memory`, which the library keeps until it no longer uses it: a container with contiguous elements, or a pointer
// that owns one (std::shared_ptr, std::unique_ptr; an empty pointer has no bytes). A std::span or similar view owns nothing: its memory
// must remain valid until then. Memory to receive into is written even if the elements are const.
template <typename Memory>
rdmc_buffer buffer_of(Memory memory) {
  rdmc_buffer buffer{};
  const auto fill = [&buffer](auto &elements) {
    static_assert(std::is_trivially_copyable_v<std::remove_reference_t<decltype(*elements.data())>>, "bytes are copied");
    buffer.data = const_cast<void *>(static_cast<const void *>(elements.data()));
    buffer.length = elements.size() * sizeof(*elements.data());
  };
  auto kept = std::make_unique<Memory>(std::move(memory));
  if constexpr (detail::is_contiguous<Memory>::value) {
    fill(*kept);
  } else if (*kept) {
    fill(**kept);
  }
  buffer.private_data = kept.release();
  buffer.release = [](void *owner) { delete static_cast<Memory *>(owner); };
  return buffer;
}

// Makes a buffer of memory that the caller keeps valid until the library no longer uses it; then the library calls `released`, on any
// thread.
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

// Allocates zeroed memory, in huge pages where the system has them. Pass the buffer to a function that takes it, or call its `release`.
inline rdmc_buffer allocate(std::uint64_t length) {
  rdmc_buffer buffer{};
  detail::call(rdmc_allocate, length, &buffer);
  return buffer;
}

// Memory that remains registered with the network of a context. Its buffers may outlive the region.
class region {
 public:
  explicit region(rdmc_region *handle) : handle_(handle) {}
  rdmc_region *get() const noexcept { return handle_.get(); }
  // Makes a buffer of a part of the region, to send or to receive into.
  rdmc_buffer buffer(std::uint64_t offset, std::uint64_t length) const {
    rdmc_buffer part{};
    detail::call(rdmc_region_buffer, get(), offset, length, &part);
    return part;
  }

 private:
  detail::owner<rdmc_region, rdmc_region_free> handle_;
};

// A received message; its bytes may still be arriving.
class message {
 public:
  explicit message(rdmc_message *handle) : handle_(handle) {}
  // False for the result of rdmc::group::receive once the group is closed.
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  std::uint64_t number() const noexcept { return rdmc_message_number(handle_.get()); }
  std::uint64_t size() const noexcept { return rdmc_message_length(handle_.get()); }
  // Copies the next bytes in order, and returns how many: at least one; 0 at the end of the message.
  std::size_t read(void *into, std::size_t length) {
    std::size_t count = 0;
    detail::call(rdmc_message_read, handle_.get(), into, length, &count);
    return count;
  }
  // Waits for all bytes and returns them; valid until the message is destroyed.
  bytes data(milliseconds timeout) {
    const void *data = nullptr;
    detail::call(rdmc_message_data, handle_.get(), detail::count(timeout), &data);
    return {static_cast<const std::uint8_t *>(data), static_cast<std::size_t>(size())};
  }
  // Returns the next bytes in the order of arrival, with their offset in the message; empty at the end. Valid until the next call.
  std::pair<std::uint64_t, bytes> next_block(milliseconds timeout) {
    std::uint64_t offset = 0, length = 0;
    const void *data = nullptr;
    detail::call(rdmc_message_next_block, handle_.get(), detail::count(timeout), &offset, &data, &length);
    return {offset, {static_cast<const std::uint8_t *>(data), static_cast<std::size_t>(length)}};
  }
  // Waits until this member is done with the message; a buffer that was posted for the message is released then.
  void finish(milliseconds timeout) { detail::call(rdmc_message_finish, handle_.release(), detail::count(timeout)); }

 private:
  detail::owner<rdmc_message, rdmc_message_free> handle_;
};

// The callbacks of a group, as virtual functions, which must not throw. The object is destroyed after the last callback.
class application {
 public:
  virtual ~application() = default;
  // Chooses where to receive a message: fills in the buffer, or returns RDMC_LATER or RDMC_REFUSE.
  virtual rdmc_answer incoming(std::uint64_t message, std::uint64_t length, rdmc_buffer &buffer) noexcept = 0;
  // This member is done with a message, which is at `data` until the callback returns.
  virtual void complete(std::uint64_t message, void *data, std::uint64_t length) noexcept = 0;
  virtual void received(std::uint64_t) noexcept {}
  // `length` bytes of a message, from `offset` on, are in place. Called with `report_blocks` only.
  virtual void block(std::uint64_t message, std::uint64_t offset, std::uint64_t length) noexcept {
    static_cast<void>(message), static_cast<void>(offset), static_cast<void>(length);
  }
  // Every member has this many messages. Called at the root only, with `report_delivered` or while wait_delivered waits.
  virtual void delivered(std::uint64_t) noexcept {}
  virtual void failed(const error &) noexcept {}
  virtual void closed() noexcept {}
};

// A group at one member. If it is destroyed without close(), the group fails at all members.
class group {
 public:
  explicit group(rdmc_group *handle) : handle_(handle) {}
  rdmc_group *get() const noexcept { return handle_.get(); }
  // Queues a message to all members and returns its number. The buffer is released when this member is done with it, or if send throws.
  std::uint64_t send(rdmc_buffer buffer, milliseconds timeout) {
    std::uint64_t number = 0;
    detail::call(rdmc_send, get(), buffer, detail::count(timeout), &number);
    return number;
  }
  void wait_complete(std::uint64_t messages, milliseconds timeout) {
    detail::call(rdmc_wait_complete, get(), messages, detail::count(timeout));
  }
  // At the root: waits until every member has the first `messages` messages.
  void wait_delivered(std::uint64_t messages, milliseconds timeout) {
    detail::call(rdmc_wait_delivered, get(), messages, detail::count(timeout));
  }
  // Returns how many messages the root knows to be at every member.
  std::uint64_t delivered() const noexcept { return rdmc_delivered(get()); }
  // Waits for the next message; the result is false once the group is closed. At the root an error until the group is closing.
  message receive(milliseconds timeout) {
    rdmc_message *next = nullptr;
    detail::call(rdmc_receive, get(), detail::count(timeout), &next);
    return message(next);
  }
  void post_receive_buffer(rdmc_buffer buffer) { detail::call(rdmc_post_receive_buffer, get(), buffer); }
  void accept(std::uint64_t message, rdmc_buffer buffer) { detail::call(rdmc_accept, get(), message, buffer); }
  // Closes the group; on success every message has reached every member.
  void close(milliseconds timeout) { detail::call(rdmc_group_close, get(), detail::count(timeout)); }
  void start_close() { detail::call(rdmc_group_start_close, get()); }
  // Fails the group at all members, for this reason.
  void abort(const char *reason) { detail::call(rdmc_group_abort, get(), reason); }
  // The failure of the group, if it has failed.
  std::optional<error> failure() const noexcept {
    rdmc_error found;
    return rdmc_group_failure(get(), &found) == RDMC_OK ? std::nullopt : std::optional<error>(found);
  }
  // The algorithm's name and the block length of the group, the same at all members.
  std::string algorithm() const {
    char text[64];
    detail::call(rdmc_group_algorithm, get(), text, sizeof text);
    return text;
  }
  std::uint64_t block_bytes() const noexcept { return rdmc_group_block_bytes(get()); }

 private:
  detail::owner<rdmc_group, rdmc_group_free> handle_;
};

// 16-bit floating point numbers, for which C++17 has no types: the bits of IEEE 754 binary16, and the upper half of a float.
struct f16 {
  std::uint16_t bits;
};
struct bf16 {
  std::uint16_t bits;
};

namespace detail {

// The rdmc_type of an element type. Integers map by size, so that long and long long both have one; char, whose sign depends on the
// processor, has none.
template <typename Element>
constexpr rdmc_type type_of() {
  constexpr bool is_integer = std::is_integral_v<Element> && !std::is_same_v<Element, bool> && !std::is_same_v<Element, char>;
  constexpr bool is_signed = std::is_signed_v<Element>;
  if constexpr (std::is_same_v<Element, f16>) {
    return RDMC_TYPE_F16;
  } else if constexpr (std::is_same_v<Element, bf16>) {
    return RDMC_TYPE_BF16;
  } else if constexpr (std::is_same_v<Element, float>) {
    return RDMC_TYPE_F32;
  } else if constexpr (std::is_same_v<Element, double>) {
    return RDMC_TYPE_F64;
  } else {
    static_assert(is_integer, "elements of this type have no rdmc_type; if one fits, pass it as an argument");
    if constexpr (sizeof(Element) == 1) return is_signed ? RDMC_TYPE_I8 : RDMC_TYPE_U8;
    if constexpr (sizeof(Element) == 2) return is_signed ? RDMC_TYPE_I16 : RDMC_TYPE_U16;
    if constexpr (sizeof(Element) == 4) return is_signed ? RDMC_TYPE_I32 : RDMC_TYPE_U32;
    return is_signed ? RDMC_TYPE_I64 : RDMC_TYPE_U64;
  }
}

}  // namespace detail

// A GPU, for team operations on its memory. CUDA addresses and streams are passed as numbers.
class device {
 public:
  // `library`: the path of the CUDA driver; NULL for libcuda.so.1. `chunk_bytes`: 0 for the default.
  explicit device(std::uint32_t ordinal, const char *library = nullptr, std::uint64_t chunk_bytes = 0) {
    rdmc_device *made = nullptr;
    detail::call(rdmc_device_open, library, ordinal, chunk_bytes, &made);
    handle_.reset(made);
  }
  rdmc_device *get() const noexcept { return handle_.get(); }
  // Waits until the copies of all operations have ended.
  void settle(milliseconds timeout) { detail::call(rdmc_device_settle, get(), detail::count(timeout)); }

 private:
  detail::owner<rdmc_device, rdmc_device_free> handle_;
};

// Members that call operations together. If it is destroyed without close(), the team fails at all other members.
class team {
 public:
  explicit team(rdmc_team *handle) : handle_(handle) {}
  rdmc_team *get() const noexcept { return handle_.get(); }
  void barrier(milliseconds timeout) { detail::call(rdmc_team_barrier, get(), detail::count(timeout)); }
  // Returns the counters of the team at this member.
  rdmc_operation_counters counters() const {
    rdmc_operation_counters counters{};
    detail::call(rdmc_team_counters, get(), &counters);
    return counters;
  }
  template <typename Element>
  void broadcast(std::uint32_t root, Element *values, std::size_t count, milliseconds timeout) {
    static_assert(std::is_trivially_copyable_v<Element>, "bytes are copied");
    detail::call(rdmc_team_broadcast, get(), root, values, bytes_of(values, count), detail::count(timeout));
  }
  template <typename Element>
  void all_reduce(Element *values, std::size_t count, rdmc_op op, milliseconds timeout) {
    all_reduce(values, count, detail::type_of<Element>(), op, timeout);
  }
  // For 16-bit types that this header does not know, such as _Float16, and for types known only at run time.
  void all_reduce(void *values, std::size_t count, rdmc_type type, rdmc_op op, milliseconds timeout) {
    detail::call(rdmc_team_all_reduce, get(), values, std::uint64_t{count}, static_cast<std::int32_t>(type),
                 static_cast<std::int32_t>(op), detail::count(timeout));
  }
  template <typename Element>
  void reduce(std::uint32_t root, Element *values, std::size_t count, rdmc_op op, milliseconds timeout) {
    reduce(root, values, count, detail::type_of<Element>(), op, timeout);
  }
  void reduce(std::uint32_t root, void *values, std::size_t count, rdmc_type type, rdmc_op op, milliseconds timeout) {
    detail::call(rdmc_team_reduce, get(), root, values, std::uint64_t{count}, static_cast<std::int32_t>(type),
                 static_cast<std::int32_t>(op), detail::count(timeout));
  }
  // Collects `count` elements in total; this member's are in their place before the call.
  template <typename Element>
  void all_gather(Element *values, std::size_t count, milliseconds timeout) {
    static_assert(std::is_trivially_copyable_v<Element>, "bytes are copied");
    detail::call(rdmc_team_all_gather, get(), values, bytes_of(values, count), detail::count(timeout));
  }
  // `count` elements in total; afterwards this member's part is that of the result, and the others are undefined.
  template <typename Element>
  void reduce_scatter(Element *values, std::size_t count, rdmc_op op, milliseconds timeout) {
    reduce_scatter(values, count, detail::type_of<Element>(), op, timeout);
  }
  void reduce_scatter(void *values, std::size_t count, rdmc_type type, rdmc_op op, milliseconds timeout) {
    detail::call(rdmc_team_reduce_scatter, get(), values, std::uint64_t{count}, static_cast<std::int32_t>(type),
                 static_cast<std::int32_t>(op), detail::count(timeout));
  }
  // `count` elements: at the root the parts of all members, elsewhere the member's own.
  template <typename Element>
  void scatter(std::uint32_t root, Element *values, std::size_t count, milliseconds timeout) {
    static_assert(std::is_trivially_copyable_v<Element>, "bytes are copied");
    detail::call(rdmc_team_scatter, get(), root, values, bytes_of(values, count), detail::count(timeout));
  }
  // As scatter; the root's own part is in its place before the call.
  template <typename Element>
  void gather(std::uint32_t root, Element *values, std::size_t count, milliseconds timeout) {
    static_assert(std::is_trivially_copyable_v<Element>, "bytes are copied");
    detail::call(rdmc_team_gather, get(), root, values, bytes_of(values, count), detail::count(timeout));
  }
  // Broadcasts `length` bytes at `address` of a device.
  void broadcast_device(std::uint32_t root, const device &device, std::uint64_t address, std::uint64_t length,
                        std::size_t stream, milliseconds timeout) {
    detail::call(rdmc_team_broadcast_device, get(), root, device.get(), address, length, stream, detail::count(timeout));
  }
  // Reduces `count` elements at `address` of a device.
  void all_reduce_device(const device &device, std::uint64_t address, std::uint64_t count, rdmc_type type, rdmc_op op,
                         std::size_t stream, milliseconds timeout) {
    detail::call(rdmc_team_all_reduce_device, get(), device.get(), address, count, static_cast<std::int32_t>(type),
                 static_cast<std::int32_t>(op), stream, detail::count(timeout));
  }
  // Fails the team at all members, for this reason. Allowed on any thread, even while another thread waits in an operation.
  void abort(const char *reason) { detail::call(rdmc_team_abort, get(), reason); }
  void close(milliseconds timeout) { detail::call(rdmc_team_close, handle_.release(), detail::count(timeout)); }

 private:
  template <typename Element>
  static std::uint64_t bytes_of(Element *, std::size_t count) {
    return std::uint64_t{count} * sizeof(Element);
  }

  detail::owner<rdmc_team, rdmc_team_free> handle_;
};

// A member's endpoint in the network.
class context {
 public:
  // Sets `settings.size`; a field that is 0 or NULL selects the default.
  explicit context(rdmc_context_settings settings) {
    settings.size = sizeof settings;
    rdmc_context *made = nullptr;
    detail::call(rdmc_context_start, &settings, &made);
    handle_.reset(made);
  }
  context(const std::string &listen, const std::string &secret) : context(settings_of(listen, secret)) {}
  rdmc_context *get() const noexcept { return handle_.get(); }
  // Returns the address to which other members connect, with the selected port.
  std::string address() const {
    char text[64];
    detail::call(rdmc_context_address, get(), text, sizeof text);
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
    if (!callbacks) detail::fail(RDMC_INVALID, "callbacks is null; to receive without callbacks, omit the argument");
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
  // Creates a team of those members of `whole`, a team of this context, that give the same color, ordered by key, then rank; none for
  // a negative color.
  std::optional<team> split(const team &whole, std::int64_t color, std::int64_t key, milliseconds timeout) {
    rdmc_team *made = nullptr;
    detail::call(rdmc_team_split, get(), whole.get(), color, key, detail::count(timeout), &made);
    return made == nullptr ? std::nullopt : std::make_optional<team>(made);
  }
  // Registers memory with this context's network; `buffer` is taken.
  region create_region(rdmc_buffer buffer) {
    rdmc_region *made = nullptr;
    detail::call(rdmc_region_create, get(), buffer, &made);
    return region(made);
  }
  // Returns the counters of the context.
  rdmc_counters counters() const {
    rdmc_counters counters{};
    detail::call(rdmc_context_counters, get(), &counters);
    return counters;
  }
  // Returns the context's descriptor, which is readable when progress() has something to do; see rdmc_context_fd.
  int fd() const {
    int descriptor = -1;
    detail::call(rdmc_context_fd, get(), &descriptor);
    return descriptor;
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
  // Fills in the settings, and returns the array to which they point.
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
    functions.block = [](void *data, std::uint64_t message, std::uint64_t offset, std::uint64_t length) {
      static_cast<self>(data)->block(message, offset, length);
    };
    functions.delivered = [](void *data, std::uint64_t messages) { static_cast<self>(data)->delivered(messages); };
    functions.failed = [](void *data, const rdmc_error *failure) { static_cast<self>(data)->failed(error(*failure)); };
    functions.closed = [](void *data) { static_cast<self>(data)->closed(); };
    functions.destroy = [](void *data) { delete static_cast<self>(data); };
    return functions;
  }

  detail::owner<rdmc_context, rdmc_context_free> handle_;
};

}  // namespace rdmc

#include "rdmc_paper.hpp"

#endif  // RDMC_HPP
