#include "lab/network.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "lab/no_namespaces.h"
#include "lab/tool.h"
#include "processes/worker_environment.h"

namespace co2::lab {

namespace {

constexpr const char* kOwnSpace = "/proc/thread-self/ns/net";

Descriptor own_space() {
  Descriptor space(open(kOwnSpace, O_RDONLY | O_CLOEXEC));
  if (space.get() < 0) throw ClusterError(fmt::format("can't open {}: {}", kOwnSpace, std::strerror(errno)));
  return space;
}

void write_once(const char* path, const std::string& text) {
  const Descriptor file(open(path, O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw ClusterError(why_no_namespaces(errno, fmt::format("can't write {}", path)));
  }
}

constexpr long kLargestPacket = 70 * 1024;  // as the kernel hands it to a network card: 64 KiB, and some room

/// What a token bucket holds: what arrives between two interrupts of a slow timer. On all but slow links at least one
/// packet as the kernel hands it to a network card: a smaller one would cut it up in software, and the receiver would
/// wake up for every 1,500 bytes, which network cards spare real machines by merging packets. (On a slow link a queue
/// of a tenth of a second has no room for packets that large.)
long burst(Rate rate) {
  const double bytes = rate.bits_per_second / 8;
  return std::max(bytes > 6e6 ? kLargestPacket : 8 * 1024, static_cast<long>(bytes * 0.004));
}

/// A token bucket, and a queue as deep as that of a usual router: in a shorter one, a burst from a faster host costs
/// TCP a fifth of the link.
std::string bucket(Rate rate) {
  const long queue = std::max(256L * 1024, static_cast<long>(rate.bits_per_second / 8 * 0.1));
  return fmt::format("tbf rate {:.0f}bit burst {} limit {}", rate.bits_per_second, burst(rate), queue + burst(rate));
}

/// What tc is told, to change the rate of what leaves a device.
std::string change(const std::string& device, Rate from, Rate to) {
  const std::string remove = fmt::format("qdisc del dev {} root\n", device);
  if (to.unlimited()) return remove;
  // The kernel cuts packets up for the bucket when they join the queue, never later. One that waits already and is
  // larger than a smaller bucket would stay for ever, and everything behind it: the link would be dead. So the queue is
  // emptied with the old bucket, and TCP sends again what was in it.
  const bool fits = from.unlimited() || burst(to) >= std::min(burst(from), kLargestPacket);
  return fmt::format("{}qdisc replace dev {} root {}\n", fits ? "" : remove, device, bucket(to));
}

}  // namespace

void leave_machine_network() {
  if (unshare(CLONE_NEWNET) == 0) return;
  if (errno != EPERM) throw ClusterError(why_no_namespaces(errno, "can't make a network namespace"));
  const auto user = getuid();
  const auto group = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    throw ClusterError(why_no_namespaces(errno, "can't make a user namespace"));
  }
  write_once("/proc/self/setgroups", "deny");  // what the kernel wants before the group
  write_once("/proc/self/uid_map", fmt::format("0 {} 1", user));
  write_once("/proc/self/gid_map", fmt::format("0 {} 1", group));
}

std::string Network::address(int host) { return fmt::format("10.0.{}.{}", (host + 1) / 250, (host + 1) % 250); }

Network::Visit::Visit(const Network& network, int space) : network_(network) {
  if (setns(space, CLONE_NEWNET) != 0) throw ClusterError(fmt::format("can't enter a host: {}", std::strerror(errno)));
}
Network::Visit::~Visit() { setns(network_.home_.get(), CLONE_NEWNET); }

Network::Network(int hosts) : home_(own_space()), rates_(static_cast<std::size_t>(hosts)) {
  const auto fresh = [this] {
    if (unshare(CLONE_NEWNET) != 0) throw ClusterError(why_no_namespaces(errno, "can't make a network namespace"));
    Descriptor space = own_space();
    if (setns(home_.get(), CLONE_NEWNET) != 0) {
      throw ClusterError(why_no_namespaces(errno, "can't leave a network namespace"));
    }
    return space;
  };
  switch_ = fresh();
  // No spanning tree and no delay: packets flow at once. No IPv6 addresses: nobody asked for their traffic.
  std::string batch =
      "link add bridge type bridge forward_delay 0 mcast_snooping 0\n"
      "link set bridge addrgenmode none up\n";
  for (int host = 0; host < hosts; ++host) {
    Descriptor space = fresh();
    struct stat status {};
    fstat(space.get(), &status);
    batch += fmt::format(
        "link add host{0} type veth peer name {1} netns /proc/self/fd/{2}\n"
        "link set host{0} master bridge addrgenmode none up\n",
        host, kInterface, space.get());
    hosts_.push_back({std::move(space), address(host), status.st_ino});
  }
  configure(switch_.get(), "ip", batch);
  for (const Host& host : hosts_) {
    configure(host.space.get(), "ip",
              fmt::format("link set lo up\nlink set {0} addrgenmode none\naddr add {1}/16 dev {0}\nlink set {0} up\n",
                          kInterface, host.name));
  }
}

void Network::configure(int space, const std::string& program, const std::string& batch) const {
  Tool tool{.command = {program, "-batch", "-"}, .environment = processes::as_list(processes::own_environment())};
  tool.input = batch;
  tool.prepare = [&] {
    // Kept open, for the paths in /proc/self/fd.
    for (const Host& host : hosts_) fcntl(host.space.get(), F_SETFD, 0);
    return setns(space, CLONE_NEWNET) == 0 ? 0 : errno;
  };
  const ToolResult result = run_tool(tool);
  if (result.timed_out) throw ClusterError(fmt::format("{} {}", program, how_it_ended(tool, result)));
  if (result.code != 0) throw ClusterError(why_not_configured(program, batch, result.errors));
}

void Network::set_rates(const Phase& phase) {
  std::string at_switch;
  for (int host = 0; host < size(); ++host) {
    Rate& current = rates_[static_cast<std::size_t>(host)];
    const Rate wanted = phase.host(host);
    if (wanted == current) continue;
    const int space = hosts_[static_cast<std::size_t>(host)].space.get();
    configure(space, "tc", change(kInterface, current, wanted));        // what the host sends
    at_switch += change(fmt::format("host{}", host), current, wanted);  // what it receives
    current = wanted;
  }
  if (!at_switch.empty()) configure(switch_.get(), "tc", at_switch);
}

int Network::enter(int host) const noexcept {
  const Host& chosen = hosts_[static_cast<std::size_t>(host)];
  if (setns(chosen.space.get(), CLONE_NEWNET) != 0) return errno;
  if (unshare(CLONE_NEWUTS) != 0) return errno;
  return sethostname(chosen.name.data(), chosen.name.size()) == 0 ? 0 : errno;
}

std::vector<pid_t> Network::processes() const {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    struct stat status {};
    if (pid == getpid() || stat((entry.path() / "ns" / "net").c_str(), &status) != 0) continue;
    const bool here =
        std::any_of(hosts_.begin(), hosts_.end(), [&](const Host& host) { return host.inode == status.st_ino; });
    if (here) found.push_back(pid);
  }
  return found;
}

}  // namespace co2::lab
