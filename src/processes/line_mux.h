#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace co2::processes {

/// Puts a prefix before every line of a stream of bytes that arrives in pieces.
///
/// A line ends with \n or \r\n, or with \r alone, as progress displays write it: each of their updates becomes a line
/// of its own. Lines longer than `limit` are broken there, so that memory stays bounded. Bytes are not interpreted.
class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix, std::size_t limit = 1 << 16);
  void feed(std::string_view bytes, std::string& out);  ///< appends the lines that are complete
  void finish(std::string& out);                        ///< appends what is left, as a line

 private:
  void emit(std::string& out);
  enum class AfterReturn { kNo, kLineDone, kNothingDone };

  const std::string prefix_;
  const std::size_t limit_;
  std::string pending_;
  AfterReturn after_return_ = AfterReturn::kNo;
};

/// Copies the output of several processes to our own stdout and stderr, line by line. Never blocks: it takes part in
/// the caller's poll loop, stops reading while a reader of ours is slow, and so holds a bounded amount.
///
/// Thread safety: used by one thread.
class LineMux {
 public:
  LineMux();
  ~LineMux();
  LineMux(const LineMux&) = delete;
  LineMux& operator=(const LineMux&) = delete;

  /// Reads from `input` (now owned, made non-blocking) and writes prefixed lines to `output`: 1 or 2.
  void add(int input, int output, std::string prefix);

  /// A line of our own on stderr, in turn with the others.
  void say(std::string_view line);

  void add_polls(std::vector<pollfd>& polls) const;
  void handle(const std::vector<pollfd>& polls);
  /// Takes what is in the pipes by now, and closes them: nobody is left who would write.
  void close_inputs();
  bool pending() const;                                                 ///< something is still to be written
  bool broken() const { return sinks_[0].broken || sinks_[1].broken; }  ///< a reader of ours went away

 private:
  struct Input {
    int fd = -1;
    int output = 1;
    LinePrefixer lines;
  };
  struct Sink {
    int fd;
    std::string queue;
    std::size_t written = 0;
    bool broken = false;
    bool in_line = false;  // the last byte written was not the end of a line
    bool full() const { return queue.size() - written > kQueueLimit; }
  };
  static constexpr std::size_t kQueueLimit = 1 << 20;

  bool read_some(Input& input);  ///< false at the end of the input, or when there is nothing now
  void write_some(Sink& sink);
  bool may_write(const Sink& sink) const;
  Sink& sink_of(const Input& input) { return sinks_[input.output - 1]; }
  const Sink& sink_of(const Input& input) const { return sinks_[input.output - 1]; }

  bool same_file_ = false;  // stdout and stderr end up in one place: neither may cut into a line of the other
  std::vector<Input> inputs_;
  Sink sinks_[2] = {{.fd = 1, .queue = {}}, {.fd = 2, .queue = {}}};
};

}  // namespace co2::processes
