#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "lab/aggregate.h"
#include "lab/lab.h"

namespace co2::lab {

/// lab.json: the machine, the command, every run, and the tables.
nlohmann::ordered_json report(const LabOptions& options, const std::vector<RunRecord>& records,
                              const std::vector<Table>& tables);

}  // namespace co2::lab
