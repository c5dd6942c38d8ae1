#include "lab/tool.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/child_process.h"
#include "base/descriptor.h"

namespace co2::lab {

namespace {

// Files in memory instead of pipes: nothing to pump, and a program can't block on a reader that waits for its end.
Descriptor memory_file() {
  Descriptor file(memfd_create("co2-lab", MFD_CLOEXEC));
  if (file.get() < 0) throw ClusterError(fmt::format("can't run a program: {}", std::strerror(errno)));
  return file;
}

Descriptor with_contents(const std::string& text) {
  Descriptor file = memory_file();
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw ClusterError(fmt::format("can't run a program: {}", std::strerror(errno)));
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

std::string contents(const Descriptor& file) {
  std::string text(static_cast<std::size_t>(std::max<off_t>(0, lseek(file.get(), 0, SEEK_END))), '\0');
  const ssize_t count = pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
  return text;
}

/// A tool that runs. Whatever ends our waiting for it also ends it and all that it started in its process group.
class Running {
 public:
  explicit Running(pid_t pid) : pid_(pid) {}
  ~Running() {
    if (pid_ > 0) end();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// False after `timeout`.
  bool wait(std::chrono::milliseconds timeout, const processes::SignalQueue* signals) const {
    // Not through <sys/pidfd.h>: in glibc 2.36 it does not link from C++.
    const Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    pollfd polls[] = {{.fd = process.get(), .events = POLLIN, .revents = 0},
                      {.fd = signals != nullptr ? signals->fd() : -1, .events = POLLIN, .revents = 0}};
    auto deadline = Clock::now() + timeout;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      const int ready = poll(polls, 2, static_cast<int>(std::max<std::int64_t>(0, left.count())));
      if (ready == 0) return false;
      if (polls[0].revents != 0 || (ready < 0 && errno != EINTR)) return true;
      if (signals == nullptr) continue;
      const auto before = Clock::now();
      obey(*signals, pid_);
      deadline += Clock::now() - before;  // nobody worked while we slept
    }
  }

  int end() {
    kill(-pid_, SIGKILL);
    return reap();
  }
  int reap() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  using Clock = std::chrono::steady_clock;
  pid_t pid_;
};

}  // namespace

Stopped::Stopped(int signal)
    : Error(fmt::format("stopped by signal {} ({})", signal, strsignal(signal)), 128 + signal) {}

void obey(const processes::SignalQueue& signals, pid_t group) {
  const auto tell = [&](int signal) {
    if (group > 0) kill(-group, signal);
  };
  while (const auto signal = signals.next()) {
    if (*signal == SIGCHLD) continue;
    if (*signal != SIGTSTP) throw Stopped(*signal);
    tell(SIGSTOP);
    kill(getpid(), SIGSTOP);
    tell(SIGCONT);
  }
}

ToolResult run_tool(const Tool& tool) {
  const Descriptor input = with_contents(tool.input);
  const Descriptor output = memory_file();
  const Descriptor errors = memory_file();
  ChildSpec spec;
  spec.command = tool.command;
  spec.environment = tool.environment;
  spec.standard[0] = input.get();
  spec.standard[1] = output.get();
  if (!tool.show_errors) spec.standard[2] = errors.get();
  spec.writes_to_terminal = tool.show_errors;
  spec.prepare = tool.prepare;
  Running running(start_child(spec));
  ToolResult result;
  result.timed_out = !running.wait(tool.timeout, tool.signals);
  result.code = result.timed_out ? running.end() : running.reap();
  result.output = contents(output);
  result.errors = contents(errors);
  return result;
}

std::string how_it_ended(const Tool& tool, const ToolResult& result) {
  if (!result.timed_out) return fmt::format("ended with exit code {}", result.code);
  const auto minutes = std::chrono::floor<std::chrono::minutes>(tool.timeout);
  if (minutes == tool.timeout) return fmt::format("took longer than {} min", minutes.count());
  return fmt::format("took longer than {:g} s", std::chrono::duration<double>(tool.timeout).count());
}

std::string last_lines(const std::string& text, int count) {
  auto end = text.find_last_not_of(" \r\n\t");
  if (end == std::string::npos) return {};
  ++end;
  auto begin = end;
  while (count > 0 && begin > 0) {
    const auto at = text.rfind('\n', begin - 1);
    begin = at == std::string::npos ? 0 : at;
    --count;
  }
  if (text[begin] == '\n') ++begin;
  return text.substr(begin, end - begin);
}

}  // namespace co2::lab
