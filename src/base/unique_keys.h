#pragma once

#include <set>
#include <string>

namespace co2 {

/// A callback for nlohmann's parser, which by itself would keep the last of two equal keys: calls `on_repeat(key)` for
/// one that an object at the top has had before.
template <typename Json, typename OnRepeat>
auto unique_keys(OnRepeat on_repeat) {
  return
      [on_repeat, seen = std::set<std::string>()](int depth, typename Json::parse_event_t event, Json& parsed) mutable {
        if (depth == 1 && event == Json::parse_event_t::key) {
          const auto key = parsed.template get<std::string>();
          if (!seen.insert(key).second) on_repeat(key);
        }
        return true;
      };
}

}  // namespace co2
