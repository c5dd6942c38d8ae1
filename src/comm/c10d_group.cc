// The one file that includes c10d's inner headers, and through them Gloo's (see gloo_headers/).
#include "comm/c10d_group.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <regex>

#include "comm/thread_cpu.h"

namespace co2 {

namespace {

/// LibTorch appends a C++ stack to its messages, which helps nobody who reads about a network.
std::string first_lines(const std::exception& error) {
  std::string text;
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    text = torch_error->what_without_backtrace();
  } else {
    text = error.what();
  }
  if (const auto stack = text.find("\nException raised from"); stack != std::string::npos) text.resize(stack);
  return text;
}

std::string peer_in(const std::string& message) {
  static const std::regex address(R"(\[[0-9a-fA-F.:%\w]+\]:\d+)");
  std::smatch match;
  return std::regex_search(message, match, address) ? match.str() : std::string();
}

/// Remembers when the collective was over. The backend's thread calls back, because nobody may be waiting; works of
/// Gloo's reduce-scatter can't call back, and count as over when somebody has waited for them.
struct Completion {
  std::atomic<Clock::time_point::rep> finished{0};
  void now() {
    Clock::time_point::rep never = 0;
    finished.compare_exchange_strong(never, Clock::now().time_since_epoch().count());
  }
};

class C10dWork final : public Work {
 public:
  C10dWork(std::string operation, int rank, c10::intrusive_ptr<c10d::Work> work, bool calls_back)
      : operation_(std::move(operation)), rank_(rank), work_(std::move(work)) {
    if (!calls_back) return;
    work_->getFuture()->addCallback([completion = completion_](c10::ivalue::Future&) { completion->now(); });
  }

  bool completed() const override { return work_->isCompleted(); }

  void wait(std::chrono::milliseconds timeout) override {
    try {
      work_->wait(timeout);
      completion_->now();
    } catch (const std::exception& error) {
      const std::string message = first_lines(error);
      throw CommError({operation_, rank_, -1, peer_in(message)}, message);
    }
  }

  Clock::time_point started() const override { return started_; }
  Clock::time_point finished() const override {
    return Clock::time_point(Clock::duration(completion_->finished.load()));
  }

