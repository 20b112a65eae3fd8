// SPDX-License-Identifier: Apache-2.0
//
// For up to 1,024 classes: a row in the registers of the lanes of a warp.
#ifndef CAC_TF_OPS_CORE_GPU_WARP_KERNEL_CUH_
#define CAC_TF_OPS_CORE_GPU_WARP_KERNEL_CUH_

#include "ops/core/gpu_row.cuh"

namespace cac_tf {
namespace {

// kLanes lanes (2 ... 32) have a row, at most 32 numbers each.
template <int kVector, int kLanes, int kMode, typename Element>
__global__ void __launch_bounds__(128, kMode == kLoss ? 7 : 5)
    WarpKernel(const Problem<Element> p) {
  constexpr int kChunks = 32 / kVector;
  const int rank = threadIdx.x % kLanes, classes = p.classes;
  const int64_t wanted =
      (static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x) / kLanes;
  const bool is_row = wanted < p.rows;
  const int64_t row = is_row ? wanted : p.rows - 1;
  const Element* const from = p.logits + row * classes;
  const int64_t label = LabelOf<kMode>(p, row);
  const int mine = rank * kVector;  // Index of my first number.
  float z[32];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int j = c * kLanes * kVector + mine;
    if (j < classes) {
      LoadSome<kVector>(from + j, z + c * kVector);
    } else {
#pragma unroll
      for (int e = 0; e < kVector; ++e) z[c * kVector + e] = 0.0f;
    }
  }
  const bool is_label = kMode == kScores || (label >= 0 && label < classes);
  int own = is_label ? static_cast<int>(label) : 0;
  // Of my numbers' indices, relative to my first one.
  int own_here = own - mine;
  Sums sums = NoSums();
  float own_value = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (c * kLanes * kVector + mine < classes) {
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        const int place = c * kLanes * kVector + e;
        const bool is_own = own_here == place;
        sums.Add<kMode>(z[c * kVector + e], is_own, mine + place);
        if (is_own) own_value = z[c * kVector + e];
      }
    }
  }
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    sums.Add<kMode>(sums.From<kMode>(distance));
  }
  if constexpr (kMode == kScores) {
    own = static_cast<int>(sums.place);
    own_here = own - mine;
    own_value = sums.candidate;
  }
  const int owner = own / kVector % kLanes;
  own_value = __shfl_sync(kAllLanes, own_value,
                          threadIdx.x % 32 / kLanes * kLanes + owner);
  const Row known(sums, p.magnitude, own_value, is_label);
  Shares others{0.0f, 0.0f, 0.0f};
  float v[kMode == kLoss ? 1 : 32];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (c * kLanes * kVector + mine < classes) {
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        const Shares share = known.Of(z[c * kVector + e]);
        others.AddClass<kMode>(share, own_here == c * kLanes * kVector + e);
        if constexpr (kMode != kLoss) {
          v[c * kVector + e] = share.template Kept<kMode>();
        }
      }
    }
  }
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    others.Add(others.template From<kMode>(distance));
  }
  Result result;
  const Upstream upstream = Upstream::Of<kMode>(p, row);
  result.Set<kMode>(known, others, p.anchor_weight, upstream.tuplet,
                    upstream.anchor);
  if (is_row && rank == 0) WriteRow<kMode>(p, row, own, known, result);
  if constexpr (kMode != kLoss) {
    const bool some_are_close = __any_sync(kAllLanes, result.k_is_close);
    float k_gradient = 0.0f;
    if (some_are_close) {
      float sum = 0.0f;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        if (c * kLanes * kVector + mine < classes) {
#pragma unroll
          for (int e = 0; e < kVector; ++e) {
            if (own_here != c * kLanes * kVector + e &&
                z[c * kVector + e] != known.value) {
              sum += v[c * kVector + e];
            }
          }
        }
      }
#pragma unroll
      for (int distance = 1; distance < kLanes; distance *= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, distance);
      }
      k_gradient = result.KGradient(sum);
    }
    if (!is_row) return;
    auto* const to = OutputsOf<kMode>(p) + row * classes;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int j = c * kLanes * kVector + mine;
      if (j < classes) {
        float g[kVector];
#pragma unroll
        for (int e = 0; e < kVector; ++e) {
          g[e] = result.template Output<kMode>(known, z[c * kVector + e],
                                               v[c * kVector + e]);
          if (some_are_close && result.k_is_close &&
              z[c * kVector + e] == known.value) {
            g[e] = k_gradient;
          }
        }
        StoreSome<kVector>(g, to + j);
        if constexpr (kMode == kScores) {
#pragma unroll
          for (int e = 0; e < kVector; ++e) {
            g[e] = result.Distance(known, z[c * kVector + e]);
          }
          StoreSome<kVector>(g, p.scores.distances + row * classes + j);
        }
      }
    }
    // By the lane that wrote it before, so in this order.
    if (rank == owner) {
      to[own] = Round<OutputOf<kMode, Element>>(result.own);
      if constexpr (kMode == kScores) {
        p.scores.distances[row * classes + own] = result.OwnDistance(known);
      }
    }
  }
}

}  // namespace
}  // namespace cac_tf

#endif  // CAC_TF_OPS_CORE_GPU_WARP_KERNEL_CUH_
