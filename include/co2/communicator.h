#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace co2 {

using Clock = std::chrono::steady_clock;

/// A collective that has been started.
///
/// Thread safety: every member may be called from any thread.
/// Lifetime: destroying a Work does not wait and does not cancel; the backend keeps the tensors alive until the
/// collective is over.
class Work {
 public:
  virtual ~Work() = default;

  /// True once the collective is over, successfully or not. Never blocks.
  virtual bool completed() const = 0;

  /// After it, whatever the calling thread does with the tensors sees the result. In host memory that means that it
  /// blocks (asleep, not spinning) until the collective is over; a backend for a device with streams may let the
  /// current stream wait instead. Throws CommError if it failed or if `timeout` passed first. Zero means the group's
  /// own timeout.
  virtual void wait(std::chrono::milliseconds timeout = std::chrono::milliseconds::zero()) = 0;

  /// Runs `callback` once the collective is over, successfully or not: at once if it is already, otherwise on a thread
  /// of the backend, which it must not keep: it may note that something is over, and wake somebody.
  virtual void then(std::function<void()> callback) = 0;

  /// When the collective was started, and when it was over (meaningful once completed()).
  virtual Clock::time_point started() const = 0;
  virtual Clock::time_point finished() const = 0;
};

using WorkPtr = std::shared_ptr<Work>;

enum class ReduceOp { kSum, kMax };

/// Asynchronous collectives over one group of ranks. Every rank of the group must start the same collectives in the
/// same order. Tensors are contiguous, and belong to the collective until its Work is completed.
///
/// Thread safety: one thread at a time may start collectives; the Works may be used anywhere.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// What one of its ranks is called in the cluster, for whoever reads an error: a group of some of the workers counts
  /// them anew, and its rank 1 may be worker 3. As it stands: a group of all workers, in their order.
  virtual int rank_in_cluster(int rank) const { return rank; }
  virtual std::string backend() const = 0;
  /// Whether its collectives take tensors that are on this kind of device.
  virtual bool carries(c10::DeviceType device) const = 0;

  /// tensor[i] = op over ranks of tensor[i]; the result is the same on every rank, bit for bit.
  virtual WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op) = 0;
  virtual WorkPtr broadcast(const at::Tensor& tensor, int root) = 0;
  /// output has size() * input.numel() elements: the inputs of all ranks in order.
  virtual WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  /// input has size() * output.numel() elements; rank r receives the reduction of everybody's r-th part.
  virtual WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) = 0;
  /// Both have size() equal parts: part r of the input goes to rank r, part r of the output comes from it.
  virtual WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input) = 0;
  virtual WorkPtr barrier() = 0;

  /// Bytes that one rank sends for an all-reduce of `bytes`, with this backend's algorithm.
  virtual std::int64_t all_reduce_wire_bytes(std::int64_t bytes) const = 0;
  /// Bytes that a reduce-scatter of `bytes` needs besides its tensors until it is over.
  virtual std::int64_t reduce_scatter_scratch_bytes(std::int64_t bytes) const = 0;

  /// Processor time that the backend's own threads in this process have used so far, over all groups; 0 if it can't
  /// tell.
  virtual double background_cpu_seconds() const { return 0; }
};

}  // namespace co2
