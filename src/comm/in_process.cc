#include "comm/in_process.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/check_parts.h"

namespace co2 {

namespace {

enum class Operation { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll, kBarrier };

std::string_view name(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce: return "all-reduce";
    case Operation::kBroadcast: return "broadcast";
    case Operation::kAllGather: return "all-gather";
    case Operation::kReduceScatter: return "reduce-scatter";
    case Operation::kAllToAll: return "all-to-all";
    case Operation::kBarrier: return "barrier";
  }
  return "?";
}

/// What one rank brings to a collective. Ranks must agree on everything but the tensors' contents.
struct Request {
  Operation operation = Operation::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  at::Tensor output;
  at::Tensor input;

  bool matches(const Request& other) const {
    if (operation != other.operation || reduce != other.reduce || root != other.root) return false;
    if (output.defined() && (output.numel() != other.output.numel() || output.dtype() != other.output.dtype())) {
      return false;
    }
    return !input.defined() || input.numel() == other.input.numel();
  }
};

class PendingWork final : public Work {
 public:
  /// `rank`: in the cluster.
  PendingWork(std::string operation, int rank, std::chrono::milliseconds timeout)
      : operation_(std::move(operation)), rank_(rank), timeout_(timeout) {}

  bool completed() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void wait(std::chrono::milliseconds timeout) override {
    if (timeout.count() <= 0) timeout = timeout_;
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return done_; })) {
      throw CommError({operation_, rank_, -1, ""},
                      fmt::format("not over after {} ms: another worker has not come to it", timeout.count()));
    }
    if (!failure_.empty()) throw CommError({operation_, rank_, -1, ""}, failure_);
  }
  Clock::time_point started() const override { return started_; }
  Clock::time_point finished() const override {
    const std::lock_guard lock(mutex_);
    return finished_;
  }

  void then(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (!done_) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }

  void complete(const std::string& failure) {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      if (done_) return;
      done_ = true;
      failure_ = failure;
      finished_ = Clock::now();
      changed_.notify_all();
      callbacks.swap(callbacks_);
    }
    for (const auto& callback : callbacks) callback();
  }

 private:
  const std::string operation_;
  const int rank_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point started_ = Clock::now();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::string failure_;
  Clock::time_point finished_;
  std::vector<std::function<void()>> callbacks_;
};

void accumulate(const at::Tensor& into, const at::Tensor& other, ReduceOp op) {
  if (op == ReduceOp::kSum) {
    into.add_(other);
  } else {
    at::maximum_out(const_cast<at::Tensor&>(into), into, other);
  }
}

/// Reduces in order of rank and gives everybody the result.
at::Tensor reduce(const std::vector<at::Tensor>& parts, ReduceOp op) {
  at::Tensor total = parts[0].clone();
  for (std::size_t r = 1; r < parts.size(); ++r) accumulate(total, parts[r], op);
  return total;
}

void carry_out(const std::vector<Request>& requests) {
  const at::NoGradGuard no_grad;
  const Request& first = requests.front();
  const auto size = static_cast<std::int64_t>(requests.size());
  switch (first.operation) {
    case Operation::kAllReduce: {
      std::vector<at::Tensor> parts;
      for (const Request& r : requests) parts.push_back(r.output);
      const at::Tensor total = reduce(parts, first.reduce);
      for (const Request& r : requests) r.output.copy_(total);
      break;
    }
    case Operation::kBroadcast:
      for (const Request& r : requests) {
        const at::Tensor& source = requests[static_cast<std::size_t>(first.root)].output;
        if (!r.output.is_same(source)) r.output.copy_(source);
      }
      break;
    case Operation::kAllGather:
      for (const Request& r : requests) {
        const std::int64_t n = first.input.numel();
        for (std::int64_t i = 0; i < size; ++i) {
          r.output.view({-1}).narrow(0, i * n, n).copy_(requests[static_cast<std::size_t>(i)].input.view({-1}));
        }
      }
      break;
    case Operation::kReduceScatter: {
      const std::int64_t n = first.output.numel();
      for (std::int64_t i = 0; i < size; ++i) {
        std::vector<at::Tensor> parts;
        for (const Request& r : requests) parts.push_back(r.input.view({-1}).narrow(0, i * n, n));
        const at::Tensor& output = requests[static_cast<std::size_t>(i)].output;
        output.copy_(reduce(parts, first.reduce).view(output.sizes()));
      }
      break;
    }
    case Operation::kAllToAll: {
      const std::int64_t n = first.input.numel() / size;
      for (std::int64_t to = 0; to < size; ++to) {
        const at::Tensor output = requests[static_cast<std::size_t>(to)].output.view({-1});
        for (std::int64_t from = 0; from < size; ++from) {
          const at::Tensor input = requests[static_cast<std::size_t>(from)].input.view({-1});
          output.narrow(0, from * n, n).copy_(input.narrow(0, to * n, n));
        }
      }
      break;
    }
    case Operation::kBarrier: break;
  }
}

}  // namespace

/// Invariants: calls_[i] is the i-th collective after those already carried out; rank r has joined the first
/// joined_[r] of them. Once failure_ is set, every collective fails with it.
class InProcessGroup::Engine {
 public:
  Engine(std::vector<int> ranks, std::chrono::milliseconds timeout, std::function<void()> before_collective)
      : timeout_(timeout),
        before_collective_(std::move(before_collective)),
        ranks_(std::move(ranks)),
        size_(ranks_.size()),
        joined_(size_, 0),
        gone_(size_, false),
        thread_([this] { run(); }) {}

