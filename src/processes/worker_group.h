#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace co2::processes {

/// Several processes of one program on this machine, which find each other through the environment:
/// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, CO2_LAUNCHER=co2, CO2_CORES (where this
/// one runs), OMP_NUM_THREADS and MKL_NUM_THREADS (unless the user set either), and for rank 0 CO2_MASTER_LISTEN_FD: a
/// socket bound to MASTER_PORT. It is bound but not listening, so a program that does not know about it can still
/// listen on that port itself, while no other program is given the port in between.
struct WorkerGroupOptions {
  std::vector<std::string> command;  ///< program (looked up in PATH) and arguments
  int workers = 1;
  std::string host = "127.0.0.1";           ///< an address of this machine
  int port = 0;                             ///< 0: a free one
  int threads = 0;                          ///< per worker; 0: as many as it has cores
  bool pin = true;                          ///< keep workers off each other's cores
  bool prefix = false;                      ///< put "[rank] " before each line that a worker writes
  std::vector<int> inherit{};               ///< descriptors that stay open in every worker
  std::chrono::milliseconds grace{10'000};  ///< from asking a worker to end to killing it
};

/// Runs the processes and returns when all of them, and everything that they started in their process groups, are gone.
///
/// Result: 0 if all returned 0, otherwise the exit code of the first that failed (128 + signal if it was killed by
/// one). When one fails, the others get SIGTERM, and SIGKILL after the grace period.
///
/// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the workers, which may take their time to
/// save and end. A second one kills them at once, and gives up on output that nobody reads; only SIGHUP counts once, as
/// a terminal that goes away may send several. Workers have process groups of their own, so Ctrl-C reaches them exactly
/// once, through us. They are killed if this process dies. Standard input goes to rank 0, unless it is a terminal.
///
/// Throws ClusterError if the port is in use or processes can't be started, Error with code 127 if there is no such
/// program, 126 if it can't be executed.
///
/// Thread safety: changes the process's signal mask while it runs: call it from a process with a single thread.
int run_worker_group(const WorkerGroupOptions& options);

}  // namespace co2::processes
