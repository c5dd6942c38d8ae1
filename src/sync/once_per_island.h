#pragma once

#include <co2/state.h>

#include <functional>
#include <string>

#include "island/island.h"

namespace co2 {

/// For what is the same on all workers of an island: the first of them writes it, and reads it for all.
class OncePerIsland final : public StateVisitor {
 public:
  OncePerIsland(StateVisitor& visitor, const Island& island) : visitor_(visitor), island_(island) {}

  bool reads() const override { return visitor_.reads(); }
  void tensor(const std::string& name, const at::Tensor& value) override;
  void number(const std::string& name, double& value) override;
  void number(const std::string& name, std::int64_t& value) override;

 private:
  bool first() const { return island_.rank() == 0; }
  template <typename Number>
  void any_number(const std::string& name, Number& value);
  void read_by_the_first(const std::string& name, const std::function<void()>& read);

  StateVisitor& visitor_;
  const Island& island_;
};

}  // namespace co2
