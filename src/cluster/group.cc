#include "cluster/group.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <cstring>
#include <exception>

namespace co2 {

OtherFailed::OtherFailed(const std::string& what)
    : DataError(fmt::format("another worker could not {}; its own message says why", what)) {}

bool Group::agree(bool mine) {
  const auto refused = at::full({1}, mine ? 0.0 : 1.0, at::kDouble);
  communicator_->all_reduce(refused, ReduceOp::kMax)->wait();
  return refused.item<double>() == 0;
}

void Group::all_or_none(const std::string& what, const std::function<void()>& body) {
  std::exception_ptr failure;
  try {
    body();
  } catch (const CommError&) {
    throw;  // the group itself is broken: no point in asking it
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  const bool all = agree(!failure);
  if (failure) std::rethrow_exception(failure);
  if (!all) throw OtherFailed(what);
}

std::vector<double> Group::sum(const std::vector<double>& mine) {
  const auto values = at::empty({static_cast<std::int64_t>(mine.size())}, at::kDouble);
  std::memcpy(values.data_ptr(), mine.data(), mine.size() * sizeof(double));
  communicator_->all_reduce(values, ReduceOp::kSum)->wait();
  return {values.data_ptr<double>(), values.data_ptr<double>() + mine.size()};
}

std::vector<std::string> Group::gather(const std::string& mine) {
  const auto lengths = at::zeros({communicator_->size()}, at::kLong);
  const auto length = at::full({1}, static_cast<std::int64_t>(mine.size()), at::kLong);
  communicator_->all_gather(lengths, length)->wait();
  // One after the other: a worker then never holds more than all texts, without padding to the longest.
  std::vector<std::string> texts;
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    const auto bytes = lengths[rank].item<std::int64_t>();
    auto buffer = at::empty({bytes}, at::kByte);
    if (rank == communicator_->rank() && bytes > 0) std::memcpy(buffer.data_ptr(), mine.data(), mine.size());
    if (bytes > 0) communicator_->broadcast(buffer, rank)->wait();
    texts.emplace_back(static_cast<const char*>(buffer.data_ptr()), static_cast<std::size_t>(bytes));
  }
  return texts;
}

void Group::barrier() { communicator_->barrier()->wait(); }

}  // namespace co2
