#include "doctor/interface.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "cluster/environment.h"

namespace co2::doctor {

namespace {

struct Entry {
  std::string name;
  std::string address;
  bool loopback = false;
  bool ip6 = false;
};

std::vector<Entry> all_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    throw ClusterError(fmt::format("can't list the network interfaces: {}", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Entry> entries;
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr || (item->ifa_flags & IFF_UP) == 0) continue;
    const int family = item->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(item->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) continue;
    entries.push_back({item->ifa_name, text.data(), (item->ifa_flags & IFF_LOOPBACK) != 0, family == AF_INET6});
  }
  // An IPv4 address first, as Gloo takes it.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.ip6 < b.ip6; });
  return entries;
}

std::filesystem::path system_folder(const std::string& name) { return std::filesystem::path("/sys/class/net") / name; }

bool has_hardware(const std::string& name) {
  std::error_code ignored;
  return std::filesystem::exists(system_folder(name) / "device", ignored);
}

double advertised_speed(const std::string& name) {
  double megabits = 0;
  std::ifstream(system_folder(name) / "speed") >> megabits;  // -1, or unreadable, where there is none
  return megabits > 0 ? megabits * 1e6 : 0;
}

}  // namespace

Interface own_interface(const Rendezvous& rendezvous) {
  const std::vector<Entry> all = all_interfaces();
  const bool named = !rendezvous.interface.empty();
  const std::string address = named ? "" : local_address_towards(rendezvous.host);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Entry& entry) {
    return named ? entry.name == rendezvous.interface : entry.address == address;
  });
  if (named && found == all.end()) {
    std::vector<std::string> names;
    for (const Entry& entry : all) {
      if (std::find(names.begin(), names.end(), entry.name) == names.end()) names.push_back(entry.name);
    }
    throw ClusterError(
        fmt::format("rank {}: there is no network interface '{}' that is up and has an address. Those that do: {}",
                    rendezvous.rank, rendezvous.interface, fmt::join(names, ", ")));
  }
  Interface result;
  result.address = address;
  if (found == all.end()) return result;
  result.name = found->name;
  result.address = found->address;
  result.loopback = found->loopback;
  result.bridge = is_bridge_name(found->name);
  result.bits_per_second = advertised_speed(found->name);
  const auto physical = std::find_if(all.begin(), all.end(), [&](const Entry& entry) {
    return entry.name != found->name && has_hardware(entry.name);
  });
  if (physical != all.end()) result.physical = physical->name;
  return result;
}

bool is_bridge_name(std::string_view name) {
  constexpr std::array kPrefixes = {"docker",  "br-",  "virbr", "veth",  "cni",
                                    "flannel", "cali", "lxc",   "lxdbr", "podman"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](const char* prefix) { return name.starts_with(prefix); });
}

}  // namespace co2::doctor
