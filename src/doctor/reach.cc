#include "doctor/reach.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/descriptor.h"

namespace co2::doctor {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr std::size_t kAtOnce = 64;       // connections, well below a usual limit on open files
constexpr milliseconds kPatience{5'000};  // for a batch of connections: three attempts of TCP

struct Endpoint {
  std::string address;
  std::string port;
};

/// Resolves a numeric address; throws ClusterError.
std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> resolve_endpoint(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(endpoint.address.c_str(), endpoint.port.c_str(), &hints, &found); error != 0) {
    throw ClusterError(fmt::format("'{}' is no address: {}", endpoint.address, gai_strerror(error)));
  }
  return {found, freeaddrinfo};
}

/// A listening socket. The kernel completes connections to it by itself, up to its backlog: nobody has to accept them.
Descriptor listen_on(const std::string& address, Endpoint& endpoint) {
  const auto resolved = resolve_endpoint({address, "0"});
  Descriptor fd(socket(resolved->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  std::array<char, NI_MAXSERV> port{};
  if (fd.get() < 0 || bind(fd.get(), resolved->ai_addr, resolved->ai_addrlen) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0 || getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV) !=
          0) {
    throw ClusterError(fmt::format("can't open a port on {}: {}", address, std::strerror(errno)));
  }
  endpoint = {address, port.data()};
  return fd;
}

/// One connection that is being opened.
class Attempt {
 public:
  Attempt(int peer, const Endpoint& endpoint) : peer_(peer), endpoint_(endpoint) {
    const auto resolved = resolve_endpoint(endpoint);
    fd_ = Descriptor(socket(resolved->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const bool started = fd_.get() >= 0;
    error_ = started && connect(fd_.get(), resolved->ai_addr, resolved->ai_addrlen) == 0 ? 0 : errno;
  }
  bool pending() const { return error_ == EINPROGRESS; }
  int fd() const { return fd_.get(); }
  void look() {
    socklen_t size = sizeof error_;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error_, &size);
  }
  bool failed() const { return error_ != 0; }
  Json describe(int from) const {
    return {{"from", from},
            {"to", peer_},
            {"address", endpoint_.address + ":" + endpoint_.port},
            {"why", pending() ? "no answer" : std::strerror(error_)}};
  }

 private:
  int peer_;
  Endpoint endpoint_;
  Descriptor fd_;
  int error_ = 0;
};

void wait_for(std::vector<Attempt>& attempts, steady_clock::time_point deadline) {
  for (;;) {
    std::vector<pollfd> polls;
    std::vector<Attempt*> pending;
    for (Attempt& attempt : attempts) {
      if (!attempt.pending()) continue;
      polls.push_back({.fd = attempt.fd(), .events = POLLOUT, .revents = 0});
      pending.push_back(&attempt);
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
    if (polls.empty() || left <= 0) return;
    poll(polls.data(), polls.size(), static_cast<int>(left));
    for (std::size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents != 0) pending[i]->look();
    }
  }
}

}  // namespace

struct Reach::Impl {
  Rendezvous rendezvous;
  std::string address;
  steady_clock::time_point deadline;
  StoreClient store;

  std::string key(const char* what, int rank) const {
    return fmt::format("co2-doctor/{}/{}/{}", rendezvous.generation, what, rank);
  }

  void put(const char* what, const std::string& text) { store.set(key(what, rendezvous.rank), text); }

  std::string get(const char* what, int rank) {
    if (auto text = store.get(key(what, rank))) return *text;
    throw ClusterError(fmt::format("rank {} of {} has ended, or did not take part within {} s: look at its output",
                                   rank, rendezvous.size, rendezvous.rendezvous_timeout.count() / 1000));
  }

  /// Every worker's text, by rank.
  std::vector<std::string> exchange(const char* what, const std::string& mine) {
    put(what, mine);
    std::vector<std::string> texts;
    for (int rank = 0; rank < rendezvous.size; ++rank) texts.push_back(get(what, rank));
    return texts;
  }
};

Reach::Reach(const Rendezvous& rendezvous, const std::string& own_address)
    : impl_(std::make_unique<Impl>(Impl{rendezvous, own_address, steady_clock::now() + rendezvous.rendezvous_timeout,
                                        StoreClient(rendezvous)})) {}

Reach::~Reach() = default;

std::vector<Unreachable> Reach::check() {
  Endpoint mine;
  const Descriptor listener = listen_on(impl_->address, mine);
  std::vector<std::pair<int, Endpoint>> peers;
  for (const std::string& text : impl_->exchange("port", Json::array({mine.address, mine.port}).dump())) {
    const Json endpoint = Json::parse(text);
    const int rank = static_cast<int>(peers.size());
    peers.push_back({rank, {endpoint.at(0), endpoint.at(1)}});
  }
  peers.erase(peers.begin() + impl_->rendezvous.rank);

  Json failures = Json::array();
  for (std::size_t begin = 0; begin < peers.size(); begin += kAtOnce) {
    std::vector<Attempt> attempts;
    for (std::size_t i = begin; i < std::min(peers.size(), begin + kAtOnce); ++i) {
      attempts.emplace_back(peers[i].first, peers[i].second);
    }
    wait_for(attempts, std::min(impl_->deadline, steady_clock::now() + kPatience));
    for (const Attempt& attempt : attempts) {
      if (attempt.failed()) failures.push_back(attempt.describe(impl_->rendezvous.rank));
    }
  }

  // The listener stays open until everybody has tried.
  std::vector<Unreachable> all;
  for (const std::string& text : impl_->exchange("unreachable", failures.dump())) {
    for (const Json& failure : Json::parse(text)) {
      all.push_back({failure.at("from"), failure.at("to"), failure.at("address"), failure.at("why")});
    }
  }
  return all;
}

std::vector<std::string> Reach::exchange(const std::string& mine) { return impl_->exchange("text", mine); }

void Reach::leave() {
  if (impl_->rendezvous.rank == 0) {
    impl_->put("told", "yes");
    for (int rank = 1; rank < impl_->rendezvous.size; ++rank) impl_->get("left", rank);
  } else {
    impl_->get("told", 0);
    impl_->put("left", "yes");
  }
}

}  // namespace co2::doctor
