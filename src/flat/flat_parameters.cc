#include "flat/flat_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "flat/shaped_like.h"
#include "flat/tensor_memory.h"

namespace co2 {

namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

FlatParameters::FlatParameters(const std::vector<Parameter>& all, const FlatLayout& layout) : parts_(layout.parts) {
  std::vector<bool> elsewhere(all.size());  // in a unit of their own
  for (const auto& unit : layout.units) {
    for (const std::size_t member : unit) elsewhere[member] = true;
  }
  std::vector<std::size_t> unit;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (elsewhere[i]) continue;
    elements += all[i].tensor.numel();
    unit.push_back(i);
    if (layout.unit_elements > 0 && elements >= layout.unit_elements) {
      add_unit(all, std::exchange(unit, {}));
      elements = 0;
    }
  }
  add_unit(all, std::move(unit));
  for (const auto& own : layout.units) add_unit(all, own);

  for (const at::Tensor& parameter : parameters_) was_empty_.push_back(!has_memory(parameter));
  homes_.resize(parameters_.size());
  if (layout.apart) return;
  const at::NoGradGuard no_grad;
  data_ = at::zeros({numel()}, options());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (was_empty_[i]) continue;
    shaped_like(data_.narrow(0, offsets_[i], parameters_[i].numel()), parameters_[i]).copy_(parameters_[i]);
  }
  point_to(data_);
}

void FlatParameters::add_unit(const std::vector<Parameter>& all, std::vector<std::size_t> members) {
  std::stable_sort(members.begin(), members.end(),
                   [&](std::size_t a, std::size_t b) { return all[a].group < all[b].group; });
  const std::int64_t begin = units_.empty() ? 0 : units_.back().end;
  std::int64_t end = begin;
  for (const std::size_t member : members) {
    const Parameter& parameter = all[member];
    if (stretches_.empty() || stretches_.back().group != parameter.group) {
      stretches_.push_back({{end, end}, parameter.group});
    }
    parameters_.push_back(parameter.tensor);
    given_.push_back(member);
    offsets_.push_back(end);
    end += round_up(parameter.tensor.numel(), kAlignment);
    stretches_.back().range.end = end;
  }
  end = begin + round_up(end - begin, kAlignment * parts_);
  if (end == begin) return;
  stretches_.back().range.end = end;
  units_.push_back({begin, end});
}

std::size_t FlatParameters::unit_of(std::size_t i) const {
  const auto behind = std::upper_bound(units_.begin(), units_.end(), offsets_[i],
                                       [](std::int64_t offset, const Range& unit) { return offset < unit.end; });
  return static_cast<std::size_t>(behind - units_.begin());
}

void FlatParameters::put(std::size_t i, const at::Tensor& elements) {
  parameters_[i].set_data(shaped_like(elements, parameters_[i]));
  homes_[i] = elements.storage().unsafeGetStorageImpl();
}

void FlatParameters::point_to(const at::Tensor& buffer) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) put(i, buffer.narrow(0, offsets_[i], parameters_[i].numel()));
}

void FlatParameters::become(at::ScalarType dtype) {
  data_ = data_.to(dtype);
  point_to(data_);
}

void FlatParameters::point_to_unit(std::size_t unit, const at::Tensor& buffer) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].numel() == 0) {  // belongs to no unit, and has the dtype of all
      if (unit == 0) put(i, at::empty({0}, buffer.options()));
    } else if (unit_of(i) == unit) {
      put(i, buffer.narrow(0, offsets_[i] - units_[unit].begin, parameters_[i].numel()));
    }
  }
}

std::vector<std::size_t> FlatParameters::in_given_order() const {
  std::vector<std::size_t> order(given_.size());
  for (std::size_t i = 0; i < given_.size(); ++i) order[given_[i]] = i;
  return order;
}

void FlatParameters::check_in_place() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].storage().unsafeGetStorageImpl() == homes_[i]) continue;
    throw OptionError(
        "the model's parameters are not where co2 has put them, so what it does would not reach them: another "
        "Synchronizer or Core was made for the same model, or the model was moved (to(), torch::load()). Make one, "
        "after "
        "the last such change");
  }
}

}  // namespace co2
