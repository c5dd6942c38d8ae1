#include "checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "checkpoint/checksum.h"

namespace co2::checkpoint {
namespace {

struct NamedType {
  std::string_view name;
  at::ScalarType type;
};
constexpr NamedType kTypes[] = {{"F64", at::kDouble},
                                {"I64", at::kLong},
                                {"U64", at::kUInt64},
                                {"F32", at::kFloat},
                                {"I32", at::kInt},
                                {"U32", at::kUInt32},
                                {"F16", at::kHalf},
                                {"BF16", at::kBFloat16},
                                {"I16", at::kShort},
                                {"U16", at::kUInt16},
                                {"F8_E4M3", at::kFloat8_e4m3fn},
                                {"F8_E5M2", at::kFloat8_e5m2},
                                {"I8", at::kChar},
                                {"U8", at::kByte},
                                {"BOOL", at::kBool}};

// Bytes go through the checksum and to the file while they are in the processor's cache.
constexpr std::uint64_t kAtOnce = 1 << 18;

TensorInfo info_of(const std::string& name, const at::Tensor& tensor, const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& why) {
    throw DataError(fmt::format("can't write tensor {} to {}: {}", name, path.string(), why));
  };
  if (!tensor.defined()) refuse("it is undefined");
  if (tensor.layout() != at::kStrided) refuse("it is sparse, which safetensors has no form for");
  const auto* known = std::ranges::find(kTypes, tensor.scalar_type(), &NamedType::type);
  if (known == std::end(kTypes)) {
    refuse(fmt::format("its dtype {} is not supported", c10::toString(tensor.scalar_type())));
  }
  return {.name = name, .dtype = std::string(known->name), .shape = tensor.sizes().vec()};
}

SafetensorsHeader header_for(const Safetensors& outline, const std::filesystem::path& path) {
  SafetensorsHeader header{.tensors = {}, .metadata = outline.metadata};
  for (const auto& [name, tensor] : outline.tensors) header.tensors.push_back(info_of(name, tensor, path));
  place(header, path.string());
  return header;
}

bool is_as_announced(const TensorInfo& announced, const TensorInfo& given) {
  return announced.name == given.name && announced.dtype == given.dtype && announced.shape == given.shape;
}

/// With memory of its own, yet to be filled.
at::Tensor empty_tensor(const TensorInfo& info) {
  const auto* known = std::ranges::find(kTypes, info.dtype, &NamedType::name);
  return at::empty(info.shape, known->type);
}

/// A bool that is neither 0 nor 1 is a trap for whoever computes with it.
void check_bool(const at::Tensor& tensor, const std::string& name, const std::filesystem::path& path) {
  if (tensor.scalar_type() != at::kBool) return;
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  if (std::all_of(bytes, bytes + tensor.nbytes(), [](unsigned char byte) { return byte <= 1; })) return;
  throw DataError(fmt::format("{} is not a sound safetensors file: tensor {} is BOOL, and has bytes other than 0 and 1",
                              path.string(), name));
}

/// Writes the tensors that `show` gives in this order, after their header.
FileEntry write_in_order(const std::filesystem::path& path, const SafetensorsHeader& header,
                         const std::vector<std::size_t>& order, const std::function<void(const PutTensor& put)>& show) {
  const auto start = header_bytes(header, path.string());

  FileEntry entry{.name = path.filename().string(), .bytes = 0, .checksum = {}};
  Checksum sum;
  write_atomically(path, [&](const auto& append) {
    const auto write = [&](std::string_view bytes) {
      sum.add(bytes);
      append(bytes);
      entry.bytes += static_cast<std::int64_t>(bytes.size());
    };
    write(start);
    auto next = order.begin();
    show([&](const std::string& name, const at::Tensor& values) {
      if (next == order.end() || !is_as_announced(header.tensors[*next], info_of(name, values, path))) {
        throw DataError(fmt::format("can't write tensor {} to {}: another one was due", name, path.string()));
      }
      ++next;
      const auto data = values.detach().cpu().resolve_neg().contiguous();
      std::string_view bytes(static_cast<const char*>(data.const_data_ptr()), data.nbytes());
      for (; !bytes.empty(); bytes.remove_prefix(std::min(kAtOnce, bytes.size()))) write(bytes.substr(0, kAtOnce));
    });
    if (next != order.end()) {
      throw DataError(fmt::format("can't write {}: tensor {} is missing", path.string(), header.tensors[*next].name));
    }
  });
  entry.checksum = sum.digits();
  return entry;
}

}  // namespace

FileEntry write_safetensors(const std::filesystem::path& path, const Safetensors& contents) {
  const SafetensorsHeader header = header_for(contents, path);
  const auto order = in_data_order(header);
  return write_in_order(path, header, order, [&](const PutTensor& put) {
    for (const auto index : order) put(contents.tensors[index].first, contents.tensors[index].second);
  });
}

FileEntry write_safetensors(const std::filesystem::path& path, const Safetensors& outline,
                            const std::function<void(const PutTensor& put)>& show) {
  const SafetensorsHeader header = header_for(outline, path);
  return write_in_order(path, header, in_data_order(header), show);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, std::optional<FileEntry> entry)
    : file_(path), entry_(std::move(entry)) {
  if (entry_) check_size(file_, *entry_);
  start_ = file_.read(0, std::min(kLengthBytes, file_.size()));
  const auto length = header_length(start_, file_.size(), path.string());
  start_ += file_.read(kLengthBytes, length);
  header_ = parse_header(std::string_view(start_).substr(kLengthBytes), file_.size() - start_.size(), path.string());
}

at::Tensor SafetensorsFile::read(const std::string& name) const {
  const auto found = std::ranges::find(header_.tensors, name, &TensorInfo::name);
  if (found == header_.tensors.end()) {
    throw DataError(fmt::format("{} has no tensor {}", file_.path().string(), name));
  }
  auto tensor = empty_tensor(*found);
  file_.read(start_.size() + found->begin, found->end - found->begin, tensor.data_ptr());
  check_bool(tensor, name, file_.path());
  return tensor;
}

Safetensors SafetensorsFile::read_all() const {
  Checksum sum;
  sum.add(start_);
  Safetensors result{.tensors = {}, .metadata = header_.metadata};
  for (const auto& info : header_.tensors) result.tensors.emplace_back(info.name, empty_tensor(info));
  for (const auto index : in_data_order(header_)) {
    const auto& info = header_.tensors[index];
    auto* data = static_cast<char*>(result.tensors[index].second.data_ptr());
    for (auto at = info.begin; at < info.end; at += kAtOnce) {
      const auto bytes = std::min(kAtOnce, info.end - at);
      file_.read(start_.size() + at, bytes, data);
      if (entry_) sum.add({data, bytes});
      data += bytes;
    }
  }
  if (entry_) check_sum(file_, *entry_, sum.digits());
  for (const auto& [name, tensor] : result.tensors) check_bool(tensor, name, file_.path());
  return result;
}

Safetensors read_safetensors(const std::filesystem::path& path, const std::optional<FileEntry>& entry) {
  return SafetensorsFile(path, entry).read_all();
}

}  // namespace co2::checkpoint
