#include "doctor/facts.h"

#include <nlohmann/json.hpp>

namespace co2::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepTimes, lowest, median, highest, count)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Interface, name, address, loopback, bridge, physical, bits_per_second)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerFacts, rank, host, machine, processor, co2_version, torch_version, blas, cores,
                                   core_quota, threads, memory_available, container_memory, peak_bytes, step,
                                   outer_seconds, product_flops, multiply_add_flops, interface)

std::string to_text(const WorkerFacts& facts) { return nlohmann::json(facts).dump(); }

WorkerFacts facts_from_text(const std::string& text) { return nlohmann::json::parse(text).get<WorkerFacts>(); }

}  // namespace co2::doctor
