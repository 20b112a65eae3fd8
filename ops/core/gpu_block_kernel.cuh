// SPDX-License-Identifier: Apache-2.0
//
// For more classes: a row a block.
//
// The row lies in shared memory; while a block works at one, the next is on its
// way. Up to 32 v_j of a thread stay in its registers (20,480 classes); beyond,
// they are computed twice. Rows that do not fit are read three times (kFits is
// false), the second and third time from the L2.
#ifndef CAC_TF_OPS_CORE_GPU_BLOCK_KERNEL_CUH_
#define CAC_TF_OPS_CORE_GPU_BLOCK_KERNEL_CUH_

#include "ops/core/gpu_row.cuh"

namespace cac_tf {
namespace {

constexpr int kKept = 32, kKeptThreads = 640;

template <int kVector, int kMode, bool kIsKept, bool kFits, typename Element>
__global__ void __launch_bounds__(kIsKept ? kKeptThreads : 1024, 1)
    BlockKernel(const Problem<Element> p, const int buffers) {
  CAC_TF_SHARED_MEMORY;
  constexpr int kChunks = kKept / kVector;
  __shared__ float scratch[3][4][32];
  const int classes = p.classes, threads = blockDim.x, lane = threadIdx.x % 32;
  const int warps = threads / 32, warp = threadIdx.x / 32;
  const int mine = threadIdx.x * kVector, stride = threads * kVector;
  const int row_size = (classes + 7) / 8 * 8;  // In shared memory.
  Element* const rows = reinterpret_cast<Element*>(shared_memory);
  const auto copy_in = [&](int64_t row, Element* to) {
    if (!kFits) return;
    if (row < p.rows) {
      const Element* const from = p.logits + row * classes;
      for (int j = mine; j < classes; j += stride) {
        CopyAsync<kVector * sizeof(Element)>(to + j, from + j);
      }
    }
    CommitCopies();
  };
  int buffer = 0;
  if (buffers == 2) copy_in(blockIdx.x, rows);
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const int64_t label = LabelOf<kMode>(p, row);
    const Element* from = p.logits + row * classes;
    if (kFits) {
      from = rows + buffer * row_size;
      if (buffers == 2) {
        buffer ^= 1;
        // Whoever has passed the last barrier is done with the row before last.
        copy_in(row + gridDim.x, rows + buffer * row_size);
        WaitForCopies<1>();
      } else {
        copy_in(row, rows);
        WaitForCopies<0>();
      }
      // No barrier here: a thread reads only what it has copied itself, but
      // for the own class, after the next barrier.
    }
    // visit(numbers, index of the first, place of the first in `v_kept`)
    const auto for_each = [&](const auto& visit) {
      if constexpr (kIsKept) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          const int j = c * stride + mine;
          if (j < classes) {
            float x[kVector];
            LoadSome<kVector>(from + j, x);
            visit(x, j, c * kVector);
          }
        }
      } else {
#pragma unroll 2
        for (int j = mine; j < classes; j += stride) {
          float x[kVector];
          LoadSome<kVector>(from + j, x);
          visit(x, j, 0);
        }
      }
    };
    const bool is_label = kMode == kScores || (label >= 0 && label < classes);
    int own = is_label ? static_cast<int>(label) : 0;
    Sums sums = NoSums();
    for_each([&](const float* x, int j, int) {
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        sums.Add<kMode>(x[e], j + e == own, j + e);
      }
    });
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      sums.Add<kMode>(sums.From<kMode>(distance));
    }
    if (lane == 0) {
      scratch[0][0][warp] = sums.top;
      scratch[0][1][warp] = sums.rest;
      scratch[0][2][warp] = sums.candidate;
      scratch[0][3][warp] = sums.place;
    }
    __syncthreads();
    float own_value = kMode == kScores ? 0.0f : Widen(from[own]);
    sums = NoSums();
    if (lane < warps) {
      sums = {scratch[0][0][lane], scratch[0][1][lane], scratch[0][2][lane],
              scratch[0][3][lane]};
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      sums.Add<kMode>(sums.From<kMode>(distance));
    }
    if constexpr (kMode == kScores) {
      own = static_cast<int>(sums.place);
      own_value = sums.candidate;
    }
    const Row known(sums, p.magnitude, own_value, is_label);
    Shares others{0.0f, 0.0f, 0.0f};
    float v_kept[kIsKept && kMode != kLoss ? kKept : 1];
    for_each([&](const float* x, int j, int place) {
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        const Shares share = known.Of(x[e]);
        others.AddClass<kMode>(share, j + e == own);
        if constexpr (kIsKept && kMode != kLoss) {
          v_kept[place + e] = share.template Kept<kMode>();
        }
      }
    });
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      others.Add(others.template From<kMode>(distance));
    }
    if (lane == 0) {
      scratch[1][0][warp] = others.s;
      scratch[1][1][warp] = others.v;
      scratch[1][2][warp] = others.tv;
    }
    __syncthreads();
    others = {0.0f, 0.0f, 0.0f};
    if (lane < warps) {
      others = {scratch[1][0][lane], scratch[1][1][lane], scratch[1][2][lane]};
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      others.Add(others.template From<kMode>(distance));
    }
    Result result;
    const Upstream upstream = Upstream::Of<kMode>(p, row);
    result.Set<kMode>(known, others, p.anchor_weight, upstream.tuplet,
                      upstream.anchor);
    if (threadIdx.x == 0) WriteRow<kMode>(p, row, own, known, result);
    if constexpr (kMode != kLoss) {
      float k_gradient = 0.0f;
      if (result.k_is_close) {  // The same for all threads of the block.
        float sum = 0.0f;
        for_each([&](const float* x, int j, int place) {
#pragma unroll
          for (int e = 0; e < kVector; ++e) {
            if (j + e != own && x[e] != known.value) {
              sum += kIsKept ? v_kept[place + e] : known.Of(x[e]).v;
            }
          }
        });
        for (int distance = 16; distance > 0; distance /= 2) {
          sum += __shfl_xor_sync(kAllLanes, sum, distance);
        }
        if (lane == 0) scratch[2][0][warp] = sum;
        __syncthreads();
        sum = lane < warps ? scratch[2][0][lane] : 0.0f;
        for (int distance = 16; distance > 0; distance /= 2) {
          sum += __shfl_xor_sync(kAllLanes, sum, distance);
        }
        k_gradient = result.KGradient(sum);
      }
      auto* const to = OutputsOf<kMode>(p) + row * classes;
      for_each([&](const float* x, int j, int place) {
        float g[kVector];
#pragma unroll
        for (int e = 0; e < kVector; ++e) {
          const float kept = kIsKept ? v_kept[place + e]
                                     : known.Of(x[e]).template Kept<kMode>();
          g[e] = result.template Output<kMode>(known, x[e], kept);
          if (result.k_is_close && x[e] == known.value) g[e] = k_gradient;
        }
        StoreSome<kVector>(g, to + j);
        if constexpr (kMode == kScores) {
#pragma unroll
          for (int e = 0; e < kVector; ++e) {
            g[e] = result.Distance(known, x[e]);
          }
          StoreSome<kVector>(g, p.scores.distances + row * classes + j);
        }
      });
      if (own / kVector % threads == static_cast<int>(threadIdx.x)) {
        to[own] = Round<OutputOf<kMode, Element>>(result.own);
        if constexpr (kMode == kScores) {
          p.scores.distances[row * classes + own] = result.OwnDistance(known);
        }
      }
    }
    // One buffer: the own class of this row may still be read above only
    // before the second barrier, so the next row may be copied now.
  }
}

}  // namespace
}  // namespace cac_tf

#endif  // CAC_TF_OPS_CORE_GPU_BLOCK_KERNEL_CUH_
