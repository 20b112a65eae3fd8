// SPDX-License-Identifier: Apache-2.0
//
// Numbers of half precision to float32 and back, to the nearest, ties to even.
// By their bits, so that compilers make vectors of it at every level of
// instructions, and that nothing depends on how a thread treats denormals.
#ifndef CAC_TF_OPS_CORE_HALF_PRECISION_H_
#define CAC_TF_OPS_CORE_HALF_PRECISION_H_

#include <cstdint>
#include <cstring>

#include "ops/core/anchored_cac.h"

namespace cac_tf {

inline uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float OfBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

inline float Widen(float x) { return x; }

inline float Widen(BFloat16 x) { return OfBits(uint32_t{x.bits} << 16); }

inline float Widen(Float16 x) {
  // Exponents of 5 bits are off by 112 in one of 8; 31 is NaN and infinity.
  const uint32_t size = (x.bits & 0x7fffu) << 13;
  const uint32_t moved = size + (112u << 23);
  const uint32_t special = size >= 31u << 23 ? 112u << 23 : 0;
  // A denormal has no leading one, which 2^-14 then is.
  const float denormal = OfBits(size + (113u << 23)) - OfBits(113u << 23);
  const uint32_t bits = size < 1u << 23 ? BitsOf(denormal) : moved + special;
  return OfBits(bits | (x.bits & 0x8000u) << 16);
}

template <typename Element>
Element Round(float x);

template <>
inline float Round<float>(float x) {
  return x;
}

template <>
inline BFloat16 Round<BFloat16>(float x) {
  const uint32_t bits = BitsOf(x);
  const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<uint16_t>((is_nan ? bits | 0x400000u : rounded) >> 16)};
}

template <>
inline Float16 Round<Float16>(float x) {
  const uint32_t bits = BitsOf(x), size = bits & 0x7fffffffu;
  // Beside 0.5, the last bit of a float32 is that of a denormal: 2^-24.
  const uint32_t denormal = BitsOf(OfBits(size) + 0.5f) - BitsOf(0.5f);
  const uint32_t rounded = (size + 0xfffu + (size >> 13 & 1u)) >> 13;
  const uint32_t normal = rounded - (112u << 10);
  uint32_t half = size < 113u << 23 ? denormal : normal;
  half = size >= 143u << 23 ? 0x7c00u : half;  // 2^16, so infinity
  half = size > 255u << 23 ? 0x7e00u : half;
  return {static_cast<uint16_t>(half | (bits >> 16 & 0x8000u))};
}

}  // namespace cac_tf

#endif  // CAC_TF_OPS_CORE_HALF_PRECISION_H_
