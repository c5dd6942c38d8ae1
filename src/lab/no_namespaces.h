#pragma once

#include <string>

namespace co2::lab {

/// Why the kernel refused a namespace (`error` is its errno), as far as its settings tell, and what to do.
std::string why_no_namespaces(int error, const std::string& what);

/// Why ip or tc failed on a batch of commands: what the kernel lacks, if that is it.
std::string why_not_configured(const std::string& program, const std::string& batch, const std::string& complaint);

/// Throws ClusterError that names the package if ip or tc are not there.
void check_programs();

}  // namespace co2::lab
