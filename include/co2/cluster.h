#pragma once

#include <co2/communicator.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace co2 {

/// How to reach the other workers. Empty or zero means: from the environment, or chosen by co2.
struct ClusterOptions {
  std::string host = {};                         ///< where rank 0 can be reached; otherwise MASTER_ADDR
  int port = 0;                                  ///< its port, 1..65535; otherwise MASTER_PORT
  std::string interface = {};                    ///< network interface (eth0); otherwise GLOO_SOCKET_IFNAME, or the one
                                                 ///< that leads to the host
  std::chrono::seconds rendezvous_timeout{300};  ///< how long to wait for the other workers to appear, > 0
  std::chrono::seconds collective_timeout{600};  ///< how long one collective may take before it is an error, > 0
};

/// What a group is for.
enum class Carries {
  kTensors,  ///< parameters and gradients, on the device where the model is
  kNumbers,  ///< small numbers that workers must agree on, in host memory: they must not queue behind tensors
};

/// Groups that a program brings along, of whatever kind. `make`: a group of `ranks`, this worker at `place` among them,
/// with connections of its own. All workers ask for the same names in the same order; those that name the same ranks
/// meet.
struct GivenGroups {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among the workers of this host
  int local_size = 1;
  std::function<std::shared_ptr<Communicator>(const std::string& name, const std::vector<int>& ranks, int place,
                                              Carries what)>
      make = {};
};

/// Who we are among the workers, and the way to talk to the others. A small handle: copies share one rendezvous.
class Cluster {
 public:
  /// Joins the job that this process was started in: torchrun, Open MPI's mpirun, Slurm's srun, `co2 launch`, or a
  /// process on its own. Blocks until all workers are there. Throws ClusterError naming the variable if one is missing
  /// or contradicts another. With several workers SIGPIPE is ignored from then on, unless the program handles it: a
  /// peer that dies is an error, and not our end.
  static Cluster from_environment(const ClusterOptions& options = {});

  /// One worker, no network.
  static Cluster alone();

  /// `size` workers as threads of this process: deterministic order of summation, no network. For tests, for many
  /// virtual workers, and as an oracle. `before_collective`, if given, runs on the background thread before each
  /// collective is carried out: a test can hold the wire there, or throw to break it. A worker that ends, so that its
  /// handles and what it has made of them are gone, is an error for those that wait for it; one that does not come for
  /// `collective_timeout` as well.
  static std::vector<Cluster> in_process(int size, std::function<void()> before_collective = {},
                                         std::chrono::milliseconds collective_timeout = std::chrono::minutes(10));

  /// The workers of a job whose groups are made by somebody else (for a c10d::ProcessGroup: co2/c10d.h). Throws
  /// OptionError if ranks and sizes contradict each other.
  static Cluster over(GivenGroups groups);

  int rank() const;
  int size() const;
  int local_rank() const;  ///< among the workers of this host
  int local_size() const;
  const std::string& launcher()
      const;  ///< "torchrun", "mpirun", "slurm", "co2", "environment", "alone", "in-process", "given"

  /// A group of all workers with connections of its own, so that groups do not queue behind each other. A collective
  /// call: all ranks ask for the same names in the same order.
  std::shared_ptr<Communicator> communicator(const std::string& name, Carries what = Carries::kNumbers) const;

  /// The same for some of the workers, this one among them: `ranks` in the order that they have in the group. All
  /// workers ask for the same names in the same order; those that name the same ranks meet.
  std::shared_ptr<Communicator> communicator(const std::string& name, const std::vector<int>& ranks,
                                             Carries what = Carries::kNumbers) const;

  struct Impl;
  explicit Cluster(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace co2
