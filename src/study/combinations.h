#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "study/study_file.h"

namespace co2::study {

/// One value of each option.
using Combination = std::map<std::string, nlohmann::json>;

/// All of them, the last option changing fastest. Of no options there is one, the empty one.
std::vector<Combination> combinations(const std::vector<Choice>& choices);

/// `count` of them, in the same order: those that lie nearest to the middle of the lists, which is what somebody would
/// try who knows where the best value should be, and writes it in the middle. How far a value is from there counts as a
/// share of its list, and is added up over the options; of equals the first is taken.
std::vector<Combination> nearest_the_middle(const std::vector<Choice>& choices, std::size_t count);

}  // namespace co2::study
