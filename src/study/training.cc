#include "study/training.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/descriptor.h"
#include "base/files.h"
#include "lab/tool.h"
#include "processes/worker_environment.h"
#include "train/folders.h"

namespace co2::study {

namespace {

constexpr int kLogLines = 5;

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

void discard(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

Training::Training(const Run& run, const std::filesystem::path& folder, const std::vector<int>& cores,
                   const sigset_t& mask)
    : run_(run), results_(folder / run.key), config_(folder / (run.key + ".json")), log_(folder / (run.key + ".log")) {
  discard(results_);  // what a runner that was killed has left there
  train::ensure_writable(folder);
  write_atomically(config_, run.config.dump(2) + "\n");
  processes::Environment variables = processes::environment_outside_of_jobs();
  variables["OMP_NUM_THREADS"] = variables["MKL_NUM_THREADS"] = "1";
  const Descriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor log(open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (log.get() < 0) throw DataError(fmt::format("can't write {}: {}", log_.string(), std::strerror(errno)));
  ChildSpec child;
  child.command = {lab::kOwnProgram, "train", "--config",           config_, "--out", results_,
                   "--threads",      "1",     "--checkpoint-every", "0"};
  child.environment = processes::as_list(variables);
  child.cores = cores;
  child.standard[0] = input.get();
  child.standard[1] = child.standard[2] = log.get();
  child.signal_mask = mask;
  pid_ = start_child(child);
}

Training::~Training() {
  if (pid_ > 0) {
    signal(SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    discard(log_);
  }
  discard(results_);
  discard(config_);
}

void Training::signal(int number) const { kill(-pid_, number); }

std::optional<Result> Training::result() {
  int status = 0;
  rusage usage{};
  if (pid_ <= 0 || wait4(pid_, &status, WNOHANG, &usage) <= 0) return std::nullopt;
  pid_ = 0;
  processor_seconds_ = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  Result result = outcome(status);
  result.key = run_.key;
  result.config = run_.config;
  result.wall_seconds = seconds_since(begin_);
  sign(result);
  if (result.done()) discard(log_);
  return result;
}

Result Training::outcome(int status) const {
  Result result;
  if (status != 0) {
    result.failure = fmt::format("{}. The end of {}:\n{}", how_it_ended(status), log_.string(),
                                 lab::last_lines(read_file(log_), kLogLines));
    return result;
  }
  try {
    return read_result(results_, train::task_type(run_.config.at("task").get<std::string>()).words);
  } catch (const DataError& error) {
    result.failure = error.what();
    return result;
  }
}

Speed measure_speed(const Run& run) {
  constexpr int kSteps = 10;
  Run few = run;
  few.key = "speed";
  few.config["steps"] = kSteps;
  few.config["workers"] = few.config["island_size"] = 1;
  const TemporaryFolder folder(std::filesystem::temp_directory_path());
  sigset_t mask{};
  sigemptyset(&mask);
  Training training(few, folder.path(), {usable_cores().front()}, mask);
  std::optional<Result> result;
  while (!(result = training.result())) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (!result->done()) throw Error(fmt::format("a run of a few steps failed: {}", result->failure), 1);
  const double share = result->training_seconds / result->wall_seconds;  // others slow down both alike
  const double processor = training.processor_seconds();
  return {.sample_seconds = share * processor / few.samples(), .run_seconds = (1 - share) * processor};
}

}  // namespace co2::study
