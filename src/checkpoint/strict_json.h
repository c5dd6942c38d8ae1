#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace co2::checkpoint {

/// Told what is wrong, it throws.
using Fail = std::function<void(const std::string& what)>;

/// A JSON object that anybody may have written. Fails for three things that nlohmann's parser does not mind: a key that
/// its object has had before, more than `deepest` objects and arrays inside each other, and a zero byte, at which that
/// parser would stop and leave the rest unread. `keys`, if given, gets those of the outermost object in their order.
nlohmann::json parse_strictly(std::string_view text, int deepest, const Fail& fail,
                              std::vector<std::string>* keys = nullptr);

/// A text as JSON, in quotes. Fails if it is not UTF-8.
std::string quoted(std::string_view text, const Fail& fail);

}  // namespace co2::checkpoint
