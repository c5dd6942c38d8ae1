#include "sync/block_wire.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "flat/checksum.h"
#include "flat/cut.h"
#include "outer/blocks.h"
#include "outer/wire_dtype.h"
#include "sync/visiting.h"

namespace co2 {

namespace {

/// In front of every part.
struct PartHeader {
  std::uint32_t checksum = 0;  ///< of the blocks; 0 if nobody asked for one
  std::uint8_t version = kBlockFormat;
  std::uint8_t wire = 0;
  std::uint16_t round = 0;
  double weight = 0;  ///< of the blocks: of a worker, or of all of them
};
static_assert(sizeof(PartHeader) == BlockLayout::kHeaderBytes);

/// Says what a part is that arrives, and whether it is the one that was sent. Headers are small, and wherever the
/// blocks are: in host memory they are read and written in place.
class Parts {
 public:
  Parts(std::shared_ptr<const BlockLayout> layout, std::shared_ptr<const Communicator> workers, std::int64_t round,
        bool checksum)
      : layout_(std::move(layout)), workers_(std::move(workers)), round_(round), checksum_(checksum) {}

  void seal(const at::Tensor& part, double weight) const {
    PartHeader header = expected();
    header.weight = weight;
    if (checksum_) header.checksum = checksum_of(part);
    const at::Tensor bytes = at::from_blob(&header, {BlockLayout::kHeaderBytes}, at::kByte);
    part.narrow(0, 0, BlockLayout::kHeaderBytes).copy_(bytes);
  }

  /// On this worker.
  CommError failure(const std::string& why, const std::string& peer = "") const {
    return {{"exchange of blocks", workers_->rank_in_cluster(workers_->rank()), round_, peer}, why};
  }

  /// The weight of a part that rank `from` has sent. Throws CommError.
  double open(const at::Tensor& part, int from) const {
    PartHeader header;
    const at::Tensor bytes = at::from_blob(&header, {BlockLayout::kHeaderBytes}, at::kByte);
    bytes.copy_(part.narrow(0, 0, BlockLayout::kHeaderBytes));
    const PartHeader own = expected();
    const auto refuse = [&](const std::string& why) {
      throw failure(why, fmt::format("rank {}", workers_->rank_in_cluster(from)));
    };
    if (header.version != own.version || header.wire != own.wire || header.round != own.round) {
      refuse(
          fmt::format("sent blocks of format {}, wire {}, round {}, where {}, {}, {} were expected: another program, "
                      "or what it sent was damaged on its way",
                      header.version, header.wire, header.round, own.version, own.wire, own.round));
    }
    if (!(header.weight >= 0 && std::isfinite(header.weight))) refuse("sent a weight that no worker has");
    if (checksum_ && header.checksum != checksum_of(part)) {
      refuse("what it sent was damaged on its way: the checksum does not fit");
    }
    return header.weight;
  }

 private:
  PartHeader expected() const {
    PartHeader header;
    header.wire = static_cast<std::uint8_t>(layout_->wire());
    header.round = static_cast<std::uint16_t>(round_);
    return header;
  }

  static std::uint32_t checksum_of(const at::Tensor& part) {
    const std::uint64_t hash =
        checksum(part.narrow(0, BlockLayout::kHeaderBytes, part.numel() - BlockLayout::kHeaderBytes));
    return static_cast<std::uint32_t>(hash ^ (hash >> 32));
  }

