#pragma once

#include <string>
#include <vector>

#include "lab/aggregate.h"
#include "lab/lab.h"

namespace co2::lab {

/// A picture in SVG with two panels: throughput against bandwidth, and loss against time at the slowest rate.
std::string chart(const LabOptions& options, const std::vector<RunRecord>& records, const std::vector<Table>& tables);

}  // namespace co2::lab
