#pragma once

#include <vector>

#include "lab/network.h"

namespace co2::lab {

/// What a short TCP transfer from one host to another carried.
struct LinkCheck {
  int from = 0;
  int to = 0;
  Rate asked;
  double measured = 0;  ///< bits of payload per second

  /// Slower or faster than asked by more than a tenth. Headers take 4.4 % of a packet, so some less is right.
  bool off() const {
    return !asked.unlimited() && (measured < 0.9 * asked.bits_per_second || measured > 1.1 * asked.bits_per_second);
  }
};

/// One transfer after the other, from each host to the next, so that every link is used both ways; about a second in
/// all with two hosts. Throws ClusterError.
std::vector<LinkCheck> check_links(const Network& network, const Phase& phase);

}  // namespace co2::lab
