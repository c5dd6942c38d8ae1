// The one file that includes c10d's inner headers, and through them Gloo's (see gloo_headers/).
#include "comm/c10d_group.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <csignal>
#include <functional>
#include <regex>

#include "comm/check_parts.h"
#include "comm/completion.h"
#include "comm/scratch.h"
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

/// One collective, as one or more of c10d's.
class C10dWork final : public Work {
 public:
  using Parts = std::vector<c10::intrusive_ptr<c10d::Work>>;

  /// `rank`: in the cluster.
  C10dWork(std::string operation, int rank, Parts parts, std::function<void()> at_last)
      : operation_(std::move(operation)),
        rank_(rank),
        parts_(std::move(parts)),
        completion_(std::make_shared<Completion>(parts_.size(), std::move(at_last))) {
    for (const auto& part : parts_) {
      part->getFuture()->addCallback(
          [completion = completion_](c10::ivalue::Future& future) { completion->one_over(future.hasError()); });
    }
  }

  bool completed() const override { return completion_->over(); }

  void wait(std::chrono::milliseconds timeout) override {
    // For all parts, also when one has failed: as long as any of them is under way, its memory is not free.
    std::string failure;
    for (const auto& part : parts_) {
      try {
        part->wait(timeout);
      } catch (const std::exception& error) {
        if (failure.empty()) failure = first_lines(error);
      }
    }
    if (!failure.empty()) throw CommError({operation_, rank_, -1, peer_in(failure)}, failure);
    completion_->all_over();
  }

  void then(std::function<void()> callback) override { completion_->then(std::move(callback)); }

  Clock::time_point started() const override { return started_; }
  Clock::time_point finished() const override { return completion_->finished(); }

 private:
  std::string operation_;
  int rank_;
  Clock::time_point started_ = Clock::now();
  Parts parts_;
  std::shared_ptr<Completion> completion_;
};

/// Adds up, or takes the largest of, everybody's part in the order of ranks. In small pieces: on the backend's thread a
/// large one would wake a second set of LibTorch's threads beside those of the training thread.
void reduce_in_order(const at::Tensor& output, const std::vector<at::Tensor>& parts, ReduceOp op) {
  constexpr std::int64_t kPiece = 16384;  // elements: LibTorch does not divide what has less than 32768
  const at::NoGradGuard no_grad;
  for (std::int64_t begin = 0; begin < output.numel(); begin += kPiece) {
    const std::int64_t size = std::min(kPiece, output.numel() - begin);
    at::Tensor total = output.narrow(0, begin, size);
    total.copy_(parts[0].narrow(0, begin, size));
    for (std::size_t rank = 1; rank < parts.size(); ++rank) {
      const at::Tensor part = parts[rank].narrow(0, begin, size);
      op == ReduceOp::kSum ? total.add_(part) : at::maximum_out(total, total, part);
    }
  }
}

c10d::ReduceOp to_c10d(ReduceOp op) { return op == ReduceOp::kSum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX; }

