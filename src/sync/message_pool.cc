#include "sync/message_pool.h"

#include <utility>

namespace co2 {

Message MessagePool::take() {
  if (!free_.empty()) {
    Message message = std::move(free_.back());
    free_.pop_back();
    return message;
  }
  Message message = wire_.allocate(numel_, stretches_, with_sent_);
  bytes_.add(buffer_bytes(message));
  return message;
}

void MessagePool::give_back(Message message) {
  message.works.clear();
  free_.push_back(std::move(message));
}

void MessagePool::release() {
  for (const Message& message : free_) bytes_.remove(buffer_bytes(message));
  free_.clear();
}

}  // namespace co2
