#include "train/data/synthetic.h"

#include <cctype>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "train/data/random.h"

namespace co2::train {
namespace {

using Words = std::span<const std::string_view>;

constexpr std::string_view kNames[] = {"Anna",  "Bruno", "Clara", "David", "Emil", "Frida", "Greta", "Hugo",
                                       "Irene", "Jonas", "Karla", "Leo",   "Mira", "Nora",  "Oscar", "Paula"};
constexpr std::string_view kPeople[] = {"captain", "doctor", "farmer", "teacher", "miller", "sailor",
                                        "painter", "widow",  "judge",  "baker",   "child",  "stranger"};
constexpr std::string_view kThings[] = {"house",  "river",    "letter", "garden",  "horse", "lantern",
                                        "bridge", "mountain", "window", "orchard", "wagon", "candle",
                                        "road",   "harbour",  "forest", "clock",   "table", "mirror",
                                        "key",    "book",     "coat",   "island",  "tower", "field"};
constexpr std::string_view kAdjectives[] = {"old",    "quiet",   "bright", "narrow", "heavy",   "golden",
                                            "broken", "distant", "green",  "silent", "strange", "cold",
                                            "small",  "empty",   "gentle", "dark"};
constexpr std::string_view kVerbs[] = {"watched", "followed", "remembered", "opened",    "crossed", "painted",
                                       "found",   "lost",     "carried",    "described", "left",    "visited",
                                       "sold",    "repaired", "loved",      "feared"};
constexpr std::string_view kIntransitive[] = {"waited",   "laughed",  "slept",    "wondered",
                                              "listened", "trembled", "returned", "sang"};
constexpr std::string_view kAdverbs[] = {"slowly",         "in silence",     "at once",   "every evening",
                                         "without a word", "for many years", "once more", "before dawn"};
constexpr std::string_view kPlaces[] = {"near", "behind", "beyond", "beside", "under", "opposite"};
constexpr std::string_view kJoins[] = {"because", "while", "although", "until", "so that", "when"};
constexpr std::string_view kOpenings[] = {"In the morning", "That winter", "After the storm", "On the third day",
                                          "Long ago",       "At midnight", "In those years",  "One evening"};
constexpr std::string_view kSaying[] = {"said", "whispered", "answered", "cried"};

class Writer {
 public:
  std::string paragraph(std::uint64_t number) {
    number_ = number;
    draws_ = 0;
    hero_ = pick(kNames);
    friend_ = pick(kNames);
    thing_ = pick(kThings);
    std::string text;
    const auto sentences = 3 + below(5);
    for (std::uint64_t i = 0; i < sentences; ++i) {
      if (i > 0) text += ' ';
      text += sentence();
    }
    return wrapped(text) + "\n\n";
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return mixed({number_, draws_++}) % limit; }
  std::string pick(Words words) { return std::string(words[below(words.size())]); }

  /// Words with spaces between. A braced list is evaluated from left to right, unlike operands of +, and the draws must
  /// not depend on the compiler.
  static std::string joined(std::initializer_list<std::string> words) {
    std::string text;
    for (const auto& word : words) {
      if (!text.empty()) text += ' ';
      text += word;
    }
    return text;
  }

  std::string sentence() {
    std::string text;
    switch (below(4)) {
      case 0: text = joined({pick(kOpenings) + ",", clause()}); break;
      case 1: text = joined({clause(), pick(kJoins), clause()}); break;
      case 2: return speech();
      default: text = clause();
    }
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    return text + ".";
  }
  std::string clause() {
    if (below(3) == 0) return joined({subject(), pick(kIntransitive), pick(kAdverbs)});
    auto text = joined({subject(), pick(kVerbs), object()});
    return below(3) == 0 ? joined({text, pick(kPlaces), object()}) : text;
  }
  std::string subject() {
    switch (below(4)) {
      case 0: return hero_;
      case 1: return friend_;
      case 2: return joined({"the", pick(kPeople)});
      default: return joined({"the", pick(kAdjectives), pick(kPeople)});
    }
  }
  std::string object() {
    switch (below(4)) {
      case 0: return joined({"the", thing_});
      case 1: return joined({"the", pick(kAdjectives), thing_});
      case 2: return joined({"the", pick(kThings), "of the", pick(kPeople)});
      default: return joined({"the", pick(kAdjectives), pick(kThings)});
    }
  }
  std::string speech() {
    if (below(2) == 0) return joined({"\"Who", pick(kVerbs), object() + "?\" asked", hero_ + "."});
    return joined({"\"We", pick(kVerbs), object() + ",\"", pick(kSaying), hero_ + "."});
  }
  static std::string wrapped(std::string text) {
    constexpr std::size_t kColumns = 70;
    std::size_t line = 0, space = std::string::npos;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') space = i;
      if (i - line >= kColumns && space != std::string::npos) {
        text[space] = '\n';
        line = space + 1;
        space = std::string::npos;
      }
    }
    return text;
  }

  std::uint64_t number_ = 0;
  std::uint64_t draws_ = 0;
  std::string hero_, friend_, thing_;
};

}  // namespace

std::string synthetic_text(std::size_t bytes) {
  Writer writer;
  std::string text;
  text.reserve(bytes + 1000);
  for (std::uint64_t number = 0; text.size() < bytes; ++number) text += writer.paragraph(number);
  return text;
}

}  // namespace co2::train
