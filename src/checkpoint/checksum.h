#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace co2::checkpoint {

/// A checksum of bytes that come piece by piece: XXH3 with 128 bits, faster than memory is read. It notices every
/// flipped bit; against somebody who wants to deceive it is no protection.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void add(std::string_view bytes);
  /// Of what was added so far: 32 lower-case hexadecimal digits, as `xxh128sum` prints them.
  std::string digits() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(std::string_view bytes);

/// Whether a text could have come from digits().
bool is_checksum(std::string_view text);

}  // namespace co2::checkpoint
