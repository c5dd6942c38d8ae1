#pragma once

#include <string>
#include <string_view>

#include "comm/c10d_group.h"
#include "doctor/facts.h"

namespace co2::doctor {

/// The interface through which this worker will talk to the others: the one that was named, or the one that leads to
/// the rendezvous. Throws ClusterError if there is no such interface, or it has no address.
Interface own_interface(const Rendezvous& rendezvous);

/// Whether an interface of this name is one that software made for containers or virtual machines.
bool is_bridge_name(std::string_view name);

}  // namespace co2::doctor
