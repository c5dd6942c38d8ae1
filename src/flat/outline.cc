#include "flat/outline.h"

#include <ATen/ATen.h>

namespace co2 {

namespace {

template <typename Change>
TrainedModel with_tensors(TrainedModel model, const Change& change) {
  for (Parameter& parameter : model.parameters) parameter.tensor = change(parameter.tensor);
  for (NamedTensor& buffer : model.buffers) {
    if (buffer.tensor.defined()) buffer.tensor = change(buffer.tensor);
  }
  for (at::Tensor& other : model.others) {
    if (other.defined()) other = change(other);
  }
  return model;
}

}  // namespace

TrainedModel outline_of(const TrainedModel& model) {
  TrainedModel outline = with_tensors(model, [](const at::Tensor& tensor) {
    return at::empty_strided(tensor.sizes(), tensor.strides(),
                             at::TensorOptions(tensor.scalar_type()).device(at::kMeta));
  });
  outline.first_values = {};
  for (ParameterUnit& unit : outline.units) unit.keep = [](const std::shared_ptr<UnitKeeper>&) {};
  return outline;
}

TrainedModel blank_from(const TrainedModel& outline) {
  TrainedModel model = with_tensors(outline, [](const at::Tensor& tensor) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type())).zero_();
  });
  for (Parameter& parameter : model.parameters) parameter.tensor.requires_grad_();
  return model;
}

}  // namespace co2
