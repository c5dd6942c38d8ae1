#include "base/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>

#include "base/cores.h"

namespace co2 {

namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Everything but the three standard ones goes with exec, and not before: an error must still find its way to us.
void close_others_at_exec() {
  constexpr int kFirst = STDERR_FILENO + 1;
  if (close_range(kFirst, std::numeric_limits<unsigned>::max(), CLOSE_RANGE_CLOEXEC) == 0) return;
  rlimit limit{};  // a kernel before 5.11
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  for (rlim_t fd = kFirst; fd < limit.rlim_cur; ++fd) fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC);
}

void set_standard(int fd, int source) {
  // What already is in its place is not copied, and would keep the mark that closes it.
  const int done = source == fd ? fcntl(fd, F_SETFD, 0) : dup2(source, fd);
  if (done < 0) _exit(126);
}

/// The child's side, up to exec. Only async-signal-safe calls.
[[noreturn]] void become(const ChildSpec& spec, char** argv, char** envp, pid_t parent, int error_pipe) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(128 + SIGKILL);  // the parent was gone before it could have killed us
  for (int fd = 0; fd < 3; ++fd) {
    if (spec.standard[fd] >= 0) set_standard(fd, spec.standard[fd]);
  }
  if (spec.close_others) close_others_at_exec();
  for (const int fd : spec.inherit) fcntl(fd, F_SETFD, 0);
  if (!spec.cores.empty()) pin_to(spec.cores);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (const int signal : spec.default_signals) sigaction(signal, &action, nullptr);
  if (spec.writes_to_terminal) {
    action.sa_handler = SIG_IGN;  // otherwise "stty tostop" would stop it at its first progress line
    sigaction(SIGTTOU, &action, nullptr);
  }
  sigprocmask(SIG_SETMASK, &spec.signal_mask, nullptr);
  int error = !spec.folder.empty() && chdir(spec.folder.c_str()) != 0 ? errno : 0;
  if (error == 0 && spec.prepare) error = spec.prepare();
  if (error == 0) {
    execvpe(argv[0], argv, envp);
    error = errno;
  }
  while (write(error_pipe, &error, sizeof error) < 0 && errno == EINTR) {
  }
  _exit(127);
}

std::string cannot_execute(const std::string& program, int cause) {
  if (cause == ENOENT) return fmt::format("there is no program '{}': check the name, or give its path", program);
  return fmt::format("'{}' can't be executed: {}", program, std::strerror(cause));
}

}  // namespace

CannotExecute::CannotExecute(const std::string& program, int cause)
    : Error(cannot_execute(program, cause), cause == ENOENT ? 127 : 126), cause_(cause) {}

pid_t start_child(const ChildSpec& spec) {
  std::vector<char*> argv = pointers(spec.command);
  std::vector<char*> envp = pointers(spec.environment);
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) {
    throw ClusterError(fmt::format("can't start a process: {}", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  const int fork_error = errno;
  if (child == 0) become(spec, argv.data(), envp.data(), parent, error_pipe[1]);
  close(error_pipe[1]);
  if (child < 0) {
    close(error_pipe[0]);
    throw ClusterError(fmt::format("can't start a process: {}. Fewer workers may fit", std::strerror(fork_error)));
  }
  setpgid(child, child);  // both sides do it, so that it is true whoever runs first
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(error_pipe[0], &error, sizeof error);  // ends when exec closes the pipe
  } while (count < 0 && errno == EINTR);
  close(error_pipe[0]);
  if (count == sizeof error) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw CannotExecute(spec.command[0], error);
  }
  return child;
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

}  // namespace co2
