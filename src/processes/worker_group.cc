#include "processes/worker_group.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "base/child_process.h"
#include "base/cores.h"
#include "processes/line_mux.h"
#include "processes/placement.h"
#include "processes/signal_queue.h"
#include "processes/worker_environment.h"

namespace co2::processes {

namespace {

using std::chrono::steady_clock;

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw ClusterError(fmt::format("can't start a worker: {}", std::strerror(errno)));
  return {ends[0], ends[1]};
}

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

class WorkerGroup {
 public:
  explicit WorkerGroup(const WorkerGroupOptions& options) : options_(options) {
    prctl(PR_GET_CHILD_SUBREAPER, &old_subreaper_);
    // What a worker started and left behind becomes our child, so that we can see when it is gone.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~WorkerGroup() {
    for (const Worker& worker : workers_) {
      if (worker.gone) continue;
      kill(-worker.pid, SIGKILL);
      while (waitpid(-worker.pid, nullptr, 0) > 0 || errno == EINTR) {
      }
    }
    prctl(PR_SET_CHILD_SUBREAPER, old_subreaper_);
  }
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  void start();
  int run();

 private:
  struct Worker {
    pid_t pid = -1;                                   // of the process, and of its process group
    std::optional<int> code;                          // once the process itself has ended
    bool gone = false;                                // nobody is left in the group
    std::optional<steady_clock::time_point> kill_at;  // the end of its grace period
  };

  void start_one(int rank, const std::vector<std::string>& environment, const std::vector<int>& cores, int listen_fd);
  void on_signal(int signal);
  void suspend();
  void reap();
  void reap(int rank);
  void on_failure(int rank, const std::string& how);
  void end(Worker& worker);
  void end_all();
  void signal_all(int signal);
  void kill_overdue();
  int poll_timeout() const;
  bool all_gone() const {
    return std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.gone; });
  }

  const WorkerGroupOptions options_;
  int old_subreaper_ = 0;
  SignalQueue signals_;
  LineMux lines_;
  std::vector<Worker> workers_;
  int first_failure_ = 0;
  int user_signal_ = 0;  // the first signal to stop that we were sent
  steady_clock::time_point user_signal_time_;
  bool output_given_up_ = false;  // the user does not want to wait for whoever reads it
};

void WorkerGroup::start() {
  const BoundPort port(options_.host, options_.port);
  const auto shares = place(options_.workers, usable_cores(), options_.threads, options_.pin);
  for (int rank = 0; rank < options_.workers; ++rank) {
    const CoreShare& share = shares[rank];
    start_one(rank, worker_environment(options_, rank, port, share), options_.pin ? share.cores : std::vector<int>{},
              rank == 0 ? port.fd() : -1);
  }
}

void WorkerGroup::start_one(int rank, const std::vector<std::string>& environment, const std::vector<int>& cores,
                            int listen_fd) {
  ChildSpec spec;
  spec.command = options_.command;
  spec.environment = environment;
  spec.cores = cores;
  spec.inherit = options_.inherit;
  if (listen_fd >= 0) spec.inherit.push_back(listen_fd);
  spec.signal_mask = signals_.old_mask();
  spec.writes_to_terminal = !options_.prefix;
  // A process group in the background that reads from the terminal would be stopped.
  int null_input = -1;
  if (rank != 0 || isatty(STDIN_FILENO)) null_input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  spec.standard[0] = null_input;
  int write_ends[2] = {-1, -1};
  if (options_.prefix) {
    for (int output = 1; output <= 2; ++output) {
      const Pipe pipe = make_pipe();
      write_ends[output - 1] = spec.standard[output] = pipe.write_end;
      lines_.add(pipe.read_end, output, fmt::format("[{}] ", rank));
    }
  }
  const auto close_ours = [&] {
    for (const int fd : {null_input, write_ends[0], write_ends[1]}) {
      if (fd >= 0) close(fd);
    }
  };
  try {
    workers_.push_back({.pid = start_child(spec), .code = {}, .gone = false, .kill_at = {}});
  } catch (...) {
    close_ours();
    throw;
  }
  close_ours();
}

int WorkerGroup::run() {
  std::vector<pollfd> polls;
  while (!all_gone() || (lines_.pending() && !output_given_up_)) {
    polls.assign(1, {.fd = signals_.fd(), .events = POLLIN, .revents = 0});
    lines_.add_polls(polls);
    poll(polls.data(), polls.size(), poll_timeout());
    while (const auto signal = signals_.next()) on_signal(*signal);
    lines_.handle(polls);
    reap();
    kill_overdue();
    if (lines_.broken() && first_failure_ == 0) {
      first_failure_ = 128 + SIGPIPE;
      end_all();
    }
    if (all_gone()) lines_.close_inputs();
  }
  return first_failure_;
}

