// SPDX-License-Identifier: Apache-2.0
//
// How a warp copies rows that lie together in memory, as they lie, whatever
// the number of classes.
#ifndef CAC_TF_OPS_CORE_GPU_TILE_CUH_
#define CAC_TF_OPS_CORE_GPU_TILE_CUH_

#include "ops/core/gpu_row.cuh"

namespace cac_tf {
namespace {

struct TileShape {
  int lanes;        // of a row; 1, 2, 4, 8, 16 or 32
  int tile_size;    // numbers; a multiple of 8
  int buffers;      // of logits, 1 or 2
  int swizzle;      // of vectors of four; 0, 1, 3 or 7
  bool is_aligned;  // whether global memory is read and written by four numbers
  int64_t tiles;
};

// Where the i-th four numbers of a tile are, so that eight lanes that read the
// same column of eight rows use all banks.
CAC_TF_DEVICE int Swizzled(int i, int swizzle) {
  return i ^ ((i >> 3) & swizzle);
}

// Asynchronously if there is nothing to be converted.
template <typename From, typename To>
CAC_TF_DEVICE void CopyTileIn(const From* from, To* to, int count,
                              bool is_aligned, int swizzle, int lane) {
  const int fours = is_aligned ? count / 4 : 0;
#pragma unroll 2
  for (int i = lane; i < fours; i += 32) {
    To* const place = to + 4 * Swizzled(i, swizzle);
    if constexpr (std::is_same_v<From, To>) {
      CopyAsync<4 * sizeof(To)>(place, from + 4 * i);
    } else {
      float x[4];
      LoadSome<4>(from + 4 * i, x);
      StoreSome<4>(x, place);
    }
  }
#pragma unroll 1
  for (int i = 4 * fours + lane; i < count; i += 32) {
    to[i] = Round<To>(Widen(from[i]));
  }
}

template <typename From, typename To>
CAC_TF_DEVICE void CopyTileOut(const From* from, To* to, int count,
                               bool is_aligned, int swizzle, int lane) {
  const int fours = is_aligned ? count / 4 : 0;
#pragma unroll 2
  for (int i = lane; i < fours; i += 32) {
    float x[4];
    LoadSome<4>(from + 4 * Swizzled(i, swizzle), x);
    StoreSome<4>(x, to + 4 * i);
  }
#pragma unroll 1
  for (int i = 4 * fours + lane; i < count; i += 32) {
    to[i] = Round<To>(Widen(from[i]));
  }
}

}  // namespace
}  // namespace cac_tf

#endif  // CAC_TF_OPS_CORE_GPU_TILE_CUH_