class C10dCommunicator final : public Communicator {
 public:
  /// `ranks`: of its workers in the cluster; empty: all of them, in their order.
  C10dCommunicator(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<int> ranks)
      : group_(std::move(group)), ranks_(std::move(ranks)) {}

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }
  int rank_in_cluster(int rank) const override {
    return ranks_.empty() ? rank : ranks_.at(static_cast<std::size_t>(rank));
  }
  std::string backend() const override { return "c10d/" + group_->getBackendName(); }
  bool carries(c10::DeviceType device) const override {
    const auto devices = group_->getDeviceTypes();
    return std::any_of(devices.begin(), devices.end(), [&](const c10::Device& d) { return d.type() == device; });
  }

  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(op);
    return start("all-reduce", [&] { return C10dWork::Parts{group_->allreduce(tensors, options)}; });
  }
  WorkPtr broadcast(const at::Tensor& tensor, int root) override {
    return start("broadcast", [&] { return C10dWork::Parts{broadcast_from(root, tensor)}; });
  }
  /// With Gloo a broadcast of each part, which arrives where it belongs: its own goes through a copy of everything.
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input) override {
    check_parts("all_gather", output, input, size());
    if (!by_gloo(input)) {
      at::Tensor out = output.view({-1});
      at::Tensor in = input.view({-1});
      return start("all-gather", [&] { return C10dWork::Parts{group_->all_gather_single(out, in)}; });
    }
    const std::vector<at::Tensor> places = parts_of(output);
    const at::Tensor& mine = places[static_cast<std::size_t>(rank())];
    if (mine.data_ptr() != input.data_ptr()) mine.copy_(input.view({-1}));
    return start("all-gather", [&] {
      C10dWork::Parts parts;
      for (int root = 0; root < size(); ++root) {
        parts.push_back(broadcast_from(root, places[static_cast<std::size_t>(root)]));
      }
      return parts;
    });
  }
  /// With Gloo everybody's parts go to their owner, who adds them up, in the order of ranks: its own is an all-reduce
  /// of everything, twice the bytes.
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    check_parts("reduce_scatter", input, output, size());
    if (!by_gloo(input)) {
      at::Tensor out = output.view({-1});
      at::Tensor in = input.view({-1});
      c10d::ReduceScatterOptions options;
      options.reduceOp = to_c10d(op);
      return start("reduce-scatter", [&] { return C10dWork::Parts{group_->reduce_scatter_single(out, in, options)}; });
    }
    const auto received = scratch_->borrow(input);
    const auto reduce = [total = output.view({-1}), received, parts = parts_of(*received), op] {
      reduce_in_order(total, parts, op);
    };
    return start(
        "reduce-scatter", [&] { return C10dWork::Parts{exchange_parts(*received, input)}; }, reduce);
  }
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input) override {
    check_all_to_all(output, input, size());
    return start("all-to-all", [&] { return C10dWork::Parts{exchange_parts(output, input)}; });
  }
  WorkPtr barrier() override {
    return start("barrier", [&] { return C10dWork::Parts{group_->barrier()}; });
  }
  double background_cpu_seconds() const override { return cpu_seconds_of_threads("gloo"); }
  std::int64_t reduce_scatter_scratch_bytes(std::int64_t bytes) const override { return by_gloo_ ? bytes : 0; }
  std::int64_t all_reduce_wire_bytes(std::int64_t bytes) const override {
    return 2 * bytes * (size() - 1) / size();  // a ring: reduce-scatter, then all-gather
  }

 private:
  template <typename Start>
  WorkPtr start(const char* operation, const Start& begin, std::function<void()> at_last = nullptr) {
    try {
      return std::make_shared<C10dWork>(operation, rank_in_cluster(rank()), begin(), std::move(at_last));
    } catch (const std::exception& error) {
      const std::string message = first_lines(error);
      throw CommError({operation, rank_in_cluster(rank()), -1, peer_in(message)}, message);
    }
  }

  c10::intrusive_ptr<c10d::Work> broadcast_from(int root, const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return group_->broadcast(tensors, options);
  }

  c10::intrusive_ptr<c10d::Work> exchange_parts(const at::Tensor& output, const at::Tensor& input) {
    at::Tensor out = output.view({-1});
    at::Tensor in = input.view({-1});
    std::vector<std::int64_t> equal;
    return group_->all_to_all_single(out, in, equal, equal);
  }

  /// One part for each rank.
  std::vector<at::Tensor> parts_of(const at::Tensor& tensor) const {
    std::vector<at::Tensor> parts;
    const std::int64_t part = tensor.numel() / size();
    for (int rank = 0; rank < size(); ++rank) parts.push_back(tensor.view({-1}).narrow(0, rank * part, part));
    return parts;
  }

  /// Who carries tensors like this one: a group may have a backend per device.
  bool by_gloo(const at::Tensor& tensor) const {
    return group_->getBackend(tensor.device().type())->getBackendName() == "gloo";
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const std::vector<int> ranks_;
  const std::shared_ptr<Scratch> scratch_ = std::make_shared<Scratch>();
  const bool by_gloo_ = group_->getBackendName() == "gloo";
};

}  // namespace

std::shared_ptr<Communicator> communicator_over(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<int> ranks) {
  if (!group) throw OptionError("there is no process group: make one first");
  if (!ranks.empty() && static_cast<int>(ranks.size()) != group->getSize()) {
    throw OptionError(fmt::format("ranks = {} is not allowed for a group of {} workers: name each of them once",
                                  fmt::join(ranks, ","), group->getSize()));
  }
  return std::make_shared<C10dCommunicator>(std::move(group), std::move(ranks));
}

