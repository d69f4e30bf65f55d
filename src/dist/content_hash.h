#pragma once
// One number for what a tensor holds, made where it lies: nothing is copied to the host, and the
// same expression runs on a CPU and on a GPU.
//
// The bytes are read as 64-bit integers x, of which y = x ^ (x >>> 31), and the y are summed up,
// each times an odd number of its own, modulo 2^64. One word that changed always shows: y is
// another (x can be had back from it), and the change times an odd number is no multiple of 2^64.
// Changes of several words would have to cancel. That is easy for high bits, because what a change
// of bit b adds is a multiple of 2^b: two flipped bits 63 add 2^64 and are never seen. The shift
// is there for them: a flipped bit of the upper half flips a lower one too, and changes of
// several words cancel with a chance of about 1 in 2^31 at most. The order of the additions
// does not matter, so a device may do them in any. Not meant against somebody who wants two
// tensors to have one hash.

#include <ATen/core/Tensor.h>

namespace octavo::dist {

class ContentHash {
 public:
  explicit ContentHash(at::Device device);
  // Of a contiguous tensor on the device: int64 [], there. Does not wait for the device.
  at::Tensor of(const at::Tensor& values) const;

 private:
  at::Tensor factors_;  // int64: odd numbers for as many words as are summed up at a time
};

}  // namespace octavo::dist
