// SPDX-License-Identifier: Apache-2.0
//
// For 33 to 256 classes whose number is no multiple of 4, or that are not
// aligned: rows in shared memory.
//
// A warp takes a tile of 32 / lanes rows, whose logits lie together in memory:
// it copies them as they lie, whatever the number of classes, and `lanes`
// lanes then work at each row. Nothing is shared between warps. Two tiles are
// in flight where the copy is asynchronous.
#ifndef CAC_TF_OPS_CORE_GPU_TILE_KERNEL_CUH_
#define CAC_TF_OPS_CORE_GPU_TILE_KERNEL_CUH_

#include "ops/core/gpu_row.cuh"
#include "ops/core/gpu_tile.cuh"

namespace cac_tf {
namespace {

constexpr int kTileThreads = 128;

template <int kVector, int kMode, typename Element>
__global__ void __launch_bounds__(kTileThreads)
    TileKernel(const Problem<Element> p, const TileShape shape) {
  CAC_TF_SHARED_MEMORY;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int lanes = shape.lanes, rank = lane % lanes, classes = p.classes;
  const int rows_of_tile = 32 / lanes, vectors = classes / kVector;
  constexpr bool kHasOutputs = kMode != kLoss;
  // Of a warp: what it puts out, always float32, and then its logits.
  const int bytes = shape.tile_size * (sizeof(float) * kHasOutputs +
                                       sizeof(Element) * shape.buffers);
  float* const outputs = reinterpret_cast<float*>(
      reinterpret_cast<char*>(shared_memory) + warp * bytes);
  Element* const buffers =
      reinterpret_cast<Element*>(outputs + kHasOutputs * shape.tile_size);
  const int row_in_tile = lane / lanes;
  const int row_offset = row_in_tile * classes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * (kTileThreads / 32);

  const auto copy_in = [&](int64_t tile, Element* to) {
    if (tile < shape.tiles) {
      const int64_t first = tile * rows_of_tile;
      const int rows = static_cast<int>(
          p.rows - first < rows_of_tile ? p.rows - first : rows_of_tile);
      CopyTileIn(p.logits + first * classes, to, rows * classes,
                 shape.is_aligned, 0, lane);
    }
    CommitCopies();
  };

  int64_t tile = static_cast<int64_t>(blockIdx.x) * (kTileThreads / 32) + warp;
  int buffer = 0;
  if (shape.buffers == 2) copy_in(tile, buffers);
  for (; tile < shape.tiles; tile += step) {
    const Element* const z_tile = buffers + buffer * shape.tile_size;
    if (shape.buffers == 2) {
      buffer ^= 1;
      copy_in(tile + step, buffers + buffer * shape.tile_size);
    } else {
      copy_in(tile, buffers);
    }
    const int64_t row = tile * rows_of_tile + row_in_tile;
    const bool is_row = row < p.rows;
    const int64_t label = is_row ? LabelOf<kMode>(p, row) : 0;
    const bool is_label = kMode == kScores || (label >= 0 && label < classes);
    int own = is_label ? static_cast<int>(label) : 0;
    if (shape.buffers == 2) {
      WaitForCopies<1>();
    } else {
      WaitForCopies<0>();
    }
    __syncwarp();

    const Element* const z = z_tile + row_offset;
    float* const out = outputs + row_offset;
    Sums sums = NoSums();
#pragma unroll 2
    for (int i = rank; i < vectors; i += lanes) {
      float x[kVector];
      LoadSome<kVector>(z + i * kVector, x);
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        const int place = i * kVector + j;
        sums.Add<kMode>(x[j], place == own, place);
      }
    }
    for (int distance = 1; distance < lanes; distance *= 2) {
      sums.Add<kMode>(sums.From<kMode>(distance));
    }
    if constexpr (kMode == kScores) own = static_cast<int>(sums.place);
    const Row known(sums, p.magnitude, Widen(z[own]), is_label);
    Shares others{0.0f, 0.0f, 0.0f};
#pragma unroll 2
    for (int i = rank; i < vectors; i += lanes) {
      float x[kVector], v[kVector];
      LoadSome<kVector>(z + i * kVector, x);
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        const Shares share = known.Of(x[j]);
        others.AddClass<kMode>(share, i * kVector + j == own);
        v[j] = share.template Kept<kMode>();
      }
      if constexpr (kHasOutputs) StoreSome<kVector>(v, out + i * kVector);
    }
    for (int distance = 1; distance < lanes; distance *= 2) {
      others.Add(others.template From<kMode>(distance));
    }
    Result result;
    const Upstream upstream = Upstream::Of<kMode>(p, is_row ? row : 0);
    result.Set<kMode>(known, others, p.anchor_weight, upstream.tuplet,
                      upstream.anchor);
    if (is_row && rank == 0) WriteRow<kMode>(p, row, own, known, result);
    // With the output of the own class; all others lie in `out` already.
    const auto put_out = [&](float of_own, auto* to) {
      __syncwarp();
      if (rank == 0) out[own] = of_own;
      __syncwarp();
      const int64_t first = tile * rows_of_tile;
      const int rows = static_cast<int>(
          p.rows - first < rows_of_tile ? p.rows - first : rows_of_tile);
      CopyTileOut(outputs, to + first * classes, rows * classes,
                  shape.is_aligned, 0, lane);
    };
    if constexpr (kHasOutputs) {
      // Rows close to the anchor of another class; few, once there is a model.
      const bool some_are_close =
          __any_sync(kAllLanes, result.k_is_close && is_row);
      float k_gradient = 0.0f;
      if (some_are_close) {
        float v = 0.0f;
        for (int j = rank * kVector; j < classes; j += lanes * kVector) {
          for (int e = j; e < j + kVector; ++e) {
            if (e != own && Widen(z[e]) != known.value) v += out[e];
          }
        }
        for (int distance = 1; distance < lanes; distance *= 2) {
          v += __shfl_xor_sync(kAllLanes, v, distance);
        }
        k_gradient = result.KGradient(v);
      }
#pragma unroll 2
      for (int i = rank; i < vectors; i += lanes) {
        float x[kVector], v[kVector];
        LoadSome<kVector>(z + i * kVector, x);
        LoadSome<kVector>(out + i * kVector, v);
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          v[j] = result.template Output<kMode>(known, x[j], v[j]);
        }
        StoreSome<kVector>(v, out + i * kVector);
      }
      if (some_are_close && result.k_is_close) {
        for (int j = rank * kVector; j < classes; j += lanes * kVector) {
          for (int e = j; e < j + kVector; ++e) {
            if (e != own && Widen(z[e]) == known.value) out[e] = k_gradient;
          }
        }
      }
      put_out(result.own, OutputsOf<kMode>(p));
    }
    if constexpr (kMode == kScores) {
      __syncwarp();
      for (int j = rank; j < classes; j += lanes) {
        out[j] = result.Distance(known, Widen(z[j]));
      }
      put_out(result.OwnDistance(known), p.scores.distances);
    }
    // The buffer that the next copy fills has been read by all lanes.
    __syncwarp();
  }
}

}  // namespace
}  // namespace cac_tf

#endif  // CAC_TF_OPS_CORE_GPU_TILE_KERNEL_CUH_
