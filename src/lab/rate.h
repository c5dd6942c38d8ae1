#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace co2::lab {

/// The speed of a host's link, each way, in bits per second; 0: as fast as the machine is.
struct Rate {
  double bits_per_second = 0;
  bool unlimited() const { return bits_per_second == 0; }
  bool operator==(const Rate&) const = default;
};

/// Rates that hold for a while.
struct Phase {
  std::vector<Rate> hosts;  ///< one for all hosts, or one for each
  double seconds = 0;       ///< how long; of the last phase: not used, it stays
  Rate host(int index) const { return hosts.size() == 1 ? hosts[0] : hosts[static_cast<std::size_t>(index)]; }
};

/// What the network does during a run. The first phase holds from the start; the clock of the later ones begins with
/// the first step that the run reports.
struct Scenario {
  std::string text;  ///< as the user wrote it
  std::vector<Phase> phases;

  /// The same rate for every host, from beginning to end.
  bool constant() const { return phases.size() == 1 && phases[0].hosts.size() == 1; }
  Rate slowest() const;             ///< of all hosts and phases
  std::string folder_name() const;  ///< the text without characters that mean something in a path
};

/// "100mbit,1gbit:100mbit,1gbit/20s/100mbit": scenarios between commas; in one, phases with a duration between two of
/// them; in a phase, one rate, or one per host. Throws OptionError.
std::vector<Scenario> parse_rates(std::string_view text, int hosts);

/// "100mbit", "1.5gbit", "unlimited".
Rate parse_rate(std::string_view text);

/// "95.6 Mbit/s"
std::string format_rate(double bits_per_second);

}  // namespace co2::lab
