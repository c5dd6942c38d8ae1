#pragma once

#include <co2/state.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/part.h"

namespace co2 {

/// Copies all that it is shown into a part. Throws OptionError if it is shown two things of one name.
class PartWriter final : public StateVisitor {
 public:
  /// `memory`: tensors of an earlier part, which nobody needs any more. What has the same name and shape takes their
  /// place: fresh memory costs more than the copy itself.
  PartWriter(checkpoint::Part& into, checkpoint::Part memory);

  bool reads() const override { return false; }
  void tensor(const std::string& name, const at::Tensor& value) override;
  void number(const std::string& name, double& value) override;
  void number(const std::string& name, std::int64_t& value) override;

 private:
  checkpoint::Part& into_;
  std::map<std::string, at::Tensor> memory_;
  std::set<std::string> tensors_;
};

/// Puts in place what a part has. Throws DataError for what it has not, or in another form.
class PartReader final : public StateVisitor {
 public:
  PartReader(const checkpoint::Part& from, std::string file);

  bool reads() const override { return true; }
  void tensor(const std::string& name, const at::Tensor& value) override;
  void number(const std::string& name, double& value) override { value = found(from_.numbers, name); }
  void number(const std::string& name, std::int64_t& value) override { value = found(from_.integers, name); }

  /// Throws DataError if there is something that nobody has asked for: then it is not of this run.
  void require_all_read() const;

 private:
  template <typename Values>
  const typename Values::mapped_type& found(const Values& values, const std::string& name);

  const checkpoint::Part& from_;
  const std::string file_;
  std::map<std::string, at::Tensor> tensors_;
  std::set<std::string> read_;
};

/// Shows things under a prefix, so that they can't be mistaken for others.
class Prefixed final : public StateVisitor {
 public:
  Prefixed(StateVisitor& visitor, std::string prefix) : visitor_(visitor), prefix_(std::move(prefix)) {}

  bool reads() const override { return visitor_.reads(); }
  void tensor(const std::string& name, const at::Tensor& value) override { visitor_.tensor(prefix_ + name, value); }
  void number(const std::string& name, double& value) override { visitor_.number(prefix_ + name, value); }
  void number(const std::string& name, std::int64_t& value) override { visitor_.number(prefix_ + name, value); }

 private:
  StateVisitor& visitor_;
  const std::string prefix_;
};

}  // namespace co2
