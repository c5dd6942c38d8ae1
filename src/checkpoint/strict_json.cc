#include "checkpoint/strict_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

namespace co2::checkpoint {

using Json = nlohmann::json;
using Event = Json::parse_event_t;

Json parse_strictly(std::string_view text, int deepest, const Fail& fail, std::vector<std::string>* keys) {
  if (!text.starts_with('{')) fail("it is not a JSON object");
  if (text.find('\0') != std::string_view::npos) fail("it is not JSON (it has a zero byte)");
  std::vector<std::set<std::string>> seen;  // of every object and array that is open
  const auto look = [&](int depth, Event event, Json& parsed) {
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        if (depth >= deepest) fail(fmt::format("it is nested deeper than {}", deepest));
        seen.emplace_back();
        break;
      case Event::object_end:
      case Event::array_end: seen.pop_back(); break;
      case Event::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!seen.back().insert(key).second) fail(fmt::format("{} occurs twice", key));
        if (keys && depth == 1) keys->push_back(key);
        break;
      }
      case Event::value: break;
    }
    return true;
  };
  Json result;
  try {
    result = Json::parse(text.begin(), text.end(), look);
  } catch (const Json::exception& error) {
    fail(fmt::format("it is not JSON ({})", error.what()));
  }
  return result;
}

std::string quoted(std::string_view text, const Fail& fail) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    fail(fmt::format("{:?} is not UTF-8", text));
    throw;
  }
}

}  // namespace co2::checkpoint
