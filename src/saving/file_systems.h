#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cluster/group.h"

namespace co2 {

/// The workers that see the same files in a folder of that name as this one, which is among them, in order. Collective;
/// the folder is made. `token` is the same everywhere, and no other run's. Throws DataError.
std::vector<int> workers_that_share(const std::filesystem::path& folder, const std::string& token, int rank,
                                    Group& group);

}  // namespace co2
