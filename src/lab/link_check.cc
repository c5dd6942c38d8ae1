#include "lab/link_check.h"

#include <arpa/inet.h>
#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/clock.h"

namespace co2::lab {

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kWholeSeconds = 1.0;  // for all transfers of one check
constexpr double kShortest = 0.25;
constexpr int kAttempts = 3;  // one that is off may be the machine, busy elsewhere for a moment: the link stays off
constexpr std::chrono::seconds kConnectTime{5};

[[noreturn]] void fail(const char* what) {
  throw ClusterError(fmt::format("can't check the link between two hosts: {}: {}", what, std::strerror(errno)));
}

/// Two ends of a connection. Both are ours: one loop drives them, without threads or processes.
struct Connection {
  Descriptor sender;
  Descriptor receiver;
};

void wait_until(int fd, short events, const char* what) {
  pollfd ready{.fd = fd, .events = events, .revents = 0};
  const auto timeout = std::chrono::milliseconds(kConnectTime).count();
  const int count = poll(&ready, 1, static_cast<int>(timeout));
  if (count == 0) errno = ETIMEDOUT;
  if (count <= 0) fail(what);
}

Connection connect(const Network& network, int from, int to) {
  const auto open_socket = [&](int host) {
    Descriptor fd(network.inside(host, [] { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }));
    if (fd.get() < 0) fail("socket");
    return fd;
  };
  const Descriptor listener = open_socket(to);
  Connection connection{open_socket(from), {}};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, Network::address(to).c_str(), &address.sin_addr);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), generic, size) != 0) fail("bind");
  if (listen(listener.get(), 1) != 0) fail("listen");
  if (getsockname(listener.get(), generic, &size) != 0) fail("getsockname");
  if (::connect(connection.sender.get(), generic, size) != 0 && errno != EINPROGRESS) fail("connect");
  wait_until(listener.get(), POLLIN, "connect");
  connection.receiver = Descriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.receiver.get() < 0) fail("accept");
  return connection;
}

/// Bits per second that arrive, after a third of the time, in which TCP finds its speed and the buckets run empty.
double transfer(const Connection& connection, double seconds) {
  const std::vector<char> outgoing(1 << 18);
  std::vector<char> incoming(1 << 18);
  const auto begin = Clock::now();
  const auto since_begin = [&] { return seconds_since(begin); };
  double counted_from = 0;
  double bytes = 0;
  double now = 0;
  while ((now = since_begin()) < seconds) {
    if (counted_from == 0 && now >= seconds / 3) {
      counted_from = now;
      bytes = 0;
    }
    const ssize_t sent = send(connection.sender.get(), outgoing.data(), outgoing.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) fail("send");
    const ssize_t got = recv(connection.receiver.get(), incoming.data(), incoming.size(), 0);
    if (got < 0 && errno != EAGAIN && errno != EINTR) fail("receive");
    if (got > 0) bytes += static_cast<double>(got);
    if (got > 0 || sent > 0) continue;
    pollfd polls[] = {{connection.sender.get(), POLLOUT, 0}, {connection.receiver.get(), POLLIN, 0}};
    poll(polls, 2, std::max(1, static_cast<int>((seconds - now) * 1000)));
  }
  return counted_from > 0 ? 8 * bytes / (now - counted_from) : 0;
}

}  // namespace

std::vector<LinkCheck> check_links(const Network& network, const Phase& phase) {
  std::vector<LinkCheck> checks;
  const double seconds = std::max(kShortest, kWholeSeconds / network.size());
  for (int from = 0; from < network.size(); ++from) {
    const int to = (from + 1) % network.size();
    const Rate up = phase.host(from);
    const Rate down = phase.host(to);
    const bool slower_down = !down.unlimited() && (up.unlimited() || down.bits_per_second < up.bits_per_second);
    LinkCheck check{.from = from, .to = to, .asked = slower_down ? down : up};
    for (int attempt = 0; attempt < kAttempts && (attempt == 0 || check.off()); ++attempt) {
      check.measured = transfer(connect(network, from, to), seconds);
    }
    checks.push_back(check);
  }
  return checks;
}

}  // namespace co2::lab
