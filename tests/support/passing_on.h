#pragma once

#include <co2/communicator.h>

#include <memory>
#include <string>
#include <utility>

namespace co2::test {

/// Passes everything on to another communicator: for tests that look at some of it, or change it.
class PassingOn : public Communicator {
 public:
  explicit PassingOn(std::shared_ptr<Communicator> real) : real_(std::move(real)) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  int rank_in_cluster(int rank) const override { return real_->rank_in_cluster(rank); }
  std::string backend() const override { return real_->backend(); }
  bool carries(c10::DeviceType device) const override { return real_->carries(device); }
  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op) override { return real_->all_reduce(tensor, op); }
  WorkPtr broadcast(const at::Tensor& tensor, int root) override { return real_->broadcast(tensor, root); }
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input) override {
    return real_->all_gather(output, input);
  }
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    return real_->reduce_scatter(output, input, op);
  }
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input) override {
    return real_->all_to_all(output, input);
  }
  WorkPtr barrier() override { return real_->barrier(); }
  std::int64_t reduce_scatter_scratch_bytes(std::int64_t bytes) const override {
    return real_->reduce_scatter_scratch_bytes(bytes);
  }
  std::int64_t all_reduce_wire_bytes(std::int64_t bytes) const override { return real_->all_reduce_wire_bytes(bytes); }

 private:
  std::shared_ptr<Communicator> real_;
};

}  // namespace co2::test
