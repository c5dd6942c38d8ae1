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

#include "cli/child_process.h"
#include "lab/descriptor.h"

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

int wait_for(pid_t pid, std::chrono::milliseconds timeout) {
  // Not through <sys/pidfd.h>: in glibc 2.36 it does not link from C++.
  const Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  pollfd poll_end{.fd = process.get(), .events = POLLIN, .revents = 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int ready = poll(&poll_end, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready > 0 || (ready < 0 && errno != EINTR)) break;
    if (ready == 0) {
      kill(-pid, SIGKILL);
      break;
    }
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

ToolResult run_tool(const Tool& tool) {
  const Descriptor input = with_contents(tool.input);
  const Descriptor output = memory_file();
  const Descriptor errors = memory_file();
  cli::ChildSpec spec;
  spec.command = tool.command;
  spec.environment = tool.environment;
  spec.standard[0] = input.get();
  spec.standard[1] = output.get();
  if (!tool.show_errors) spec.standard[2] = errors.get();
  spec.writes_to_terminal = tool.show_errors;
  spec.prepare = tool.prepare;
  const pid_t pid = cli::start_child(spec);
  ToolResult result;
  result.code = wait_for(pid, tool.timeout);
  result.output = contents(output);
  result.errors = contents(errors);
  return result;
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
