#include "train/data/subprocess.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace co2::train {
namespace {

constexpr std::chrono::milliseconds kPoll{50};
constexpr std::chrono::seconds kGrace{2};  // between asking a program to end and ending it

/// What a spawn needs, freed in every path.
struct SpawnSettings {
  SpawnSettings() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

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

/// The program gets a process group of its own, so that ending it also ends what it started.
pid_t spawn(const Command& command) {
  SpawnSettings settings;
  const auto check = [&](int error) {
    if (error != 0) throw DataError(fmt::format("can't run {}: {}", describe(command), std::strerror(error)));
  };
  check(posix_spawn_file_actions_addchdir_np(&settings.files, command.folder.c_str()));
  const std::string input = command.input.empty() ? "/dev/null" : command.input.string();
  check(posix_spawn_file_actions_addopen(&settings.files, STDIN_FILENO, input.c_str(), O_RDONLY, 0));
  const int create = O_WRONLY | O_CREAT | O_TRUNC;
  check(posix_spawn_file_actions_addopen(&settings.files, STDOUT_FILENO, command.output.c_str(), create, 0666));
  check(posix_spawn_file_actions_addopen(&settings.files, STDERR_FILENO, command.log.c_str(), create, 0666));
  check(posix_spawn_file_actions_addclosefrom_np(&settings.files, STDERR_FILENO + 1));

  sigset_t usual, none;
  sigemptyset(&none);
  sigemptyset(&usual);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) sigaddset(&usual, signal);
  check(posix_spawnattr_setsigdefault(&settings.attributes, &usual));
  check(posix_spawnattr_setsigmask(&settings.attributes, &none));
  check(posix_spawnattr_setpgroup(&settings.attributes, 0));
  check(posix_spawnattr_setflags(&settings.attributes,
                                 POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK));

  std::vector<char*> arguments;
  for (const auto& argument : command.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t process = 0;
  check(posix_spawnp(&process, arguments[0], &settings.files, &settings.attributes, arguments.data(), environ));
  return process;
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
  const pid_t process = spawn(command);
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

bool have_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::stringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const auto candidate = std::filesystem::path(folder.empty() ? "." : folder) / name;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(candidate, ignored) && access(candidate.c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace co2::train
