#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace co2 {

/// Base of everything that co2 throws on purpose. `what()` says what is wrong, where, and what to do about it;
/// `exit_code()` is what the `co2` program returns for it (docs/errors.md lists them).
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, int exit_code) : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

/// An option, flag or configuration file that can't be honoured. The message names the option, its value and the
/// allowed range.
class OptionError : public Error {
 public:
  explicit OptionError(const std::string& message) : Error(message, 2) {}
};

/// The launcher's environment is missing a variable or contradicts itself, or the rendezvous failed.
class ClusterError : public Error {
 public:
  explicit ClusterError(const std::string& message) : Error(message, 3) {}
};

/// A file that can't be read, written, or has the wrong contents.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(message, 4) {}
};

/// A collective that failed or timed out. The worker's parameters and outer state are as they were before the exchange
/// that failed was applied.
class CommError : public Error {
 public:
  struct Where {
    std::string operation;    ///< "all-reduce", "broadcast", ...
    int rank = -1;            ///< the rank that noticed, of the cluster's; -1 if nobody told it
    std::int64_t round = -1;  ///< the round of the exchange, -1 outside of rounds
    std::string peer;         ///< the peer's address if the backend told it, otherwise empty
  };
  CommError(Where where, const std::string& cause);
  const Where& where() const noexcept { return where_; }
  const std::string& cause() const noexcept { return cause_; }

 private:
  Where where_;
  std::string cause_;
};

/// The workers no longer hold the same consensus: an invariant is broken (a memory, a program that wrote to it), and
/// whatever they would agree on from here on is worth nothing.
class ConsensusError : public Error {
 public:
  explicit ConsensusError(const std::string& message) : Error(message, 6) {}
};

}  // namespace co2
