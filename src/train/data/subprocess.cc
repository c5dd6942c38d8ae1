#include "train/data/subprocess.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/child_process.h"
#include "base/descriptor.h"

namespace co2::train {
namespace {

constexpr std::chrono::milliseconds kPoll{50};
constexpr std::chrono::seconds kGrace{2};  // between asking a program to end and ending it

std::string describe(const Command& command) { return fmt::format("`{}`", fmt::join(command.arguments, " ")); }

/// The first lines of the log: package clients put the cause there, and advice below.
std::string complaint(const std::filesystem::path& log) {
  std::ifstream stream(log);
  std::string line, result;
  for (int lines = 0; lines < 3 && std::getline(stream, line);) {
    if (line.empty()) continue;
    result += (lines++ > 0 ? "; " : ": ") + line.substr(0, 200);
  }
  return result;
}

[[noreturn]] void fail_to_run(const Command& command, const std::string& why) {
  throw DataError(fmt::format("can't run {}: {}", describe(command), why));
}

Descriptor open_file(const Command& command, const std::filesystem::path& path, int flags) {
  Descriptor file(open((command.folder / path).c_str(), flags | O_CLOEXEC, 0666));
  if (file.get() < 0) fail_to_run(command, std::strerror(errno));
  return file;
}

/// The program has a process group of its own, so that ending it also ends what it started.
pid_t start(const Command& command) {
  constexpr int kCreate = O_WRONLY | O_CREAT | O_TRUNC;
  const Descriptor input = open_file(command, command.input.empty() ? "/dev/null" : command.input, O_RDONLY);
  const Descriptor output = open_file(command, command.output, kCreate);
  const Descriptor log = open_file(command, command.log, kCreate);
  ChildSpec spec;
  spec.command = command.arguments;
  for (char** variable = environ; *variable != nullptr; ++variable) spec.environment.emplace_back(*variable);
  spec.folder = command.folder;
  spec.standard[0] = input.get();
  spec.standard[1] = output.get();
  spec.standard[2] = log.get();
  spec.close_others = true;
  spec.default_signals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  try {
    return start_child(spec);
  } catch (const CannotExecute& error) {
    fail_to_run(command, std::strerror(error.cause()));
  } catch (const ClusterError& error) {
    fail_to_run(command, error.what());
  }
}

bool wait_until(pid_t process, int& status, std::chrono::steady_clock::time_point deadline,
                const std::function<bool()>& give_up) {
  while (true) {
    const pid_t ended = waitpid(process, &status, WNOHANG);
    if (ended == process) return true;
    if (ended < 0 && errno != EINTR) throw DataError(fmt::format("lost a program: {}", std::strerror(errno)));
    if (std::chrono::steady_clock::now() >= deadline || give_up()) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

/// Ends the program and everything that it started.
void end(pid_t process) {
  int status = 0;
  kill(-process, SIGTERM);
  if (!wait_until(process, status, std::chrono::steady_clock::now() + kGrace, [] { return false; })) {
    kill(-process, SIGKILL);
    waitpid(process, &status, 0);
  }
  kill(-process, SIGKILL);
}

}  // namespace

void run_command(const Command& command) {
  const pid_t process = start(command);
  int status = 0;
  bool cancelled = false;
  bool over = false;
  try {
    over = wait_until(process, status, std::chrono::steady_clock::now() + command.timeout, [&] {
      if (command.tick) command.tick();
      cancelled = command.cancelled && command.cancelled();
      return cancelled;
    });
  } catch (...) {
    end(process);
    throw;
  }
  if (!over) {
    end(process);
    if (cancelled) throw DataError(fmt::format("{} was interrupted", describe(command)));
    throw DataError(fmt::format("{} took longer than {} s and was ended", describe(command), command.timeout.count()));
  }
  if (WIFSIGNALED(status)) {
    throw DataError(fmt::format("{} was ended by signal {}", describe(command), WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) != 0) {
    throw DataError(
        fmt::format("{} failed with exit code {}{}", describe(command), WEXITSTATUS(status), complaint(command.log)));
  }
}

}  // namespace co2::train
