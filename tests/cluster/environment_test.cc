#include "cluster/environment.h"

#include <co2/error.h>
#include <gtest/gtest.h>

#include <map>

namespace co2 {
namespace {

using Variables = std::map<std::string, std::string>;

Placement read(const Variables& variables, const ClusterOptions& options = {}) {
  return read_placement(options, [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

void expect_error(const Variables& variables, const std::vector<std::string>& words) {
  try {
    read(variables);
    ADD_FAILURE() << "accepted; expected an error about " << words.front();
  } catch (const ClusterError& error) {
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what() << " lacks " << word;
    }
    EXPECT_EQ(error.exit_code(), 3);
  }
}

const Variables kTorchrun{{"RANK", "2"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "0"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "node-a"},
                          {"MASTER_PORT", "29400"},
                          {"TORCHELASTIC_RUN_ID", "x"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"TORCHELASTIC_RESTART_COUNT", "3"}};

Variables changed(Variables variables, const std::string& name, const std::optional<std::string>& value) {
  if (value) {
    variables[name] = *value;
  } else {
    variables.erase(name);
  }
  return variables;
}

TEST(Environment, Alone) {
  const Placement p = read({});
  EXPECT_EQ(p.launcher, "alone");
  EXPECT_EQ(p.rendezvous.size, 1);
}

TEST(Environment, Torchrun) {
  const Placement p = read(kTorchrun);
  EXPECT_EQ(p.launcher, "torchrun");
  EXPECT_EQ(p.rendezvous.rank, 2);
  EXPECT_EQ(p.rendezvous.size, 4);
  EXPECT_EQ(p.local_size, 2);
  EXPECT_EQ(p.rendezvous.host, "node-a");
  EXPECT_EQ(p.rendezvous.port, 29400);
  EXPECT_TRUE(p.rendezvous.store_exists);  // the agent serves it: rank 0 must not
  EXPECT_EQ(p.rendezvous.generation, "3");
}

TEST(Environment, OptionsWinOverVariables) {
  const Placement p = read(kTorchrun, {.host = "node-b", .port = 5, .interface = "eth7"});
  EXPECT_EQ(p.rendezvous.host, "node-b");
  EXPECT_EQ(p.rendezvous.port, 5);
  EXPECT_EQ(p.rendezvous.interface, "eth7");
}

TEST(Environment, OpenMpiOnOneHostNeedsNothingElse) {
  const Variables mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"PMIX_NAMESPACE", "job.17"}};
  const Placement p = read(mpi);
  EXPECT_EQ(p.launcher, "mpirun");
  EXPECT_EQ(p.rendezvous.host, "127.0.0.1");
  EXPECT_EQ(p.rendezvous.port, read(changed(mpi, "OMPI_COMM_WORLD_RANK", "0")).rendezvous.port);
  EXPECT_GE(p.rendezvous.port, 1024);
  expect_error(changed(mpi, "OMPI_COMM_WORLD_SIZE", "4"), {"MASTER_ADDR", "4 workers"});
  expect_error(changed(mpi, "PMIX_NAMESPACE", std::nullopt), {"MASTER_PORT"});
}

TEST(Environment, Slurm) {
  const Variables slurm{{"SLURM_PROCID", "3"},   {"SLURM_STEP_NUM_TASKS", "6"},
                        {"SLURM_LOCALID", "1"},  {"SLURM_STEP_NODELIST", "gpu[07-09],big1"},
                        {"SLURM_JOB_ID", "991"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1(x2)"},
                        {"SLURM_NODEID", "1"}};
  const Placement p = read(slurm);
  EXPECT_EQ(p.launcher, "slurm");
  EXPECT_EQ(p.rendezvous.rank, 3);
  EXPECT_EQ(p.rendezvous.host, "gpu07");
  EXPECT_EQ(p.local_rank, 1);
  EXPECT_EQ(p.local_size, 2);
  expect_error(changed(slurm, "SLURM_NODEID", "2"), {"SLURM_LOCALID = 1", "SLURM_STEP_TASKS_PER_NODE = 1"});
  expect_error(changed(slurm, "SLURM_NODEID", "4"), {"SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID = 4"});
  // A batch script without srun: one process, whatever the job was given.
  EXPECT_EQ(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "6"}, {"SLURM_JOB_ID", "991"}}).launcher, "alone");
}

TEST(Environment, SlurmNodeLists) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_host("n[3,5-7]"), "n3");
  EXPECT_EQ(first_slurm_host("n[003-005]"), "n003");
  EXPECT_EQ(first_slurm_host("a,n[1-2]"), "a");
  EXPECT_THROW(first_slurm_host("n[3"), ClusterError);
}

TEST(Environment, SlurmTasksPerNode) {
  EXPECT_EQ(slurm_tasks_on_node("2", 0), 2);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 2), 2);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 3), 1);
  EXPECT_EQ(slurm_tasks_on_node("4,2(x2)", 1), 2);
  for (const char* bad : {"", "x", "2(x", "2(x3)1", ",2"})
    EXPECT_THROW(slurm_tasks_on_node(bad, 3), ClusterError) << bad;
}

TEST(Environment, MissingVariablesAreNamed) {
  expect_error(changed(kTorchrun, "RANK", std::nullopt), {"RANK is not set", "WORLD_SIZE"});
  expect_error(changed(kTorchrun, "WORLD_SIZE", std::nullopt), {"WORLD_SIZE is not set", "RANK"});
  expect_error(changed(kTorchrun, "MASTER_ADDR", std::nullopt), {"MASTER_ADDR is not set"});
  expect_error(changed(kTorchrun, "MASTER_ADDR", ""), {"MASTER_ADDR is not set"});
  expect_error(changed(kTorchrun, "MASTER_PORT", std::nullopt), {"MASTER_PORT is not set"});
}

TEST(Environment, ContradictionsAreNamed) {
  expect_error(changed(kTorchrun, "RANK", "4"), {"RANK = 4", "WORLD_SIZE = 4"});
  expect_error(changed(kTorchrun, "LOCAL_RANK", "2"), {"LOCAL_RANK = 2", "LOCAL_WORLD_SIZE = 2"});
  expect_error(changed(kTorchrun, "LOCAL_WORLD_SIZE", "9"), {"LOCAL_WORLD_SIZE = 9", "WORLD_SIZE = 4"});
  expect_error(changed(kTorchrun, "MASTER_PORT", "99999"), {"MASTER_PORT = '99999'", "1 to 65535"});
  expect_error(changed(kTorchrun, "RANK", "two"), {"RANK = 'two'"});
  expect_error(changed(kTorchrun, "WORLD_SIZE", "0"), {"WORLD_SIZE = '0'"});
  Variables both = changed(kTorchrun, "OMPI_COMM_WORLD_RANK", "1");
  both["OMPI_COMM_WORLD_SIZE"] = "4";
  expect_error(both, {"RANK = 2", "OMPI_COMM_WORLD_RANK = 1"});
}

TEST(Environment, OptionsAreChecked) {
  EXPECT_THROW(read({}, {.port = 70000}), OptionError);
  EXPECT_THROW(read({}, {.rendezvous_timeout = std::chrono::seconds(0)}), OptionError);
}

TEST(Address, OfTheLoopbackIsTheLoopback) {
  EXPECT_EQ(local_address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_THROW(local_address_towards("no-such-host.invalid"), ClusterError);
}

}  // namespace
}  // namespace co2
