#include "checkpoint/checksum.h"

#define XXH_INLINE_ALL  // compiled right here: no library to have at run time
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace co2::checkpoint {

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh3); }

Checksum::~Checksum() = default;

void Checksum::add(std::string_view bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::string Checksum::digits() const {
  const auto hash = XXH3_128bits_digest(&state_->xxh3);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string checksum_of(std::string_view bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.digits();
}

bool is_checksum(std::string_view text) {
  return text.size() == 32 &&
         std::ranges::all_of(text, [](char c) { return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f'); });
}

}  // namespace co2::checkpoint
