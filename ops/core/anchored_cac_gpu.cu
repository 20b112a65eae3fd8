// SPDX-License-Identifier: Apache-2.0
//
// The functions of anchored_cac.h as CUDA kernels; the formulas are explained
// there and in row_functions.inc. A group of threads (one warp for few
// classes, else a whole block) takes a row at a time. The logits of a row are
// read once from memory; a second reading finds them in a cache.
#include <cuda_runtime.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/core/anchored_cac_gpu.h"

namespace cac_tf {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kBlockThreads = 256;
// Up to this many classes one warp has a row, and a block several rows.
constexpr int64_t kClassesOfAWarp = 256;

// The threads that have a row: kThreads of them, of one block.
template <int kThreads>
struct Group {
  static constexpr int kPerBlock = kBlockThreads / kThreads;

  __device__ static int Rank() { return threadIdx.x % kThreads; }
  __device__ static int InBlock() { return threadIdx.x / kThreads; }

  // Combines everybody's `value`; all get the result. `scratch` is shared
  // memory for one value of every warp, and free again afterwards.
  template <typename T, typename Combine>
  __device__ static T Reduce(T value, const Combine& combine, T* scratch) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      value = combine(value, value.From(distance));
    }
    if (kThreads == kWarp) return value;
    const int warp = threadIdx.x / kWarp;
    if (threadIdx.x % kWarp == 0) scratch[warp] = value;
    __syncthreads();
    value = scratch[0];
    for (int i = 1; i < kThreads / kWarp; ++i) {
      value = combine(value, scratch[i]);
    }
    __syncthreads();
    return value;
  }
};

__device__ float Exchange(float x, int distance) {
  return __shfl_xor_sync(kAllLanes, x, distance);
}
__device__ int Exchange(int x, int distance) {
  return __shfl_xor_sync(kAllLanes, x, distance);
}

// The largest |z| and the sum of all other squares; the largest z and where.
struct Sums {
  float top, rest, candidate;
  int index;

  __device__ Sums From(int distance) const {
    return {Exchange(top, distance), Exchange(rest, distance),
            Exchange(candidate, distance), Exchange(index, distance)};
  }
  // A NaN always ends up in `rest`. Symmetric, so that all threads that
  // exchange their sums get the same bits.
  __device__ void AddSize(float size, float other_squares) {
    const bool is_larger = size > top;
    const float smaller = is_larger ? top : size;
    top = is_larger ? size : top;
    rest = (rest + other_squares) + smaller * smaller;
  }
  __device__ void AddCandidate(float value, int at) {
    // Of equal ones the first, so that all threads choose the same.
    if (value > candidate || (value == candidate && at < index)) {
      candidate = value;
      index = at;
    }
  }
};

struct CombineSums {
  __device__ Sums operator()(Sums a, const Sums& b) const {
    a.AddSize(b.top, b.rest);
    a.AddCandidate(b.candidate, b.index);
    return a;
  }
};

// Over all classes but two, with s_j = e^(d_k - d_j): of s_j, of s_j / d_j, and
// of (d_k - d_j) s_j / d_j.
struct Shares {
  float shares, weights, differences;

  __device__ Shares From(int distance) const {
    return {Exchange(shares, distance), Exchange(weights, distance),
            Exchange(differences, distance)};
  }
};

struct AddShares {
  __device__ Shares operator()(const Shares& a, const Shares& b) const {
    return {a.shares + b.shares, a.weights + b.weights,
            a.differences + b.differences};
  }
};

// Whether a row can be read and written four numbers at a time.
__device__ bool IsInFours(const void* row, int64_t classes) {
  return classes % 4 == 0 && reinterpret_cast<uintptr_t>(row) % 16 == 0;
}

// visit(z_j, j) for this thread's share of a row.
template <int kThreads, typename Visit>
__device__ void ForEach(const float* z, int64_t classes, const Visit& visit) {
  int64_t j = Group<kThreads>::Rank();
  if (IsInFours(z, classes)) {
#pragma unroll 2
    for (j *= 4; j < classes; j += 4 * kThreads) {
      const float4 x = *reinterpret_cast<const float4*>(z + j);
      visit(x.x, j);
      visit(x.y, j + 1);
      visit(x.z, j + 2);
      visit(x.w, j + 3);
    }
    return;
  }
#pragma unroll 4
  for (; j < classes; j += kThreads) visit(z[j], j);
}

