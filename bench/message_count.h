#pragma once
// What this process says over the network, counted at libc: the tool that links message_count.cpp
// has send, sendmsg, write and their like of its own, which every library of the process calls, so
// that Gloo's messages are seen as well as octavo's.

#include <cstdint>

namespace octavo::bench {

struct MessageCount {
  int64_t store_operations = 0;  // requests to the store
  int64_t sent = 0;              // messages over TCP: these, hand-shakes and what goes to ranks
  int64_t received = 0;          // reads of TCP that gave bytes; a message may take several
  int64_t bytes = 0;             // sent
  int64_t connections = 0;       // begun by this process
  MessageCount operator-(const MessageCount& o) const {
    return {store_operations - o.store_operations, sent - o.sent, received - o.received,
            bytes - o.bytes, connections - o.connections};
  }
};

// Since the process began, or its parent: a fork keeps the counts.
MessageCount messages_so_far();
// Requests are what goes to this port and is no hand-shake.
void count_store_at(int port);

}  // namespace octavo::bench