void WorkerGroup::on_signal(int signal) {
  if (signal == SIGCHLD) return;
  if (signal == SIGTSTP) return suspend();
  const auto now = steady_clock::now();
  if (user_signal_ == 0) {
    user_signal_ = signal;
    user_signal_time_ = now;
    signal_all(signal);
    if (isatty(STDERR_FILENO)) lines_.say("\r\033[Kco2: stopping; a second time ends it at once");
    return;
  }
  // timeout(1) and others signal the process and then its whole group: that is one wish to stop, not two.
  constexpr std::chrono::milliseconds kSameWish{250};
  if (signal == SIGHUP || now - user_signal_time_ < kSameWish) return;
  if (first_failure_ == 0) first_failure_ = 128 + user_signal_;
  output_given_up_ = true;
  signal_all(SIGKILL);
}

/// Ctrl-Z: the workers are in other process groups, so they stop and continue through us.
void WorkerGroup::suspend() {
  signal_all(SIGSTOP);
  kill(getpid(), SIGSTOP);
  signal_all(SIGCONT);
}

void WorkerGroup::reap() {
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (!workers_[rank].gone) reap(static_cast<int>(rank));
  }
}

void WorkerGroup::reap(int rank) {
  Worker& worker = workers_[rank];
  int status = 0;
  pid_t pid = 0;
  while ((pid = waitpid(-worker.pid, &status, WNOHANG)) > 0) {
    if (pid != worker.pid) continue;
    worker.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (*worker.code != 0) on_failure(rank, how_it_ended(status));
  }
  worker.gone = pid < 0 && errno == ECHILD;
  if (worker.gone && !worker.code) {
    worker.code = 1;  // somebody else took its exit code: it may have failed
    on_failure(rank, "ended, and its exit code is lost");
  }
  // Left behind by its worker. After a signal of the user it may be the program proper, whose wrapper did not wait.
  if (worker.code && !worker.gone && user_signal_ == 0) end(worker);
}

void WorkerGroup::on_failure(int rank, const std::string& how) {
  const Worker& failed = workers_[rank];
  const bool first = first_failure_ == 0;
  if (first) first_failure_ = *failed.code;
  if (user_signal_ != 0) {
    // They were all asked to end and are on their way. Who ended of that needs no push; who waits in vain for one that
    // ended of something else does.
    if (*failed.code != 128 + user_signal_) end_all();
    return;
  }
  if (!first) return;
  const bool others = std::any_of(workers_.begin(), workers_.end(), [](const Worker& other) { return !other.code; });
  lines_.say(fmt::format("{}co2: worker {} {}{}", isatty(STDERR_FILENO) ? "\r\033[K" : "", rank, how,
                         others ? "; ending the others" : ""));
  end_all();
}

/// Asks it to end, unless the user has done so, and sets the time when it will be made to.
void WorkerGroup::end(Worker& worker) {
  if (worker.gone || worker.kill_at) return;
  if (user_signal_ == 0) {
    kill(-worker.pid, SIGTERM);
    kill(-worker.pid, SIGCONT);  // one that is stopped could not act on it
  }
  worker.kill_at = steady_clock::now() + options_.grace;
}

void WorkerGroup::end_all() {
  for (Worker& worker : workers_) end(worker);
}

void WorkerGroup::signal_all(int signal) {
  for (const Worker& worker : workers_) {
    if (!worker.gone) kill(-worker.pid, signal);
  }
}

void WorkerGroup::kill_overdue() {
  const auto now = steady_clock::now();
  for (Worker& worker : workers_) {
    if (worker.gone || !worker.kill_at || now < *worker.kill_at) continue;
    kill(-worker.pid, SIGKILL);
    worker.kill_at = now + options_.grace;
  }
}

int WorkerGroup::poll_timeout() const {
  std::optional<steady_clock::time_point> next;
  for (const Worker& worker : workers_) {
    if (!worker.gone && worker.kill_at && (!next || *worker.kill_at < *next)) next = worker.kill_at;
  }
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

}  // namespace

int run_worker_group(const WorkerGroupOptions& options) {
  std::fflush(nullptr);  // what we have written comes before what the workers write
  WorkerGroup group(options);
  group.start();
  return group.run();
}

}  // namespace co2::processes
