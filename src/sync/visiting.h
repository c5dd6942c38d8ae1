#pragma once

#include <ATen/ops/empty.h>
#include <co2/error.h>
#include <co2/options.h>
#include <co2/state.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

namespace co2 {

/// How the kinds of things that our state consists of are shown to a visitor.

inline void visit(StateVisitor& visitor, const std::string& name, int& value) {
  std::int64_t number = value;
  visitor.number(name, number);
  value = static_cast<int>(number);
}

inline void visit(StateVisitor& visitor, const std::string& name, bool& value) {
  std::int64_t number = value ? 1 : 0;
  visitor.number(name, number);
  value = number != 0;
}

[[noreturn]] inline void refuse_damaged(const std::string& name, double value) {
  throw DataError(fmt::format(
      "the state that is being read has {} = {}, which no run has: it is damaged, or of another run", name, value));
}

/// A number that is never negative: steps, samples, rates.
inline void visit_amount(StateVisitor& visitor, const std::string& name, double& value) {
  constexpr double kMost = 1e18;
  double read = value;
  visitor.number(name, read);
  if (visitor.reads() && !(read >= 0 && read <= kMost)) refuse_damaged(name, read);
  value = read;
}

/// One that counts.
inline void visit_counter(StateVisitor& visitor, const std::string& name, std::int64_t& value) {
  std::int64_t read = value;
  visitor.number(name, read);
  if (visitor.reads() && read < 0) refuse_damaged(name, static_cast<double>(read));
  value = read;
}

/// A wire that something has been sent in, or is going to be.
inline void visit_wire(StateVisitor& visitor, const std::string& name, Wire& wire) {
  auto number = static_cast<std::int64_t>(wire);
  visitor.number(name, number);
  if (number < 0 || number >= static_cast<std::int64_t>(Wire::kAuto)) {
    refuse_damaged(name, static_cast<double>(number));
  }
  wire = static_cast<Wire>(number);
}

/// How many there are of something. What is read is checked before anybody makes room for it.
inline std::size_t visit_count(StateVisitor& visitor, const std::string& name, std::size_t count, std::size_t most) {
  auto number = static_cast<std::int64_t>(count);
  visitor.number(name, number);
  if (number < 0 || number > static_cast<std::int64_t>(most)) {
    throw DataError(
        fmt::format("the state that is being read has {} = {}, which must be from 0 to {}: it is damaged, or "
                    "of another run",
                    name, number, most));
  }
  return static_cast<std::size_t>(number);
}

inline void visit(StateVisitor& visitor, const std::string& name, std::vector<double>& values, std::size_t most) {
  values.resize(visit_count(visitor, name + "/count", values.size(), most));
  for (std::size_t i = 0; i < values.size(); ++i) visit_amount(visitor, fmt::format("{}/{}", name, i), values[i]);
}

/// Any numbers, as many as there are, as one tensor: a name for each of thousands would be most of a file's header.
template <typename Numbers>
void visit_as_tensor(StateVisitor& visitor, const std::string& name, Numbers& numbers) {
  const at::Tensor values = at::empty({std::ssize(numbers)}, at::kDouble);
  std::copy(numbers.begin(), numbers.end(), values.data_ptr<double>());
  visitor.tensor(name, values);
  std::copy_n(values.const_data_ptr<double>(), numbers.size(), numbers.begin());
}

/// Two whole numbers about each of `number` parameters, or about none of them, as one tensor. `of`: a memory's pair of
/// numbers; `from`: a memory of such a pair, which refuses what no run has.
template <typename Memory, typename Of, typename From>
void visit_pairs(StateVisitor& visitor, const std::string& name, std::vector<Memory>& memories, std::size_t number,
                 const Of& of, const From& from) {
  const std::size_t count = visit_count(visitor, name + "/count", memories.size(), number);
  if (count != 0 && count != number) refuse_damaged(name + "/count", static_cast<double>(count));
  memories.resize(count);
  if (count == 0) return;
  const at::Tensor values = at::empty({2, static_cast<std::int64_t>(count)}, at::kLong);
  auto* const first = values.data_ptr<std::int64_t>();
  auto* const second = first + count;
  for (std::size_t i = 0; i < count; ++i) std::tie(first[i], second[i]) = of(memories[i]);
  visitor.tensor(name, values);
  for (std::size_t i = 0; i < count; ++i) memories[i] = from(first[i], second[i]);
}

}  // namespace co2
