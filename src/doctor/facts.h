#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace co2::doctor {

/// One worker's optimizer steps, in seconds.
struct StepTimes {
  double lowest = 0;
  double median = 0;
  double highest = 0;
  int count = 0;
};

/// The network interface that a worker talks through, as its system describes it.
struct Interface {
  std::string name;     ///< empty: the address belongs to none
  std::string address;  ///< that the other workers are told
  bool loopback = false;
  bool bridge = false;         ///< made by software for containers or virtual machines, by its name
  std::string physical{};      ///< another interface, with hardware behind it and an address; empty: there is none
  double bits_per_second = 0;  ///< what the hardware says; 0: it says nothing
};

/// What one worker knows about itself and the machine that it runs on.
struct WorkerFacts {
  int rank = 0;
  std::string host{};
  std::string machine{};  ///< the same for all workers that share processors and memory, containers or not
  std::string processor{};
  std::string co2_version{};
  std::string torch_version{};
  std::string blas{};
  std::vector<int> cores{};     ///< that it may run on
  double core_quota = 0;        ///< processor seconds per second that its container may use; 0: no limit
  int threads = 1;              ///< that it computes with
  double memory_available = 0;  ///< bytes that the machine has, before the model was made
  double container_memory = 0;  ///< bytes that are left of its container's limit; 0: no limit
  double peak_bytes = 0;        ///< of its own, at most, with model, optimizer and outer state; without mapped files
  StepTimes step{};
  double outer_seconds = 0;       ///< launch and apply passes over the whole model
  double product_flops = 0;       ///< of LibTorch's single-precision matrix product
  double multiply_add_flops = 0;  ///< of a plain loop of multiply-adds on as many threads
  Interface interface {};
};

/// As a line of JSON, and back: how they travel between workers.
std::string to_text(const WorkerFacts& facts);
WorkerFacts facts_from_text(const std::string& text);

/// An all-reduce of so many bytes.
struct Transfer {
  std::int64_t bytes = 0;
  double seconds = 0;
  double bits_per_second = 0;  ///< that each worker sent, and received
};

/// How far a worker's clock is ahead of rank 0's.
struct ClockOffset {
  int rank = 0;
  double seconds = 0;
  double error = 0;  ///< the offset is known up to this
};

/// The same on all workers.
struct NetworkFacts {
  double latency = 0;                 ///< of an all-reduce of one number
  std::vector<Transfer> transfers{};  ///< from small to large
  double model_seconds = 0;           ///< an all-reduce of the whole model, as it goes on the wire
  std::int64_t model_wire_bytes = 0;  ///< that a worker sends for it
  double model_cycles = 0;            ///< processor time of the network stack for it, on the worker with the most
  std::vector<ClockOffset> clocks{};
};

}  // namespace co2::doctor
