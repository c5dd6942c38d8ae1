#include "outer/wire_dtype.h"

#include <co2/error.h>
#include <fmt/format.h>

#include "outer/blocks.h"

namespace co2 {

void check_wire(Wire wire, at::ScalarType own) {
  if (wire == Wire::kPlain || own == at::kFloat || own == at::kDouble) return;
  throw OptionError(
      fmt::format("wire = {} has no meaning for parameters of {}: use wire = plain, or train parameters of Float",
                  name(wire), c10::toString(own)));
}

at::ScalarType wire_dtype(Wire wire, at::ScalarType own) {
  check_wire(wire, own);
  return wire == Wire::kPlain ? own : at::kBFloat16;
}

double wire_element_bytes(Wire wire, at::ScalarType own) {
  check_wire(wire, own);
  if (in_blocks(wire)) return static_cast<double>(outer::block_bytes(wire)) / outer::kBlock;
  return static_cast<double>(c10::elementSize(wire_dtype(wire, own)));
}

}  // namespace co2
