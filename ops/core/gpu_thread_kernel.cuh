// SPDX-License-Identifier: Apache-2.0
//
// For up to 32 classes: a row a thread.
//
// A warp takes 32 rows, whose logits lie together in memory, copies them as
// they lie (while it works at the 32 before), and each lane has one row in its
// registers. Nothing is shared between lanes but the copying.
#ifndef CAC_TF_OPS_CORE_GPU_THREAD_KERNEL_CUH_
#define CAC_TF_OPS_CORE_GPU_THREAD_KERNEL_CUH_

#include "ops/core/gpu_row.cuh"
#include "ops/core/gpu_tile.cuh"

namespace cac_tf {
namespace {

constexpr int kWarpsOfABlock = 4;

template <int kCap, int kVector, int kMode, typename Element>
__global__ void __launch_bounds__(32 * kWarpsOfABlock, kCap <= 8    ? 8
                                                       : kCap <= 12 ? 6
                                                       : kCap <= 20 ? 5
                                                                    : 4)
    ThreadKernel(const Problem<Element> p, const TileShape shape) {
  CAC_TF_SHARED_MEMORY;
  using Staged = OutputOf<kMode, Element>;  // In shared memory.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int classes = p.classes, swizzle = kVector == 4 ? shape.swizzle : 0;
  Staged* const buffers = reinterpret_cast<Staged*>(shared_memory) +
                          warp * shape.buffers * shape.tile_size;
  // Of a tile: all have 32 rows but the last.
  const auto numbers_of = [&](int64_t tile) {
    return static_cast<int>(p.rows - 32 * tile < 32 ? p.rows - 32 * tile : 32) *
           classes;
  };
  const auto copy_in = [&](int64_t tile, Staged* to) {
    if (tile < shape.tiles) {
      CopyTileIn(p.logits + 32 * tile * classes, to, numbers_of(tile),
                 shape.is_aligned, swizzle, lane);
    }
    CommitCopies();
  };
  const int64_t step = static_cast<int64_t>(gridDim.x) * (blockDim.x / 32);
  int64_t tile = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  int buffer = 0;
  if (shape.buffers == 2) copy_in(tile, buffers);
  for (; tile < shape.tiles; tile += step) {
    Staged* const rows = buffers + buffer * shape.tile_size;
    if (shape.buffers == 2) {
      buffer ^= 1;
      copy_in(tile + step, buffers + buffer * shape.tile_size);
    } else {
      copy_in(tile, buffers);
    }
    const int64_t row = 32 * tile + lane;
    const bool is_row = row < p.rows;
    const int64_t label = is_row ? LabelOf<kMode>(p, row) : 0;
    const Upstream upstream = Upstream::Of<kMode>(p, is_row ? row : 0);
    if (shape.buffers == 2) {
      WaitForCopies<1>();
    } else {
      WaitForCopies<0>();
    }
    __syncwarp();
    // Of the four, two or one numbers from j on.
    const auto place_of = [&](int j) {
      if constexpr (kVector == 4) {
        return rows + 4 * Swizzled((lane * classes + j) / 4, swizzle);
      }
      return rows + lane * classes + j;
    };
    float z[kCap];
#pragma unroll
    for (int j = 0; j < kCap; j += kVector) {
#pragma unroll
      for (int e = 0; e < kVector; ++e) z[j + e] = 0.0f;
      if (j < classes) LoadSome<kVector>(place_of(j), z + j);
    }
    const bool is_label = kMode == kScores || (label >= 0 && label < classes);
    int own = is_label ? static_cast<int>(label) : 0;
    // A bit for y and for each number that is none of the row.
    unsigned left_out = classes < 32 ? ~0u << classes : 0u;
    if constexpr (kMode != kScores) left_out |= 1u << own;
    Sums sums = NoSums();
#pragma unroll
    for (int j = 0; j < kCap; ++j) {
      sums.Add<kMode>(z[j], (left_out >> j & 1u) != 0, j);
    }
    if constexpr (kMode == kScores) {
      own = static_cast<int>(sums.place);
      left_out |= 1u << own;
    }
    Staged* const own_place =
        kVector == 4 ? place_of(own / 4 * 4) + own % 4 : place_of(own);
    const Row known(sums, p.magnitude, Widen(*own_place), is_label);
    Shares others{0.0f, 0.0f, 0.0f};
    float v[kMode == kLoss ? 1 : kCap];
#pragma unroll
    for (int j = 0; j < kCap; ++j) {
      const Shares share = known.Of(z[j]);
      others.AddClass<kMode>(share, (left_out >> j & 1u) != 0);
      if constexpr (kMode != kLoss) v[j] = share.template Kept<kMode>();
    }
    Result result;
    result.template Set<kMode>(known, others, p.anchor_weight, upstream.tuplet,
                               upstream.anchor);
    if (is_row) WriteRow<kMode>(p, row, own, known, result);
    // The output of all classes, `v` and `of_own`, takes the place of the
    // logits, and goes out from there.
    const auto put_out = [&](float of_own, auto* to) {
#pragma unroll
      for (int j = 0; j < kCap; j += kVector) {
        if (j < classes) StoreSome<kVector>(v + j, place_of(j));
      }
      *own_place = Round<Staged>(of_own);
      __syncwarp();
      CopyTileOut(rows, to + 32 * tile * classes, numbers_of(tile),
                  shape.is_aligned, swizzle, lane);
    };
    if constexpr (kMode != kLoss) {
      float k_gradient = 0.0f;
      if (result.k_is_close) {
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < kCap; ++j) {
          if ((left_out >> j & 1u) == 0 && z[j] != known.value) sum += v[j];
        }
        k_gradient = result.KGradient(sum);
      }
#pragma unroll
      for (int j = 0; j < kCap; ++j) {
        v[j] = result.template Output<kMode>(known, z[j], v[j]);
      }
      if (result.k_is_close) {
#pragma unroll
        for (int j = 0; j < kCap; ++j)
          if (z[j] == known.value) v[j] = k_gradient;
      }
      put_out(result.own, OutputsOf<kMode>(p));
    }
    if constexpr (kMode == kScores) {
#pragma unroll
      for (int j = 0; j < kCap; ++j) v[j] = result.Distance(known, z[j]);
      __syncwarp();
      put_out(result.OwnDistance(known), p.scores.distances);
    }
    // The buffer that the next copy fills has been read by all lanes.
    __syncwarp();
  }
}

}  // namespace
}  // namespace cac_tf

#endif  // CAC_TF_OPS_CORE_GPU_THREAD_KERNEL_CUH_
