#include "lab/run.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/files.h"
#include "lab/tool.h"
#include "processes/placement.h"

namespace co2::lab {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPort = 29500;  // the network is fresh: nobody else is there
constexpr int kTickMilliseconds = 100;
constexpr int kLogLines = 12;

std::filesystem::path log_of(const RunSpec& spec, int rank) { return spec.folder / fmt::format("worker-{}.log", rank); }

/// The clock of the scenario, which is that of the run's own metrics: it begins with their first line.
class PhaseClock {
 public:
  explicit PhaseClock(std::filesystem::path metrics) : metrics_(std::move(metrics)) {}

  /// Seconds since the first reported step; nothing before it.
  std::optional<double> now() {
    if (!first_) look();
    return first_ ? std::optional(seconds_since(*first_)) : std::nullopt;
  }
  double on_wall(double now) const { return now + first_wall_; }

 private:
  void look() {
    std::ifstream file(metrics_);
    std::string line;
    if (!std::getline(file, line) || file.eof()) return;  // not there yet, or not whole
    const auto json = nlohmann::json::parse(line, nullptr, false);
    first_wall_ = json.is_object() ? json.value("wall_seconds", 0.0) : 0.0;
    first_ = Clock::now();
  }

  std::filesystem::path metrics_;
  std::optional<Clock::time_point> first_;
  double first_wall_ = 0;
};

class Execution {
 public:
  Execution(const RunSpec& spec, Network& network, const Scenario& scenario, const processes::SignalQueue& signals)
      : spec_(spec), network_(network), scenario_(scenario), signals_(signals), clock_(spec.folder / "metrics.jsonl") {}
  ~Execution() { end_all(); }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  RunEnd run(const std::function<void()>& tick) {
    begin_ = Clock::now();
    const auto shares = processes::place(network_.size(), usable_cores(), spec_.threads, spec_.pin);
    for (int rank = 0; rank < network_.size(); ++rank) start(rank, shares[static_cast<std::size_t>(rank)]);
    while (running() && end_.kind == RunEnd::Kind::kDone) {
      pollfd wake{.fd = signals_.fd(), .events = POLLIN, .revents = 0};
      poll(&wake, 1, kTickMilliseconds);
      while (const auto signal = signals_.next()) on_signal(*signal);
      reap();
      follow_scenario();
      if (Clock::now() - begin_ > spec_.time_limit) {
        fail(with_log(fmt::format("took longer than {} s (--time-limit)", spec_.time_limit.count()), 0));
      }
      tick();
    }
    end_all();
    end_.seconds = seconds_since(begin_);
    return end_;
  }

 private:
  void start(int rank, const processes::CoreShare& share) {
    processes::Environment variables = spec_.environment;
    variables["RANK"] = std::to_string(rank);
    variables["WORLD_SIZE"] = std::to_string(network_.size());
    variables["LOCAL_RANK"] = "0";
    variables["LOCAL_WORLD_SIZE"] = "1";
    variables["MASTER_ADDR"] = Network::address(0);
    variables["MASTER_PORT"] = std::to_string(kPort);
    variables["GLOO_SOCKET_IFNAME"] = variables["TP_SOCKET_IFNAME"] = Network::kInterface;
    variables["CO2_LAUNCHER"] = "co2";
    variables["CO2_CORES"] = processes::format_cores(share.cores);
    processes::set_threads(variables, spec_.threads, share);
    const Descriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
    const std::string log_path = log_of(spec_, rank);
    const Descriptor log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (log.get() < 0) throw DataError(fmt::format("can't write {}: {}", log_path, std::strerror(errno)));
    ChildSpec child;
    child.command = spec_.command;
    child.environment = processes::as_list(variables);
    if (spec_.pin) child.cores = share.cores;
    child.standard[0] = input.get();
    child.standard[1] = child.standard[2] = log.get();
    child.signal_mask = signals_.old_mask();
    child.prepare = [this, rank] { return network_.enter(rank); };
    workers_.push_back(start_child(child));
  }

  bool running() const {
    return std::any_of(workers_.begin(), workers_.end(), [](pid_t pid) { return pid > 0; });
  }

  /// When one worker ends, the others fail for lack of it. So of those that have ended since we looked last, one that
  /// was killed is the cause, and not one that complains about it.
  void reap() {
    struct Failure {
      int rank;
      int status;
    };
    std::optional<Failure> cause;
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      int status = 0;
      if (workers_[rank] <= 0 || waitpid(workers_[rank], &status, WNOHANG) <= 0) continue;
      workers_[rank] = 0;
      if (status == 0) continue;
      if (!cause || (WIFSIGNALED(status) && !WIFSIGNALED(cause->status))) cause = {static_cast<int>(rank), status};
    }
    if (!cause) return;
    const auto [rank, status] = *cause;
    fail(with_log(WIFSIGNALED(status) ? fmt::format("worker {} was killed by signal {} ({})", rank, WTERMSIG(status),
                                                    strsignal(WTERMSIG(status)))
                                      : fmt::format("worker {} ended with exit code {}", rank, WEXITSTATUS(status)),
                  rank));
  }

  void fail(const std::string& why) {
    if (end_.kind != RunEnd::Kind::kDone) return;  // the first cause is the one to tell
    end_.kind = RunEnd::Kind::kFailed;
    end_.why = why;
  }

  std::string with_log(const std::string& what, int rank) const {
    const auto log = log_of(spec_, rank);
    return fmt::format("{}. The end of {}:\n{}", what, log.string(), last_lines(read_file(log), kLogLines));
  }

  void on_signal(int signal) {
    if (signal == SIGCHLD) return;
    if (signal == SIGTSTP) {
      signal_all(SIGSTOP);  // they are in process groups of their own: Ctrl-Z reaches them through us
      kill(getpid(), SIGSTOP);
      fail("was suspended (Ctrl-Z), and its clocks went on meanwhile: its figures would mean nothing");
      return;
    }
    end_.kind = RunEnd::Kind::kStopped;
    end_.signal = signal;
  }

  void follow_scenario() {
    if (phase_ + 1 >= scenario_.phases.size()) return;
    const auto now = clock_.now();
    if (!now || *now < phase_end_ + scenario_.phases[phase_].seconds) return;
    phase_end_ += scenario_.phases[phase_].seconds;
    network_.set_rates(scenario_.phases[++phase_]);
    end_.changes.push_back({clock_.on_wall(*now), phase_});
  }

  void signal_all(int signal) {
    for (const pid_t pid : workers_) {
      if (pid > 0) kill(-pid, signal);
    }
  }

  /// Their results are not wanted any more, or are written: there is no reason to wait for them.
  void end_all() {
    signal_all(SIGKILL);
    for (pid_t& pid : workers_) {
      while (pid > 0 && waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      pid = 0;
    }
    for (const pid_t pid : network_.processes()) kill(pid, SIGKILL);  // what a worker started and left behind
  }

  const RunSpec& spec_;
  Network& network_;
  const Scenario& scenario_;
  const processes::SignalQueue& signals_;
  PhaseClock clock_;
  Clock::time_point begin_;
  std::vector<pid_t> workers_;  // by rank; 0 once it has ended
  std::size_t phase_ = 0;
  double phase_end_ = 0;  // of the phases that are over
  RunEnd end_;
};

}  // namespace

RunEnd execute(const RunSpec& spec, Network& network, const Scenario& scenario, const processes::SignalQueue& signals,
               const std::function<void()>& tick) {
  return Execution(spec, network, scenario, signals).run(tick);
}

}  // namespace co2::lab