// result_j = map(z_j, j) for this thread's share of a row.
template <int kThreads, typename Map>
__device__ void MapEach(const float* z, int64_t classes, float* result,
                        const Map& map) {
  int64_t j = Group<kThreads>::Rank();
  if (IsInFours(z, classes) && IsInFours(result, classes)) {
    for (j *= 4; j < classes; j += 4 * kThreads) {
      const float4 x = *reinterpret_cast<const float4*>(z + j);
      *reinterpret_cast<float4*>(result + j) = make_float4(
          map(x.x, j), map(x.y, j + 1), map(x.z, j + 2), map(x.w, j + 3));
    }
    return;
  }
  for (; j < classes; j += kThreads) result[j] = map(z[j], j);
}

template <int kThreads>
__device__ Sums SumRow(const float* z, int64_t classes, int64_t own,
                       Sums* scratch) {
  Sums sums{0.0f, 0.0f, -INFINITY, INT_MAX};
  ForEach<kThreads>(z, classes, [&](float x, int64_t j) {
    sums.AddSize(fabsf(x), 0.0f);
    if (j != own) sums.AddCandidate(x, static_cast<int>(j));
  });
  return Group<kThreads>::Reduce(sums, CombineSums(), scratch);
}

// Whether a squared distance of the row might not be finite; so for NaN too.
__device__ bool Overflows(const Sums& sums, double magnitude) {
  const double largest = 2.0 * (sums.top + magnitude);
  return !(largest * largest + sums.rest < 3.4028234663852886e38);
}

struct SquaredDistance {
  float top, rest, magnitude;

  __device__ float operator()(float z) const {
    const float size = fabsf(z), offset = z - magnitude;
    return offset * offset + (rest + (top - size) * (top + size));
  }
  __device__ double Exact(float z) const {
    const double size = fabs(static_cast<double>(z));
    const double offset = static_cast<double>(z) - magnitude;
    return rest + (top - size) * (top + size) + offset * offset;
  }
};

struct Root {
  float distance, reciprocal;

  // The hardware's guess, and a Newton step.
  __device__ explicit Root(float squared) {
    const float guarded = fmaxf(squared, 1.17549435e-38f);
    const float guess = rsqrtf(guarded);
    reciprocal = guess + 0.5f * guess * (1.0f - (guarded * guess) * guess);
    distance = squared * reciprocal;
  }
};

// d_k - d_j, from d_k^2 - d_j^2 = 2 m (z_j - z_k); see row_functions.inc.
struct Exponent {
  float distance, value, magnitude;

  __device__ float operator()(float z, float d) const {
    return fminf(2.0f * magnitude * (z - value) / (d + distance), 0.0f);
  }
};