 private:
  std::string operation_;
  int rank_;
  Clock::time_point started_ = Clock::now();
  std::shared_ptr<Completion> completion_ = std::make_shared<Completion>();
  c10::intrusive_ptr<c10d::Work> work_;
};

c10d::ReduceOp to_c10d(ReduceOp op) { return op == ReduceOp::kSum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX; }

class C10dCommunicator final : public Communicator {
 public:
  explicit C10dCommunicator(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }
  std::string backend() const override { return "c10d/gloo"; }

  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(op);
    return start("all-reduce", [&] { return group_->allreduce(tensors, options); });
  }
  WorkPtr broadcast(const at::Tensor& tensor, int root) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return start("broadcast", [&] { return group_->broadcast(tensors, options); });
  }
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input) override {
    at::Tensor out = output.view({-1});
    at::Tensor in = input.view({-1});
    return start("all-gather", [&] { return group_->all_gather_single(out, in); });
  }
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    at::Tensor out = output.view({-1});
    at::Tensor in = input.view({-1});
    c10d::ReduceScatterOptions options;
    options.reduceOp = to_c10d(op);
    return start(
        "reduce-scatter", [&] { return group_->reduce_scatter_single(out, in, options); }, false);
  }
  WorkPtr barrier() override {
    return start("barrier", [&] { return group_->barrier(); });
  }
  double background_cpu_seconds() const override { return cpu_seconds_of_threads("gloo"); }
  std::int64_t all_reduce_wire_bytes(std::int64_t bytes) const override {
    return 2 * bytes * (size() - 1) / size();  // a ring: reduce-scatter, then all-gather
  }

 private:
  template <typename Start>
  WorkPtr start(const char* operation, const Start& begin, bool calls_back = true) {
    try {
      return std::make_shared<C10dWork>(operation, rank(), begin(), calls_back);
    } catch (const std::exception& error) {
      const std::string message = first_lines(error);
      throw CommError({operation, rank(), -1, peer_in(message)}, message);
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

struct C10dGroups::Impl {
  Rendezvous rendezvous;
  c10::intrusive_ptr<c10d::Store> store;
  // One for all groups: the thread of a Gloo device wakes up a hundred times a second, also when there is nothing to
  // do, which on a busy core takes a quarter of a percent of its time.
  std::shared_ptr<gloo::transport::Device> device;
  int groups_made = 0;  // so that a name can be used again without meeting its old keys in the store
};

C10dGroups::C10dGroups(Rendezvous rendezvous) : impl_(std::make_unique<Impl>()) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(rendezvous.port);
  options.isServer = rendezvous.rank == 0 && !rendezvous.store_exists;
  options.waitWorkers = !rendezvous.store_exists;
  options.numWorkers = static_cast<std::size_t>(rendezvous.size);
  options.timeout = rendezvous.rendezvous_timeout;
  if (options.isServer && rendezvous.listen_fd >= 0) options.masterListenFd = rendezvous.listen_fd;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(rendezvous.host, options);
    impl_->store = c10::make_intrusive<c10d::PrefixStore>("co2/" + rendezvous.generation, std::move(store));
  } catch (const std::exception& error) {
    const std::string message = first_lines(error);
    const bool in_use = message.find("EADDRINUSE") != std::string::npos;
    throw ClusterError(fmt::format(
        "rank {} of {} can't {} the rendezvous at {}:{} within {} s: {}. {}", rendezvous.rank, rendezvous.size,
        options.isServer ? "serve" : "reach", rendezvous.host, rendezvous.port,
        std::chrono::duration_cast<std::chrono::seconds>(rendezvous.rendezvous_timeout).count(), message,
        in_use ? "The port is in use: choose another one (MASTER_PORT or --port)"
               : "Check that rank 0 runs there, that all workers were started, and that no firewall is between them"));
  }
  impl_->rendezvous = std::move(rendezvous);
}

C10dGroups::~C10dGroups() = default;

std::shared_ptr<Communicator> C10dGroups::make(const std::string& name, const std::vector<int>& ranks, int place) {
  const Rendezvous& r = impl_->rendezvous;
  const auto size = static_cast<int>(ranks.size());
  try {
    auto options = c10d::ProcessGroupGloo::Options::create(r.collective_timeout);
    if (!impl_->device) {
      impl_->device = r.interface.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(r.address)
                                          : c10d::ProcessGroupGloo::createDeviceForInterface(r.interface);
    }
    options->devices.push_back(impl_->device);
    auto store = c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("group{}/{}/{}", impl_->groups_made++, name, fmt::join(ranks, ",")), impl_->store);
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, place, size, std::move(options));
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, place, size);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    return std::make_shared<C10dCommunicator>(std::move(group));
  } catch (const std::exception& error) {
    throw ClusterError(fmt::format(
        "rank {} can't connect to the other workers through {}: {}. Name the network interface that leads to them "
        "(--interface, or GLOO_SOCKET_IFNAME)",
        r.rank, r.interface.empty() ? "address " + r.address : "interface " + r.interface, first_lines(error)));
  }
}

struct StoreClient::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreClient::StoreClient(const Rendezvous& r) : impl_(std::make_unique<Impl>()) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(r.port);
  options.waitWorkers = false;
  options.timeout = r.rendezvous_timeout;
  try {
    impl_->store = c10::make_intrusive<c10d::TCPStore>(r.host, options);
  } catch (const std::exception& error) {
    throw ClusterError(
        fmt::format("rank {} lost the rendezvous at {}:{}: {}", r.rank, r.host, r.port, first_lines(error)));
  }
}

StoreClient::~StoreClient() = default;
StoreClient::StoreClient(StoreClient&&) noexcept = default;

void StoreClient::set(const std::string& key, const std::string& text) {
  impl_->store->set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::optional<std::string> StoreClient::get(const std::string& key) {
  try {
    const auto bytes = impl_->store->get(key);
    return std::string(bytes.begin(), bytes.end());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace co2
