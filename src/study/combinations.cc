#include "study/combinations.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace co2::study {

namespace {

struct Place {
  Combination values;
  double distance = 0;  // from the middle
  bool operator==(const Place&) const = default;
};

std::vector<Place> places(const std::vector<Choice>& choices) {
  std::vector<Place> all{{}};
  for (const Choice& choice : choices) {
    const double last = static_cast<double>(choice.values.size()) - 1;
    std::vector<Place> longer;
    for (const Place& shorter : all) {
      for (std::size_t i = 0; i < choice.values.size(); ++i) {
        Place place = shorter;
        place.values[choice.option] = choice.values[i];
        if (last > 0) place.distance += std::abs(2 * static_cast<double>(i) - last) / last;
        longer.push_back(std::move(place));
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::vector<Combination> values_of(const std::vector<Place>& places) {
  std::vector<Combination> result;
  for (const Place& place : places) result.push_back(place.values);
  return result;
}

}  // namespace

std::vector<Combination> combinations(const std::vector<Choice>& choices) { return values_of(places(choices)); }

std::vector<Combination> nearest_the_middle(const std::vector<Choice>& choices, std::size_t count) {
  std::vector<Place> all = places(choices);
  std::vector<Place> nearest = all;
  std::ranges::stable_sort(nearest, {}, &Place::distance);
  nearest.resize(std::min(count, nearest.size()));
  std::erase_if(all, [&](const Place& place) { return std::ranges::find(nearest, place) == nearest.end(); });
  return values_of(all);
}

}  // namespace co2::study