  ~Engine() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  WorkPtr start(int rank, Request request) {
    auto work = std::make_shared<PendingWork>(std::string(name(request.operation)), rank_in_cluster(rank), timeout_);
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) {
      work->complete(failure_);
      return work;
    }
    const std::size_t position = joined_[static_cast<std::size_t>(rank)]++;
    if (position == calls_.size()) {
      calls_.push_back({std::vector<Request>(size_), std::vector<std::shared_ptr<PendingWork>>(size_), 0});
    }
    Call& call = calls_[position];
    call.requests[static_cast<std::size_t>(rank)] = std::move(request);
    call.works[static_cast<std::size_t>(rank)] = work;
    ++call.arrived;
    changed_.notify_all();
    return work;
  }

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    gone_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }

  int size() const { return static_cast<int>(size_); }
  int rank_in_cluster(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)); }

 private:
  struct Call {
    std::vector<Request> requests;
    std::vector<std::shared_ptr<PendingWork>> works;
    std::size_t arrived = 0;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || ready() || missing_rank() >= 0; });
      if (ready()) {
        Call call = std::move(calls_.front());
        calls_.pop_front();
        for (std::size_t& joined : joined_) --joined;
        lock.unlock();
        const std::string failure = execute(call);
        for (const auto& work : call.works) work->complete(failure);
        call = {};
        lock.lock();
        if (!failure.empty()) fail(failure);
      } else if (const int missing = missing_rank(); missing >= 0) {
        fail(fmt::format("rank {} has left the group", rank_in_cluster(missing)));
      } else if (stopping_) {
        return;
      }
    }
  }

  bool ready() const { return !calls_.empty() && calls_.front().arrived == size_; }

  /// A rank that has left before it joined the next collective, which can therefore never be carried out; or -1.
  int missing_rank() const {
    if (calls_.empty()) return -1;
    for (std::size_t r = 0; r < size_; ++r) {
      if (gone_[r] && !calls_.front().works[r]) return static_cast<int>(r);
    }
    return -1;
  }

  std::string execute(const Call& call) const {
    try {
      if (before_collective_) before_collective_();
      for (const Request& request : call.requests) {
        if (!request.matches(call.requests.front())) return "ranks started different collectives";
      }
      carry_out(call.requests);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  void fail(const std::string& failure) {
    failure_ = failure;
    for (Call& call : calls_) {
      for (const auto& work : call.works) {
        if (work) work->complete(failure_);
      }
    }
    calls_.clear();
    std::fill(joined_.begin(), joined_.end(), 0);
  }

  const std::chrono::milliseconds timeout_;
  const std::function<void()> before_collective_;
  const std::vector<int> ranks_;  // in the cluster
  const std::size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  std::vector<std::size_t> joined_;
  std::string failure_;
  std::vector<bool> gone_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

namespace {

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<InProcessGroup::Engine> engine, int rank)
      : engine_(std::move(engine)), rank_(rank) {}
  ~InProcessCommunicator() override { engine_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return engine_->size(); }
  int rank_in_cluster(int rank) const override { return engine_->rank_in_cluster(rank); }
  std::string backend() const override { return "in-process"; }
  bool carries(c10::DeviceType) const override { return true; }  // operators add up, wherever tensors are

  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    return start({Operation::kAllReduce, op, 0, tensor, {}});
  }
  WorkPtr broadcast(const at::Tensor& tensor, int root) override {
    TORCH_CHECK(root >= 0 && root < size(), "broadcast from rank ", root, " of ", size());
    return start({Operation::kBroadcast, ReduceOp::kSum, root, tensor, {}});
  }
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input) override {
    check_parts("all_gather", output, input, size());
    return start({Operation::kAllGather, ReduceOp::kSum, 0, output, input});
  }
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    check_parts("reduce_scatter", input, output, size());
    return start({Operation::kReduceScatter, op, 0, output, input});
  }
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input) override {
    check_all_to_all(output, input, size());
    return start({Operation::kAllToAll, ReduceOp::kSum, 0, output, input});
  }
  WorkPtr barrier() override { return start({}); }
  std::int64_t reduce_scatter_scratch_bytes(std::int64_t) const override { return 0; }
  std::int64_t all_reduce_wire_bytes(std::int64_t bytes) const override {
    // As a ring would send, so that virtual workers show the traffic of real ones.
    return 2 * bytes * (size() - 1) / size();
  }

 private:
  WorkPtr start(Request request) {
    for (const at::Tensor& tensor : {request.output, request.input}) {
      TORCH_CHECK(!tensor.defined() || tensor.is_contiguous(), "collectives need contiguous tensors");
    }
    return engine_->start(rank_, std::move(request));
  }

  std::shared_ptr<InProcessGroup::Engine> engine_;
  int rank_;
};

}  // namespace

InProcessGroup::InProcessGroup(std::vector<int> ranks, std::chrono::milliseconds timeout,
                               std::function<void()> before_collective)
    : engine_(std::make_shared<Engine>(std::move(ranks), timeout, std::move(before_collective))) {}

std::shared_ptr<Communicator> InProcessGroup::join(int rank) {
  return std::make_shared<InProcessCommunicator>(engine_, rank);
}

void InProcessGroup::leave(int rank) { engine_->leave(rank); }

}  // namespace co2
