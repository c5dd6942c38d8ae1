#include "processes/line_mux.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace co2::processes {

LinePrefixer::LinePrefixer(std::string prefix, std::size_t limit) : prefix_(std::move(prefix)), limit_(limit) {}

void LinePrefixer::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t text = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (text > 0) {
      after_return_ = AfterReturn::kNo;
      const std::size_t take = std::min(text, limit_ - pending_.size());
      pending_.append(bytes.substr(0, take));
      bytes.remove_prefix(take);
      if (pending_.size() == limit_) emit(out);
      continue;
    }
    // \r\n is one end of line, also when the two arrive separately; a \r at the start of an update ends nothing.
    if (bytes[0] == '\r') {
      after_return_ = pending_.empty() ? AfterReturn::kNothingDone : AfterReturn::kLineDone;
      if (!pending_.empty()) emit(out);
    } else {
      if (after_return_ != AfterReturn::kLineDone) emit(out);
      after_return_ = AfterReturn::kNo;
    }
    bytes.remove_prefix(1);
  }
}

void LinePrefixer::finish(std::string& out) {
  if (!pending_.empty()) emit(out);
  after_return_ = AfterReturn::kNo;
}

void LinePrefixer::emit(std::string& out) {
  out += prefix_;
  out += pending_;
  out += '\n';
  pending_.clear();
}

LineMux::LineMux() {
  struct stat out {};
  struct stat err {};
  same_file_ = fstat(1, &out) == 0 && fstat(2, &err) == 0 && out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

LineMux::~LineMux() {
  for (const Input& input : inputs_) {
    if (input.fd >= 0) close(input.fd);
  }
}

void LineMux::add(int input, int output, std::string prefix) {
  fcntl(input, F_SETFL, fcntl(input, F_GETFL) | O_NONBLOCK);
  inputs_.push_back({.fd = input, .output = output, .lines = LinePrefixer(std::move(prefix))});
}

void LineMux::say(std::string_view line) {
  if (sinks_[1].broken) return;
  sinks_[1].queue += line;
  sinks_[1].queue += '\n';
}

void LineMux::add_polls(std::vector<pollfd>& polls) const {
  for (const Input& input : inputs_) {
    if (input.fd >= 0 && !sink_of(input).full()) polls.push_back({.fd = input.fd, .events = POLLIN, .revents = 0});
  }
  for (const Sink& sink : sinks_) {
    if (may_write(sink)) polls.push_back({.fd = sink.fd, .events = POLLOUT, .revents = 0});
  }
}

void LineMux::handle(const std::vector<pollfd>& polls) {
  for (const pollfd& poll : polls) {
    if (poll.revents == 0) continue;
    for (Input& input : inputs_) {
      if (input.fd == poll.fd) read_some(input);
    }
    for (Sink& sink : sinks_) {
      if (sink.fd == poll.fd && may_write(sink)) write_some(sink);
    }
  }
}

bool LineMux::read_some(Input& input) {
  char buffer[1 << 16];
  const ssize_t count = read(input.fd, buffer, sizeof buffer);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  Sink& sink = sink_of(input);
  if (count > 0) {
    input.lines.feed({buffer, static_cast<std::size_t>(count)}, sink.queue);
  } else {
    input.lines.finish(sink.queue);
    close(std::exchange(input.fd, -1));
  }
  if (sink.broken) sink.queue.clear();
  return count > 0;
}

bool LineMux::may_write(const Sink& sink) const {
  const Sink& other = sinks_[sink.fd == 1 ? 1 : 0];
  return !sink.queue.empty() && !(same_file_ && other.in_line && !other.broken);
}

void LineMux::write_some(Sink& sink) {
  // poll() promises room for PIPE_BUF bytes in a pipe: a larger write could block, and with it our handling of signals.
  const std::string_view waiting = std::string_view(sink.queue).substr(sink.written);
  std::string_view chunk = waiting.substr(0, PIPE_BUF);
  const bool cut = chunk.size() < waiting.size();
  if (cut && chunk.find('\n') != std::string_view::npos) chunk = chunk.substr(0, chunk.rfind('\n') + 1);
  const ssize_t count = write(sink.fd, chunk.data(), chunk.size());
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    sink.broken = true;
    sink.queue.clear();
    sink.written = 0;
    return;
  }
  sink.written += static_cast<std::size_t>(count);
  if (count > 0) sink.in_line = sink.queue[sink.written - 1] != '\n';
  if (sink.written == sink.queue.size()) {
    sink.queue.clear();
    sink.written = 0;
  } else if (sink.written >= kQueueLimit / 4) {
    sink.queue.erase(0, sink.written);
    sink.written = 0;
  }
}

void LineMux::close_inputs() {
  for (Input& input : inputs_) {
    // At most what the pipe can hold, in case that a process which left the group still writes.
    for (int reads = 0; input.fd >= 0 && reads < 32 && read_some(input); ++reads) {
    }
    if (input.fd < 0) continue;
    input.lines.finish(sink_of(input).queue);
    close(std::exchange(input.fd, -1));
  }
}

bool LineMux::pending() const {
  return std::any_of(std::begin(sinks_), std::end(sinks_), [](const Sink& sink) { return !sink.queue.empty(); });
}

}  // namespace co2::processes
