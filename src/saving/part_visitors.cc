#include "saving/part_visitors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace co2 {

namespace {

void require_new(bool is_new, const std::string& name) {
  if (is_new) return;
  throw OptionError(fmt::format(
      "two things are to be saved under the name {}, and only one would come back: give each its own", name));
}

}  // namespace

PartWriter::PartWriter(checkpoint::Part& into, checkpoint::Part memory) : into_(into) {
  for (auto& [name, tensor] : memory.tensors) memory_.emplace(name, std::move(tensor));
}

void PartWriter::number(const std::string& name, double& value) {
  require_new(into_.numbers.emplace(name, value).second, name);
}

void PartWriter::number(const std::string& name, std::int64_t& value) {
  require_new(into_.integers.emplace(name, value).second, name);
}

void PartWriter::tensor(const std::string& name, const at::Tensor& value) {
  require_new(tensors_.insert(name).second, name);
  const at::NoGradGuard no_grad;
  const auto found = memory_.find(name);
  const bool fits = found != memory_.end() && found->second.sizes() == value.sizes() &&
                    found->second.scalar_type() == value.scalar_type();
  at::Tensor copy = fits ? found->second : at::empty(value.sizes(), at::TensorOptions(value.scalar_type()));
  copy.copy_(value);
  if (found != memory_.end()) memory_.erase(found);
  into_.tensors.emplace_back(name, std::move(copy));
}

PartReader::PartReader(const checkpoint::Part& from, std::string file) : from_(from), file_(std::move(file)) {
  for (const auto& [name, tensor] : from.tensors) tensors_.emplace(name, tensor);
}

template <typename Values>
const typename Values::mapped_type& PartReader::found(const Values& values, const std::string& name) {
  const auto value = values.find(name);
  if (value == values.end()) {
    throw DataError(fmt::format(
        "{} has no {}: it is a checkpoint of another model, of other options, or of another program", file_, name));
  }
  read_.insert(name);
  return value->second;
}

void PartReader::tensor(const std::string& name, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  const at::Tensor& saved = found(tensors_, name);
  if (saved.sizes() != value.sizes() || saved.scalar_type() != value.scalar_type()) {
    throw DataError(fmt::format(
        "{} in {} is of {} and shape [{}], and here it is of {} and shape [{}]: it is a checkpoint of another model",
        name, file_, c10::toString(saved.scalar_type()), fmt::join(saved.sizes().vec(), ", "),
        c10::toString(value.scalar_type()), fmt::join(value.sizes().vec(), ", ")));
  }
  value.copy_(saved);
}

void PartReader::require_all_read() const {
  const auto require = [&](const auto& values) {
    for (const auto& [name, value] : values) {
      if (read_.contains(name)) continue;
      throw DataError(
          fmt::format("{} has {}, which this run has no use for: it is of another model or program", file_, name));
    }
  };
  require(from_.tensors);
  require(from_.numbers);
  require(from_.integers);
}

}  // namespace co2
