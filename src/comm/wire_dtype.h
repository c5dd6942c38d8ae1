#pragma once

#include <c10/core/ScalarType.h>
#include <co2/options.h>

#include <cstdint>

namespace co2 {

/// What an element of dtype `own` is on the wire. Throws OptionError if the wire has no meaning for it.
at::ScalarType wire_dtype(Wire wire, at::ScalarType own);

/// Bytes that an element takes on the wire: a fraction where several share one.
inline double wire_element_bytes(Wire wire, at::ScalarType own) {
  return static_cast<double>(c10::elementSize(wire_dtype(wire, own)));
}

}  // namespace co2