template <int kThreads, typename Label>
__global__ void LossKernel(const float* logits, const Label* labels,
                           int64_t rows, int64_t classes, float magnitude,
                           float anchor_weight, float* loss, float* anchor,
                           float* tuplet, float* row_state) {
  using G = Group<kThreads>;
  __shared__ Sums sums_scratch[kBlockThreads / kWarp];
  __shared__ Shares shares_scratch[kBlockThreads / kWarp];
  const int64_t stride = static_cast<int64_t>(gridDim.x) * G::kPerBlock;
  for (int64_t i =
           static_cast<int64_t>(blockIdx.x) * G::kPerBlock + G::InBlock();
       i < rows; i += stride) {
    const float* z = logits + i * classes;
    const int64_t own = labels[i];
    const bool is_label = own >= 0 && own < classes;
    const Sums sums = SumRow<kThreads>(z, classes, own, sums_scratch);
    float* state = row_state + i * kRowStateSize;
    // The same for all threads of the group.
    if (!is_label || Overflows(sums, magnitude)) {
      if (G::Rank() == 0) {
        loss[i] = anchor[i] = tuplet[i] = NAN;
        for (int column = 0; column < kRowStateSize; ++column) {
          state[column] = NAN;
        }
      }
      continue;
    }
    const int nearest = sums.index;
    const SquaredDistance squared{sums.top, sums.rest, magnitude};
    const double own_distance = sqrt(squared.Exact(z[own]));
    const double nearest_distance = sqrt(squared.Exact(z[nearest]));
    const Exponent exponent_of{static_cast<float>(nearest_distance), z[nearest],
                               magnitude};
    Shares others{0.0f, 0.0f, 0.0f};
    ForEach<kThreads>(z, classes, [&](float x, int64_t j) {
      const Root root(squared(x));
      const float exponent = exponent_of(x, root.distance);
      const float share = j == own || j == nearest ? 0.0f : expf(exponent);
      const float weight = share * root.reciprocal;
      others.shares += share;
      others.weights += weight;
      others.differences += exponent * weight;
    });
    others = G::Reduce(others, AddShares(), shares_scratch);
    if (G::Rank() != 0) continue;
    const double margin =
        2.0 * magnitude *
        (static_cast<double>(z[nearest]) - static_cast<double>(z[own])) /
        (own_distance + nearest_distance);
    const double others_and_nearest = 1.0 + others.shares;
    double nearest_share, tuplet_loss;
    if (margin > 0) {
      const double own_part = exp(-margin);
      nearest_share = 1.0 / (others_and_nearest + own_part);
      tuplet_loss = margin + log1p(others.shares + own_part);
    } else {
      const double nearest_part = exp(margin);
      nearest_share = nearest_part / (1.0 + nearest_part * others_and_nearest);
      tuplet_loss = log1p(nearest_part * others_and_nearest);
    }
    const double own_value = z[own], nearest_value = z[nearest];
    const double not_own = nearest_share * others_and_nearest;
    const double own_inverse = own_distance > 0 ? 1.0 / own_distance : 0.0;
    const double nearest_inverse =
        nearest_distance > 0 ? 1.0 / nearest_distance : 0.0;
    // What follows is explained in row_functions.inc.
    const double tuplet_weight =
        -nearest_share * nearest_inverse *
        (others.differences + others_and_nearest * margin * own_inverse);
    const double close = 0.5 * magnitude;
    const double own_gradient =
        own_distance < close
            ? not_own * own_inverse * (own_value - magnitude) -
                  nearest_share * (others.weights + nearest_inverse) * own_value
            : own_value * tuplet_weight - magnitude * not_own * own_inverse;
    const double nearest_gradient =
        nearest_distance < close
            ? nearest_value *
                      (not_own * own_inverse - nearest_share * others.weights) -
                  nearest_share * nearest_inverse * (nearest_value - magnitude)
            : nearest_value * tuplet_weight +
                  magnitude * nearest_share * nearest_inverse;
    state[kTop] = sums.top;
    state[kRest] = sums.rest;
    state[kNearestDistance] = static_cast<float>(nearest_distance);
    state[kNearestShare] = static_cast<float>(nearest_share);
    state[kTupletWeight] = static_cast<float>(tuplet_weight);
    state[kAnchorWeight] = static_cast<float>(own_inverse);
    state[kOwnTupletGradient] = static_cast<float>(own_gradient);
    state[kNearestTupletGradient] = static_cast<float>(nearest_gradient);
    state[kNearest] = static_cast<float>(nearest);
    loss[i] = static_cast<float>(tuplet_loss + anchor_weight * own_distance);
    anchor[i] = static_cast<float>(own_distance);
    tuplet[i] = static_cast<float>(tuplet_loss);
  }
}