struct C10dGroups::Impl {
  Rendezvous rendezvous;  // of a job that has a store of its own, only ranks, addresses and timeouts
  c10::intrusive_ptr<c10d::Store> store;
  // One for all groups: the thread of a Gloo device wakes up a hundred times a second, also when there is nothing to
  // do, which on a busy core takes a quarter of a percent of its time.
  std::shared_ptr<gloo::transport::Device> device;
  int groups_made = 0;  // so that a name can be used again without meeting its old keys in the store
};

namespace {
/// Gloo and c10d's store write to sockets whose peer may have just died, and expect an error from that: they were made
/// for Python, which ignores SIGPIPE. By default the signal would end this process too, without a word.
void survive_dead_peers() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}
}  // namespace

C10dGroups::C10dGroups(Rendezvous rendezvous) : impl_(std::make_unique<Impl>()) {
  survive_dead_peers();
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
  check_reachable();
}

C10dGroups::C10dGroups(Rendezvous place, c10::intrusive_ptr<c10d::Store> store) : impl_(std::make_unique<Impl>()) {
  survive_dead_peers();
  try {
    // Somebody may do this several times with one store.
    const std::int64_t turn = store->add(fmt::format("co2/over/{}", place.rank), 1);
    impl_->store =
        c10::make_intrusive<c10d::PrefixStore>(fmt::format("co2/over/{}/{}", turn, place.generation), std::move(store));
  } catch (const std::exception& error) {
    throw ClusterError(fmt::format("rank {} of {} can't use the store of its process group: {}", place.rank, place.size,
                                   first_lines(error)));
  }
  impl_->rendezvous = std::move(place);
}

/// A host's own name often leads to its loopback (Debian: 127.0.1.1), where the others can't reach it. They would find
/// out much later, with an error about their own address.
void C10dGroups::check_reachable() const {
  const Rendezvous& r = impl_->rendezvous;
  const std::string chosen = "interface";  // named by the user, who knows where it leads
  const std::string own = r.interface.empty() ? r.address : chosen;
  const auto key = [](int rank) { return fmt::format("address/{}", rank); };
  const auto is_loopback = [](const std::string& address) { return address.starts_with("127.") || address == "::1"; };
  impl_->store->set(key(r.rank), std::vector<std::uint8_t>(own.begin(), own.end()));
  const int other = r.rank == 0 ? r.size - 1 : 0;
  std::string address;
  try {
    const auto bytes = impl_->store->get(key(other));
    address.assign(bytes.begin(), bytes.end());
  } catch (const std::exception& error) {
    throw ClusterError(fmt::format("rank {} has not heard of rank {}: {}", r.rank, other, first_lines(error)));
  }
  if (address == chosen || own == chosen || is_loopback(address) == is_loopback(own)) return;
  const bool mine = is_loopback(own);
  throw ClusterError(fmt::format(
      "rank {} would listen on {}, its own loopback, where rank {} ({}) can't reach it: give all workers an address "
      "instead of the name '{}' (MASTER_ADDR, or --host), or name the interface (--interface, or GLOO_SOCKET_IFNAME)",
      mine ? r.rank : other, mine ? own : address, mine ? other : r.rank, mine ? address : own, r.host));
}

C10dGroups::~C10dGroups() = default;

std::shared_ptr<Communicator> C10dGroups::make(const std::string& name, const std::vector<int>& ranks, int place) {
  const Rendezvous& r = impl_->rendezvous;
  const auto size = static_cast<int>(ranks.size());
  try {
    auto options = c10d::ProcessGroupGloo::Options::create(r.collective_timeout);
    if (!impl_->device) {
      using Gloo = c10d::ProcessGroupGloo;
      impl_->device = !r.interface.empty() ? Gloo::createDeviceForInterface(r.interface)
                      : !r.address.empty() ? Gloo::createDeviceForHostname(r.address)
                                           : Gloo::createDefaultDevice();
    }
    options->devices.push_back(impl_->device);
    auto store = c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("group{}/{}/{}", impl_->groups_made++, name, fmt::join(ranks, ",")), impl_->store);
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, place, size, std::move(options));
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, place, size);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    return std::make_shared<C10dCommunicator>(std::move(group), ranks);
  } catch (const std::exception& error) {
    throw ClusterError(fmt::format(
        "rank {} can't connect to the other workers through {}: {}. Name the network interface that leads to them "
        "(--interface, or GLOO_SOCKET_IFNAME)",
        r.rank,
        !r.interface.empty() ? "interface " + r.interface
        : !r.address.empty() ? "address " + r.address
                             : "the address of its host's name",
        first_lines(error)));
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
