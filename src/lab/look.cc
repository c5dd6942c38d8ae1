#include "lab/look.h"

#include <map>

namespace co2::lab {

/// Okabe and Ito's colours, which most people can tell apart, without the yellow that white paper swallows.
Look look_of(const std::string& name) {
  static const std::map<std::string, Look> kLooks = {{"none", {"#767676", "5 4"}},
                                                     {"ddp", {"#000000", ""}},
                                                     {"local-sgd", {"#b07500", ""}},
                                                     {"slowmo", {"#3a95d0", ""}},
                                                     {"diloco", {"#b5508a", ""}},
                                                     {"streaming-diloco", {"#009e73", ""}},
                                                     {"eager-diloco", {"#8c6d1f", ""}},
                                                     {"overlap-local-sgd", {"#7a5a9e", ""}},
                                                     {"co2-paper", {"#0072b2", ""}},
                                                     {"co2", {"#d55e00", ""}},
                                                     {"torch-none", {"#767676", "9 4"}},
                                                     {"torch-ddp", {"#000000", "9 4"}},
                                                     {"torch-ddp-bf16", {"#7a5a9e", "9 4"}},
                                                     {"torch-post-local-sgd", {"#b07500", "9 4"}},
                                                     {"torchft-local-sgd", {"#3a95d0", "9 4"}},
                                                     {"torchft-diloco", {"#b5508a", "9 4"}},
                                                     {"torchft-diloco-overlap", {"#0072b2", "9 4"}},
                                                     {"torchft-streaming", {"#009e73", "9 4"}}};
  return kLooks.at(name);
}

}  // namespace co2::lab