template <int kThreads, typename Label>
__global__ void LossGradKernel(const float* logits, const Label* labels,
                               const float* row_state, LossUpstream upstream,
                               int64_t rows, int64_t classes, float magnitude,
                               float anchor_weight, float* gradient) {
  using G = Group<kThreads>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * G::kPerBlock;
  for (int64_t i =
           static_cast<int64_t>(blockIdx.x) * G::kPerBlock + G::InBlock();
       i < rows; i += stride) {
    const float* z = logits + i * classes;
    const float* state = row_state + i * kRowStateSize;
    const int64_t own = labels[i];
    // Labels and state may come from anywhere, and they are indices.
    const bool is_valid = own >= 0 && own < classes && state[kTop] < INFINITY &&
                          state[kNearest] >= 0.0f &&
                          state[kNearest] < static_cast<float>(classes);
    const int64_t nearest =
        is_valid ? static_cast<int64_t>(state[kNearest]) : -1;
    const float tuplet_upstream = upstream.loss[i] + upstream.tuplet[i];
    const float anchor_upstream =
        anchor_weight * upstream.loss[i] + upstream.anchor[i];
    const Exponent exponent_of{state[kNearestDistance],
                               is_valid ? z[nearest] : NAN, magnitude};
    // NaN, and so the whole gradient, if the row is not valid.
    const float scale =
        is_valid ? magnitude * tuplet_upstream * state[kNearestShare] : NAN;
    const float own_anchor_weight = anchor_upstream * state[kAnchorWeight];
    const float all_weight =
        tuplet_upstream * state[kTupletWeight] + own_anchor_weight;
    const float own_gradient = tuplet_upstream * state[kOwnTupletGradient];
    const float nearest_gradient =
        tuplet_upstream * state[kNearestTupletGradient];
    const SquaredDistance squared{state[kTop], state[kRest], magnitude};
    MapEach<kThreads>(
        z, classes, gradient + i * classes, [&](float x, int64_t j) {
          if (j == own)
            return own_gradient + own_anchor_weight * (x - magnitude);
          if (j == nearest) return nearest_gradient + own_anchor_weight * x;
          const Root root(squared(x));
          return x * all_weight +
                 expf(exponent_of(x, root.distance)) * root.reciprocal * scale;
        });
  }
}

// As a macro, since the tests run these kernels on a CPU as well, and only a
// CUDA compiler knows the brackets.
#ifndef CAC_TF_LAUNCH
#define CAC_TF_LAUNCH(kernel, blocks, stream, ...)                         \
  kernel<<<blocks, kBlockThreads, 0, static_cast<cudaStream_t>(stream)>>>( \
      __VA_ARGS__)
#endif

unsigned BlocksFor(int64_t rows, int rows_of_a_block) {
  const int64_t blocks = (rows + rows_of_a_block - 1) / rows_of_a_block;
  return static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 20));
}

}  // namespace

template <typename Label>
int AnchoredCacLossOnGpu(void* stream, const float* logits, const Label* labels,
                         int64_t rows, int64_t classes, float magnitude,
                         float anchor_weight, float* loss, float* anchor,
                         float* tuplet, float* row_state) {
  if (rows == 0) return cudaSuccess;
  if (classes <= kClassesOfAWarp) {
    CAC_TF_LAUNCH((LossKernel<kWarp, Label>),
                  BlocksFor(rows, Group<kWarp>::kPerBlock), stream, logits,
                  labels, rows, classes, magnitude, anchor_weight, loss, anchor,
                  tuplet, row_state);
  } else {
    CAC_TF_LAUNCH((LossKernel<kBlockThreads, Label>), BlocksFor(rows, 1),
                  stream, logits, labels, rows, classes, magnitude,
                  anchor_weight, loss, anchor, tuplet, row_state);
  }
  return cudaGetLastError();
}

template <typename Label>
int AnchoredCacLossGradOnGpu(void* stream, const float* logits,
                             const Label* labels, const float* row_state,
                             const LossUpstream& upstream, int64_t rows,
                             int64_t classes, float magnitude,
                             float anchor_weight, float* gradient) {
  if (rows == 0) return cudaSuccess;
  if (classes <= kClassesOfAWarp) {
    CAC_TF_LAUNCH((LossGradKernel<kWarp, Label>),
                  BlocksFor(rows, Group<kWarp>::kPerBlock), stream, logits,
                  labels, row_state, upstream, rows, classes, magnitude,
                  anchor_weight, gradient);
  } else {
    CAC_TF_LAUNCH((LossGradKernel<kBlockThreads, Label>), BlocksFor(rows, 1),
                  stream, logits, labels, row_state, upstream, rows, classes,
                  magnitude, anchor_weight, gradient);
  }
  return cudaGetLastError();
}

const char* GpuErrorText(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

#define CAC_TF_INSTANTIATE(Label)                                             \
  template int AnchoredCacLossOnGpu<Label>(void*, const float*, const Label*, \
                                           int64_t, int64_t, float, float,    \
                                           float*, float*, float*, float*);   \
  template int AnchoredCacLossGradOnGpu<Label>(                               \
      void*, const float*, const Label*, const float*, const LossUpstream&,   \
      int64_t, int64_t, float, float, float*)
CAC_TF_INSTANTIATE(int32_t);
CAC_TF_INSTANTIATE(int64_t);
#undef CAC_TF_INSTANTIATE

}  // namespace cac_tf
