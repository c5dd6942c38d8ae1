#include <co2/error.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "cluster/environment.h"

namespace co2 {

std::string local_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), "9", &hints, &found); error != 0) {
    throw ClusterError(
        fmt::format("host '{}' can't be resolved: {}. Set MASTER_ADDR (or --host) to a name or address "
                    "that all workers know",
                    host, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    // Connecting a datagram socket sends nothing: it only asks the routing table which of our addresses would be used.
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    const bool routed = connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                        getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
    close(fd);
    std::array<char, NI_MAXHOST> text{};
    if (routed && getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text.data(), text.size(), nullptr, 0,
                              NI_NUMERICHOST) == 0) {
      return text.data();
    }
  }
  throw ClusterError(
      fmt::format("there is no route to host '{}': check the network, or name the interface that leads "
                  "to it (--interface, or GLOO_SOCKET_IFNAME)",
                  host));
}

}  // namespace co2
