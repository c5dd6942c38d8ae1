#include "lab/no_namespaces.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/child_process.h"
#include "lab/tool.h"

namespace co2::lab {

namespace {

/// A number in a file of /proc/sys; -1 if there is none.
long setting(const std::string& name) {
  std::ifstream file("/proc/sys/" + name);
  long value = -1;
  return file >> value ? value : -1;
}

constexpr const char* kOtherwise =
    "Otherwise run it as root, or in a container that may have namespaces of its own "
    "(docker run --privileged)";

}  // namespace

std::string why_no_namespaces(int error, const std::string& what) {
  std::string cause = fmt::format("{}: {}", what, std::strerror(error));
  const auto advice = [&](const std::string& text) { return fmt::format("{}. {}. {}", cause, text, kOtherwise); };
  if (error == EINVAL) return cause + ". The kernel was built without namespaces (CONFIG_NET_NS, CONFIG_USER_NS)";
  if (setting("user/max_net_namespaces") == 0) {
    return advice("Network namespaces are switched off; to allow them: sysctl user.max_net_namespaces=1000");
  }
  if (error == ENOSPC) {
    return advice("There are too many; see the sysctls user.max_user_namespaces and user.max_net_namespaces");
  }
  if (geteuid() == 0) return cause + ". This root is a limited one: a container needs docker run --privileged";
  if (setting("user/max_user_namespaces") == 0) {
    return advice("User namespaces are switched off; to allow them: sysctl user.max_user_namespaces=10000");
  }
  if (setting("kernel/unprivileged_userns_clone") == 0) {
    return advice(
        "Only root may have user namespaces here; to allow them to all: sysctl "
        "kernel.unprivileged_userns_clone=1");
  }
  if (setting("kernel/apparmor_restrict_unprivileged_userns") == 1) {
    return advice(
        "AppArmor keeps users from having rights in their namespaces; to allow it: sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0");
  }
  return advice("Something keeps this user from having namespaces, such as a container's seccomp profile");
}

std::string why_not_configured(const std::string& program, const std::string& batch, const std::string& complaint) {
  const bool unknown_kind = complaint.find("Unknown device type") != std::string::npos ||
                            complaint.find("Operation not supported") != std::string::npos ||
                            complaint.find("qdisc kind is unknown") != std::string::npos ||
                            complaint.find("No such file or directory") != std::string::npos;
  if (unknown_kind && program == "tc") {
    return fmt::format(
        "the kernel can't limit rates: it lacks the token bucket filter (CONFIG_NET_SCH_TBF; as root: "
        "modprobe sch_tbf). tc said: {}",
        last_lines(complaint, 2));
  }
  if (unknown_kind) {
    return fmt::format(
        "the kernel can't join hosts: it lacks bridges or virtual Ethernet (CONFIG_BRIDGE, CONFIG_VETH; "
        "as root: modprobe bridge, modprobe veth). ip said: {}",
        last_lines(complaint, 2));
  }
  return fmt::format("{} failed: {}; the commands were: {}", program, last_lines(complaint, 3), batch);
}

void check_programs() {
  for (const char* program : {"ip", "tc"}) {
    if (!have_program(program)) {
      throw ClusterError(
          fmt::format("the program '{}' is missing from PATH: install iproute2 (Debian: apt-get install "
                      "iproute2), and see that /usr/sbin is in PATH",
                      program));
    }
  }
}

}  // namespace co2::lab
