#include "processes/worker_environment.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace co2::processes {

Environment own_environment() {
  Environment variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (name.starts_with("OMPI_COMM_WORLD_") || name.starts_with("TORCHELASTIC_") || name.starts_with("SLURM_STEP_") ||
        name == "CO2_MASTER_LISTEN_FD") {
      continue;
    }
    variables.emplace(name, text.substr(equals + 1));
  }
  return variables;
}

Environment environment_outside_of_jobs() {
  Environment variables = own_environment();
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    variables.erase(name);
  }
  return variables;
}

std::vector<std::string> as_list(const Environment& variables) {
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

BoundPort::BoundPort(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  if (const int error = getaddrinfo(host.c_str(), service.c_str(), &hints, &found); error != 0) {
    throw ClusterError(fmt::format("host '{}' is not known: {}", host, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, freeaddrinfo);
  fd_ = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0) throw ClusterError(fmt::format("can't open a socket: {}", std::strerror(errno)));
  // Linux lets two sockets with this option share a port as long as neither listens: see WorkerGroupOptions.
  const int yes = 1;
  setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd_, address->ai_addr, address->ai_addrlen) != 0) {
    const int error = errno;
    close(fd_);
    if (error == EADDRINUSE) {
      throw ClusterError(
          fmt::format("port {} is in use: choose another one, or leave --port out for a free one", port));
    }
    if (error == EADDRNOTAVAIL) {
      throw ClusterError(fmt::format("host '{}' is not an address of this machine, where the workers start", host));
    }
    throw ClusterError(fmt::format("can't use port {} of '{}': {}", port, host, std::strerror(error)));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &size);
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

BoundPort::~BoundPort() { close(fd_); }

void set_threads(Environment& variables, int asked, const CoreShare& share) {
  if (asked <= 0 && (variables.contains("OMP_NUM_THREADS") || variables.contains("MKL_NUM_THREADS"))) return;
  variables["OMP_NUM_THREADS"] = variables["MKL_NUM_THREADS"] = std::to_string(share.threads);
}

std::vector<std::string> worker_environment(const WorkerGroupOptions& options, int rank, const BoundPort& port,
                                            const CoreShare& share) {
  auto variables = own_environment();
  const std::string rank_text = std::to_string(rank);
  const std::string size_text = std::to_string(options.workers);
  variables["RANK"] = variables["LOCAL_RANK"] = rank_text;
  variables["WORLD_SIZE"] = variables["LOCAL_WORLD_SIZE"] = size_text;
  variables["MASTER_ADDR"] = options.host;
  variables["MASTER_PORT"] = std::to_string(port.port());
  variables["CO2_LAUNCHER"] = "co2";
  variables["CO2_CORES"] = format_cores(share.cores);
  if (rank == 0) variables["CO2_MASTER_LISTEN_FD"] = std::to_string(port.fd());
  set_threads(variables, options.threads, share);
  return as_list(variables);
}

}  // namespace co2::processes