  std::shared_ptr<const BlockLayout> layout_;
  std::shared_ptr<const Communicator> workers_;  // whose parts they are
  std::int64_t round_;
  bool checksum_;
};

/// Or else the sums are in its place.
bool keeps_sent(const Message& message) { return !message.sums.is_same(message.payload); }

at::Tensor part_of(const at::Tensor& parts, const BlockLayout& layout, int index) {
  return parts.narrow(0, index * layout.part_bytes(), layout.part_bytes());
}

}  // namespace

BlockWire::BlockWire(const Island& island, const Recipe& recipe, const at::Tensor& like, std::int64_t numel)
    : to_owners_(island.across()),
      to_all_(island.another_across("sums")),
      largest_(recipe.wire),
      checksum_(recipe.checksum),
      options_(like.options()),
      rest_(at::zeros({numel}, options_.dtype(at::kFloat))) {}

Message BlockWire::allocate(std::int64_t numel, std::size_t stretches, bool with_sent) const {
  // As if every stretch but one had a single element: no cut into so many stretches has more blocks.
  std::vector<Range> most(stretches, {0, 1});
  most.push_back({0, numel});
  const BlockLayout layout(std::move(most), largest_, to_owners_->size());
  // Zero, as what lies between blocks travels, and is saved: it shall be the same bytes in every run.
  const auto bytes = [&](std::int64_t count) { return at::zeros({count}, options_.dtype(at::kByte)); };
  Message message;
  message.payload = bytes(layout.all_bytes());
  message.received = bytes(layout.all_bytes());
  message.added_up = bytes(layout.part_bytes());
  message.sums = with_sent ? bytes(layout.all_bytes()) : message.payload;
  return message;
}

WireFormat::Sent BlockWire::start(Message& message, const std::vector<Progress>& progress, const Send& send) {
  std::vector<Range> stretches;
  for (const Progress& stretch : progress) stretches.push_back(stretch.range);
  const int workers = to_owners_->size();
  const auto layout = std::make_shared<const BlockLayout>(stretches, send.wire, workers);
  message.numel = stretches.empty() ? 0 : stretches.back().end;
  message.layout = layout;
  message.bytes = 2 * (workers - 1) * layout->part_bytes();
  const at::Tensor payload = message.payload.narrow(0, 0, layout->all_bytes());
  const at::Tensor received = message.received.narrow(0, 0, layout->all_bytes());
  const at::Tensor added_up = message.added_up.narrow(0, 0, layout->part_bytes());
  const at::Tensor sums = message.sums.narrow(0, 0, layout->all_bytes());

  const Sent sent =
      snapshot(progress.size(), send.weight, workers, at::kFloat, payload, /*sent=*/{}, [&](std::size_t i) {
        const auto& [range, consensus, live] = progress[i];
        outer::LaunchNorms norms;
        for (const BlockLayout::Piece& piece : layout->of_stretch(i)) {
          const Range in_stretch{piece.range.begin - range.begin, piece.range.end - range.begin};
          norms += outer::encode(cut(consensus, in_stretch), cut(live, in_stretch), send.weight, send.wire,
                                 payload.narrow(0, piece.begin, piece.bytes));
        }
        return norms;
      });
  const double weight = sent.left_out ? 0 : send.weight;
  message.weight = weight > 0 ? weight : 1;
  const Parts parts(layout, to_owners_, send.round, checksum_);
  for (int r = 0; r < workers; ++r) parts.seal(part_of(payload, *layout, r), weight);

  const int rank = to_owners_->rank();
  const auto add_up = [=, this] {
    const at::NoGradGuard no_grad;
    double total = 0;
    std::vector<at::Tensor> of_workers;
    for (int r = 0; r < workers; ++r) {
      of_workers.push_back(part_of(received, *layout, r));
      total += parts.open(of_workers.back(), r);
    }
    std::int64_t overflows = 0;
    for (const BlockLayout::Piece& piece : layout->of_part(rank)) {
      std::vector<at::Tensor> blocks;
      for (const at::Tensor& part : of_workers) blocks.push_back(part.narrow(0, piece.begin, piece.bytes));
      const at::Tensor rest = rest_.narrow(0, send.where + piece.range.begin, piece.range.size());
      overflows += outer::add_up(blocks, send.wire, total, rest, added_up.narrow(0, piece.begin, piece.bytes));
    }
    if (overflows > 0) throw parts.failure("the workers' progress is too large to be added up");
    parts.seal(added_up, total);
    // The same to everybody, and all at once: Gloo's broadcasts of one part after the other leave links idle. What was
    // received has been added up by now: its memory is free.
    for (int r = 0; r < workers; ++r) part_of(received, *layout, r).copy_(added_up);
    return to_all_->all_to_all(sums, received);
  };
  const auto check = [=] {
    for (int r = 0; r < workers; ++r) parts.open(part_of(sums, *layout, r), r);
  };
  message.works = {stages_.start({[=, this] { return to_owners_->all_to_all(received, payload); }, add_up}, check)};
  return sent;
}

std::vector<WireFormat::Arrived> BlockWire::sum(const Message& message, const Range& stretch) const {
  const BlockLayout& layout = *message.layout;
  std::vector<Arrived> result;
  for (std::size_t i = 0; i < layout.stretches().size(); ++i) {
    if (layout.stretches()[i] != stretch) continue;
    for (const BlockLayout::Piece& piece : layout.of_stretch(i)) {
      const auto blocks = [&](const at::Tensor& all, double weight) {
        return outer::Wired(all.narrow(0, piece.begin, piece.bytes), layout.wire(), piece.range.size(), weight);
      };
      result.push_back({piece.range, blocks(message.sums, 1),
                        keeps_sent(message) ? blocks(message.payload, message.weight) : outer::Wired()});
    }
  }
  return result;
}

void BlockWire::scale_rest(const Message& message, std::int64_t where, double share) {
  for (const BlockLayout::Piece& piece : message.layout->of_part(to_owners_->rank())) {
    rest_.narrow(0, where + piece.range.begin, piece.range.size()).mul_(share);
  }
}

std::int64_t BlockWire::wire_bytes(std::int64_t numel, Wire wire) const {
  const BlockLayout layout({{0, numel}}, wire, to_owners_->size());
  return 2 * (to_owners_->size() - 1) * layout.part_bytes();
}

void BlockWire::visit_sent(StateVisitor& visitor, const std::string& name, Message& message,
                           const std::vector<Range>& stretches) const {
  Wire wire = message.layout ? message.layout->wire() : largest_;
  visit_wire(visitor, name + "/wire", wire);
  if (visitor.reads()) {
    if (!in_blocks(wire)) refuse_damaged(name + "/wire", static_cast<double>(wire));
    message.layout = std::make_shared<const BlockLayout>(stretches, wire, to_owners_->size());
    message.numel = stretches.empty() ? 0 : stretches.back().end;
    if (message.layout->all_bytes() > message.payload.numel()) {
      refuse_damaged(name + "/wire", static_cast<double>(wire));
    }
  }
  visit_amount(visitor, name + "/weight", message.weight);
  if (message.weight == 0) refuse_damaged(name + "/weight", message.weight);
  if (keeps_sent(message)) visitor.tensor(name, message.payload.narrow(0, 0, message.layout->all_bytes()));
}

void BlockWire::visit_sum(StateVisitor& visitor, const std::string& name, Message& message) const {
  visitor.tensor(name, message.sums.narrow(0, 0, message.layout->all_bytes()));
}

}  // namespace co2
