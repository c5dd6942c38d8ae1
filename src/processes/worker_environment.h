#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "processes/placement.h"
#include "processes/worker_group.h"

namespace co2::processes {

/// A TCP port of this machine that is ours while this lives: bound, close-on-exec, not listening.
class BoundPort {
 public:
  /// `port` 0: a free one. Throws ClusterError that names the port if it is in use, or the host if that is not ours.
  BoundPort(const std::string& host, int port);
  ~BoundPort();
  BoundPort(const BoundPort&) = delete;
  BoundPort& operator=(const BoundPort&) = delete;
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

using Environment = std::map<std::string, std::string, std::less<>>;

/// Our own environment, without what another launcher, in whose job we may be running, says about places.
Environment own_environment();
/// The same without any place at all: for a program that is not to join anybody.
Environment environment_outside_of_jobs();

/// "NAME=value", as exec takes them.
std::vector<std::string> as_list(const Environment& variables);

/// Tells OpenMP and MKL how many threads to compute with. A number that the user set for either is left alone; one that
/// was given to us as an option (`asked`, 0: it was not) wins.
void set_threads(Environment& variables, int asked, const CoreShare& share);

/// own_environment() with the variables of worker_group.h for one worker.
std::vector<std::string> worker_environment(const WorkerGroupOptions& options, int rank, const BoundPort& port,
                                            const CoreShare& share);

}  // namespace co2::processes
