#include "flat/flat_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <utility>

#include "flat/places.h"
#include "flat/shaped_like.h"

namespace co2 {

namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

FlatParameters::FlatParameters(torch::optim::Optimizer& optimizer, const FlatLayout& layout) : parts_(layout.parts) {
  std::vector<Entry> entries = trained(optimizer);
  const Places order(layout.order);
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const Entry& a, const Entry& b) { return order.of(a.parameter) < order.of(b.parameter); });

  Places owner;
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    for (const at::Tensor& tensor : layout.units[u]) owner.add(tensor, u);
  }
  std::vector<std::vector<Entry>> units_of_their_own(layout.units.size());
  std::vector<Entry> unit;
  std::int64_t elements = 0;
  for (Entry& entry : entries) {
    const std::size_t own = owner.of(entry.parameter, layout.units.size());
    if (own < layout.units.size()) {
      units_of_their_own[own].push_back(std::move(entry));
      continue;
    }
    elements += entry.parameter.numel();
    unit.push_back(std::move(entry));
    if (layout.unit_elements > 0 && elements >= layout.unit_elements) {
      add_unit(std::exchange(unit, {}));
      elements = 0;
    }
  }
  add_unit(std::move(unit));
  for (std::vector<Entry>& own : units_of_their_own) add_unit(std::move(own));

  const at::NoGradGuard no_grad;
  data_ = at::zeros({numel()}, options());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    shaped_like(data_.narrow(0, offsets_[i], parameters_[i].numel()), parameters_[i]).copy_(parameters_[i]);
  }
  point_to(data_);
}

std::vector<FlatParameters::Entry> FlatParameters::trained(torch::optim::Optimizer& optimizer) {
  std::vector<Entry> entries;
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    for (const at::Tensor& parameter : optimizer.param_groups()[g].params()) {
      if (!parameter.requires_grad()) {
        frozen_.push_back(parameter);
        continue;
      }
      if (!entries.empty()) {
        const at::Tensor& first = entries.front().parameter;
        if (parameter.dtype() != first.dtype() || parameter.device() != first.device()) {
          throw OptionError(
              fmt::format("all trained parameters must have one dtype and device, but there are {} on {} and {} on {}",
                          c10::toString(first.scalar_type()), first.device().str(),
                          c10::toString(parameter.scalar_type()), parameter.device().str()));
        }
      }
      if (!parameter.is_floating_point() || !parameter.device().is_cpu()) {
        throw OptionError(fmt::format("parameters must be floating-point numbers on the CPU, but there is {} on {}",
                                      c10::toString(parameter.scalar_type()), parameter.device().str()));
      }
      entries.push_back({parameter, g});
    }
  }
  if (entries.empty()) throw OptionError("the optimizer has no parameter that requires a gradient");
  return entries;
}

void FlatParameters::add_unit(std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.group < b.group; });
  const std::int64_t begin = units_.empty() ? 0 : units_.back().end;
  std::int64_t end = begin;
  for (const Entry& entry : entries) {
    if (stretches_.empty() || stretches_.back().group != entry.group) stretches_.push_back({{end, end}, entry.group});
    parameters_.push_back(entry.parameter);
    offsets_.push_back(end);
    end += round_up(entry.parameter.numel(), kAlignment);
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
  homes_.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) put(i, buffer.narrow(0, offsets_[i], parameters_[i].numel()));
}

void FlatParameters::become(at::ScalarType dtype) {
  data_ = data_.to(dtype);
  point_to(data_);
}

void FlatParameters::point_to_units(const std::vector<at::Tensor>& buffers) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].numel() == 0) {  // belongs to no unit, but must not keep data() alive
      put(i, at::empty({0}, buffers.front().options()));
      continue;
    }
    const std::size_t u = unit_of(i);
    put(i, buffers[u].narrow(0, offsets_[i] - units_[u].begin, parameters_[i].numel()));
  }
  data_.reset();
}

void FlatParameters::check_in_place() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].storage().unsafeGetStorageImpl() == homes_[i]) continue;
    throw OptionError(
        "the model's parameters are not where this Synchronizer has put them, so what it does would not reach them: "
        "another Synchronizer was made for the same model, or the model was moved (to(), torch::load()). Make one "
        "Synchronizer, after the last such change");
  }
}

void FlatParameters::check_frozen() const {
  for (const at::Tensor& parameter : frozen_) {
    if (parameter.requires_grad()) {
      throw OptionError(
          "a parameter that did not require a gradient when the Synchronizer was made does now: it would "
          "not be exchanged. Make the Synchronizer after the last change of requires_grad");
    }
  }
}

}  // namespace co2
