#include "comm/wire_dtype.h"

#include <co2/error.h>
#include <fmt/format.h>

namespace co2 {

at::ScalarType wire_dtype(Wire wire, at::ScalarType own) {
  if (wire == Wire::kPlain) return own;
  if (own != at::kFloat && own != at::kDouble) {
    throw OptionError(fmt::format(
        "wire = bfloat16 has no meaning for parameters of {}, which are no wider: use wire = plain, or train "
        "parameters of Float",
        c10::toString(own)));
  }
  return at::kBFloat16;
}

}  // namespace co2
