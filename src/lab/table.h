#pragma once

#include <string>
#include <vector>

#include "lab/aggregate.h"

namespace co2::lab {

/// For people: a heading, aligned columns, what failed. Ends with a line end.
std::string format_table(const Table& table, const Scenario& scenario, const std::vector<Item>& items, int repeats);

/// "asked 100 Mbit/s, measured 95.6 and 95.5 Mbit/s"; what is off is said.
std::string format_links(const std::vector<LinkCheck>& links);

/// 12345.6 as "12,346".
std::string thousands(double value);

}  // namespace co2::lab
