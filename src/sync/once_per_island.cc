#include "sync/once_per_island.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <exception>

namespace co2 {

/// The others wait for it: so they are told whether it failed.
void OncePerIsland::read_by_the_first(const std::string& name, const std::function<void()>& read) {
  std::exception_ptr failure;
  try {
    if (first()) read();
  } catch (...) {
    failure = std::current_exception();
  }
  const at::Tensor failed = at::full({1}, failure ? 1.0 : 0.0, at::kDouble);
  island_.inside_control()->broadcast(failed, 0)->wait();
  if (failure) std::rethrow_exception(failure);
  if (failed.item<double>() != 0) {
    throw DataError(fmt::format("the first worker of this island could not read {}: its message says why", name));
  }
}

void OncePerIsland::tensor(const std::string& name, const at::Tensor& value) {
  if (!reads()) {
    if (first()) visitor_.tensor(name, value);
    return;
  }
  read_by_the_first(name, [&] { visitor_.tensor(name, value); });
  const at::Tensor values = value.contiguous();
  island_.inside()->broadcast(values, 0)->wait();
  if (!values.is_same(value)) value.copy_(values);
}

template <typename Number>
void OncePerIsland::any_number(const std::string& name, Number& value) {
  if (!reads()) {
    if (first()) visitor_.number(name, value);
    return;
  }
  read_by_the_first(name, [&] { visitor_.number(name, value); });
  const at::Tensor number = at::full({1}, value, c10::CppTypeToScalarType<Number>::value);
  island_.inside_control()->broadcast(number, 0)->wait();
  value = number.item<Number>();
}

void OncePerIsland::number(const std::string& name, double& value) { any_number(name, value); }
void OncePerIsland::number(const std::string& name, std::int64_t& value) { any_number(name, value); }

}  // namespace co2
