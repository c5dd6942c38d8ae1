#pragma once

#include <co2/co2.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/saved_state.h"

namespace co2::test {

/// Some steps of a run: from its beginning or from where another life has saved it, to its end or until it is saved.
struct Life {
  int begin = 0;
  int end = 0;
  const std::vector<SavedState>* load = nullptr;  ///< by rank
  std::vector<SavedState>* save = nullptr;        ///< by rank, with room for all
};

/// One worker's part of it: `step(number)` for each step.
template <typename Step>
void live(const Life& life, int rank, Synchronizer& sync, const Step& step) {
  if (life.load != nullptr) {
    StateReader reader((*life.load)[static_cast<std::size_t>(rank)]);
    sync.visit(reader);
    EXPECT_TRUE(reader.has_read_all());
  }
  for (int number = life.begin; number < life.end; ++number) step(number);
  if (life.save != nullptr) {
    StateWriter writer((*life.save)[static_cast<std::size_t>(rank)]);
    sync.visit(writer);
  }
}

}  // namespace co2::test
