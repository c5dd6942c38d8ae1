#pragma once

#include <ATen/ATen.h>
#include <co2/error.h>
#include <co2/state.h>

#include <map>
#include <set>
#include <stdexcept>
#include <string>

namespace co2::test {

/// All that a run has shown, in memory.
struct SavedState {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, double> numbers;
  std::map<std::string, std::int64_t> integers;

  /// What is in flight, over all fragments.
  std::int64_t in_flight() const {
    std::int64_t count = 0;
    for (const auto& [name, value] : integers) {
      if (name.ends_with("/in_flight")) count += value;
    }
    return count;
  }
};

class StateWriter final : public StateVisitor {
 public:
  explicit StateWriter(SavedState& into) : into_(into) {}
  bool reads() const override { return false; }
  void tensor(const std::string& name, const at::Tensor& value) override { add(into_.tensors, name, value.clone()); }
  void number(const std::string& name, double& value) override { add(into_.numbers, name, value); }
  void number(const std::string& name, std::int64_t& value) override { add(into_.integers, name, value); }

 private:
  template <typename Values, typename Value>
  void add(Values& values, const std::string& name, const Value& value) {
    if (!names_.insert(name).second) throw std::logic_error("two things have the name " + name);
    values[name] = value;
  }
  SavedState& into_;
  std::set<std::string> names_;
};

class StateReader final : public StateVisitor {
 public:
  explicit StateReader(const SavedState& from) : from_(from) {}
  bool reads() const override { return true; }
  void tensor(const std::string& name, const at::Tensor& value) override {
    const at::Tensor& saved = find(from_.tensors, name);
    if (saved.sizes() != value.sizes() || saved.dtype() != value.dtype()) throw DataError(name + " has another shape");
    value.copy_(saved);
  }
  void number(const std::string& name, double& value) override { value = find(from_.numbers, name); }
  void number(const std::string& name, std::int64_t& value) override { value = find(from_.integers, name); }
  /// Everything that was saved.
  bool has_read_all() const {
    return read_.size() == from_.tensors.size() + from_.numbers.size() + from_.integers.size();
  }

 private:
  template <typename Values>
  const typename Values::mapped_type& find(const Values& values, const std::string& name) {
    const auto found = values.find(name);
    if (found == values.end()) throw DataError("nothing of the name " + name + " was saved");
    read_.insert(name);
    return found->second;
  }
  const SavedState& from_;
  std::set<std::string> read_;
};

}  // namespace co2::test
