#pragma once
// How a stand-in for Transformer Engine's library is told from the real one: it exports a function
// of this name, `int name()`, which gives the compute capability that it plays (90, 100). Its
// tensors are in the CPU's memory (or a fake device's that computes, which is the same). That is
// all that differs; tests/integration/te_double is the
// only one.

namespace octavo::engine::te {

inline constexpr char kDoubleMarker[] = "octavo_te_double_capability";

}  // namespace octavo::engine::te
