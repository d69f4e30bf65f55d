#pragma once
// Failures of a rendezvous that callers tell apart.

#include "base/error.h"

namespace octavo::rendezvous {

// The keys did not come in time.
class TimedOut : public Error {
 public:
  using Error::Error;
};

// The server is gone, or the way to it.
class Unreachable : public Error {
 public:
  using Error::Error;
};

// No resolver answers for a name: that of a machine that boots, say.
class Unresolved : public Unreachable {
 public:
  using Unreachable::Unreachable;
};

// A name that is known not to exist; of the side that listens, also an address of another machine.
// Waiting seldom helps.
class WrongAddress : public Unreachable {
 public:
  using Unreachable::Unreachable;
};

}  // namespace octavo::rendezvous
