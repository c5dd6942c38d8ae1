#pragma once

#include <string>
#include <vector>

#include "base/descriptor.h"
#include "lab/rate.h"

namespace co2::lab {

/// Takes this process out of the machine's network for good, into an empty one in which it may do as it likes: as root,
/// or otherwise in a user namespace of its own. Throws ClusterError that says what is missing and what to do.
///
/// Thread safety: call it from a process with a single thread.
void leave_machine_network();

/// N hosts, each a network namespace with one interface, joined by a bridge in one more:
///
///     host 0: eth0 10.0.0.1 ──┐
///     host 1: eth0 10.0.0.2 ──┼── bridge
///     ...                     │
///
/// The namespaces have no names and no processes of their own. They exist as long as this object (or a process that
/// entered them) does: whatever ends us, SIGKILL too, the kernel removes them, so there is never anything left behind.
///
/// Call leave_machine_network() first.
class Network {
 public:
  /// Throws ClusterError, which says what the kernel lacks.
  explicit Network(int hosts);

  int size() const { return static_cast<int>(hosts_.size()); }
  static std::string address(int host);  ///< "10.0.0.1"
  static constexpr const char* kInterface = "eth0";

  /// Limits both directions of every link, at once, also while data is flowing. Throws ClusterError.
  void set_rates(const Phase& phase);

  /// Moves the calling process, and its host name, into a host. Returns 0 or an errno. Async-signal-safe.
  int enter(int host) const noexcept;

  /// A socket lives where it was made: `make` runs inside the host. Throws ClusterError.
  template <typename Make>
  auto inside(int host, Make make) const {
    const Visit visit(*this, hosts_[static_cast<std::size_t>(host)].space.get());
    return make();
  }

  /// Processes that are in a host of this network now, other than us.
  std::vector<pid_t> processes() const;

 private:
  struct Host {
    Descriptor space;
    std::string name;  // its address: it is also the host name, which then needs no name service
    unsigned long inode = 0;
  };
  class Visit {
   public:
    Visit(const Network& network, int space);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    const Network& network_;
  };

  void configure(int space, const std::string& program, const std::string& batch) const;

  Descriptor home_;  // where this process is
  Descriptor switch_;
  std::vector<Host> hosts_;
  std::vector<Rate> rates_;  // in force, by host
};

}  // namespace co2::lab
