#pragma once

#include <string>
#include <vector>

#include "lab/aggregate.h"
#include "lab/lab.h"

namespace co2::lab {

/// For people: a heading, aligned columns, what failed or is missing of the repeats. Ends with a line end.
std::string format_table(const Table& table, const LabOptions& options);

/// "asked 100 Mbit/s, measured 95.6 and 95.5 Mbit/s"; what is off is said.
std::string format_links(const std::vector<LinkCheck>& links);

/// 0.9996 as "99.9 %": cut rather than rounded, so that 100 % means all of it. "-" if it is not known.
std::string percent(double share);

}  // namespace co2::lab
