#include "processes/child_process.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace co2::processes {

namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// The child's side, up to exec. Only async-signal-safe calls.
[[noreturn]] void become(const ChildSpec& spec, char** argv, char** envp, pid_t parent, int error_pipe) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(128 + SIGKILL);  // the parent was gone before it could have killed us
  for (int fd = 0; fd < 3; ++fd) {
    if (spec.standard[fd] >= 0 && dup2(spec.standard[fd], fd) < 0) _exit(126);
  }
  if (spec.inherit >= 0) fcntl(spec.inherit, F_SETFD, 0);
  if (!spec.cores.empty()) pin_to(spec.cores);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &action, nullptr);
  if (spec.writes_to_terminal) {
    action.sa_handler = SIG_IGN;  // otherwise "stty tostop" would stop it at its first progress line
    sigaction(SIGTTOU, &action, nullptr);
  }
  sigprocmask(SIG_SETMASK, &spec.signal_mask, nullptr);
  int error = spec.prepare ? spec.prepare() : 0;
  if (error == 0) {
    execvpe(argv[0], argv, envp);
    error = errno;
  }
  while (write(error_pipe, &error, sizeof error) < 0 && errno == EINTR) {
  }
  _exit(127);
}

[[noreturn]] void throw_cannot_execute(const std::string& program, int error) {
  if (error == ENOENT) {
    throw Error(fmt::format("there is no program '{}': check the name, or give its path", program), 127);
  }
  throw Error(fmt::format("'{}' can't be executed: {}", program, std::strerror(error)), 126);
}

}  // namespace

pid_t start_child(const ChildSpec& spec) {
  std::vector<char*> argv = pointers(spec.command);
  std::vector<char*> envp = pointers(spec.environment);
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) {
    throw ClusterError(fmt::format("can't start a worker: {}", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  const int fork_error = errno;
  if (child == 0) become(spec, argv.data(), envp.data(), parent, error_pipe[1]);
  close(error_pipe[1]);
  if (child < 0) {
    close(error_pipe[0]);
    throw ClusterError(fmt::format("can't start a worker: {}. Fewer workers may fit", std::strerror(fork_error)));
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
    throw_cannot_execute(spec.command[0], error);
  }
  return child;
}

}  // namespace co2::processes
