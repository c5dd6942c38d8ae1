#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace co2::train {

/// How often pictures of each class were taken for which.
class Confusion {
 public:
  explicit Confusion(std::vector<std::string> classes);

  void add(std::int64_t truth, std::int64_t guess) { ++counts_[index(truth, guess)]; }
  std::int64_t right() const;

  /// A line for each class, or for the worst of many: how many were recognised, and what most others were taken for.
  std::string table() const;

 private:
  std::size_t index(std::int64_t truth, std::int64_t guess) const {
    return static_cast<std::size_t>(truth) * classes_.size() + static_cast<std::size_t>(guess);
  }

  std::vector<std::string> classes_;
  std::vector<std::int64_t> counts_;
};

}  // namespace co2::train
