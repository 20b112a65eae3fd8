// SPDX-License-Identifier: Apache-2.0
//
// The formulas of a row on a GPU, all in float32 whatever the logits are;
// row_functions.inc explains them, and here k is known by its value z_k alone,
// not by its index. There are two passes over a row: its sums, and the shares
// of its classes. What follows from both, every thread of the row computes for
// itself.
//
// The margin d_y - d_k is the only number that float32 is not enough for, as an
// error in it is one of all shares: it is made in two parts.
#ifndef CAC_TF_OPS_CORE_GPU_ROW_CUH_
#define CAC_TF_OPS_CORE_GPU_ROW_CUH_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/core/anchored_cac.h"
#include "ops/core/gpu_machine.cuh"

namespace cac_tf {
namespace {

// What the kernels are asked for. All pointers are to device memory.
template <typename Element>
struct Problem {
  const Element* logits;  // (rows, classes)
  const void* labels;     // (rows), int32 or int64
  bool labels_are_64;
  int64_t rows;
  int classes;
  float magnitude, anchor_weight;
  // In: of the gradient. Out: of the loss, or the gradient.
  LossUpstream upstream;
  float *loss, *anchor, *tuplet, *row_state;
  Element* gradient;  // (rows, classes)
  ScoreOutputs scores;

  template <typename Label>
  void SetLabels(const Label* of_rows, float weight) {
    labels = of_rows;
    labels_are_64 = sizeof(Label) == sizeof(int64_t);
    anchor_weight = weight;
  }
};

// The third is for rows without labels: their own class is the nearest one.
enum Mode : int { kLoss = 1, kGradient = 2, kScores = 4 };

// Of what comes out for every logit: the gradient, or gamma.
template <int kMode, typename Element>
using OutputOf = std::conditional_t<kMode == kScores, float, Element>;

template <int kMode, typename Element>
CAC_TF_DEVICE OutputOf<kMode, Element>* OutputsOf(const Problem<Element>& p) {
  if constexpr (kMode == kScores) {
    return p.scores.gamma;
  } else {
    return p.gradient;
  }
}

constexpr unsigned kAllLanes = 0xffffffffu;

// kCount numbers that are read and written at once.
template <int kCount, typename Element>
struct alignas(kCount * sizeof(Element)) Some {
  Element x[kCount];
};

// From an address that is aligned to all of them together.
template <int kCount, typename Element>
CAC_TF_DEVICE void LoadSome(const Element* from, float* to) {
  const auto some = *reinterpret_cast<const Some<kCount, Element>*>(from);
#pragma unroll
  for (int e = 0; e < kCount; ++e) to[e] = Widen(some.x[e]);
}
template <int kCount, typename Element>
CAC_TF_DEVICE void StoreSome(const float* from, Element* to) {
  Some<kCount, Element> some;
#pragma unroll
  for (int e = 0; e < kCount; ++e) some.x[e] = Round<Element>(from[e]);
  *reinterpret_cast<Some<kCount, Element>*>(to) = some;
}

// T, the largest |z|; R, the sum of all other squares; the largest z but y's,
// and for the scores the index of the first such z.
struct Sums {
  float top, rest, candidate, place;

  template <int kMode>
  CAC_TF_DEVICE void Add(float z, bool is_left_out, int j) {
    const float size = fabsf(z), smaller = fminf(top, size);
    top = MaxNan(top, size);
    rest = fmaf(smaller, smaller, rest);
    if constexpr (kMode == kScores) {
      if (!is_left_out && z > candidate) {
        candidate = z;
        place = static_cast<float>(j);  // Exact, see kMaxClasses.
      }
    } else {
      if (!is_left_out) candidate = fmaxf(candidate, z);
    }
  }
  // Symmetric, so that lanes that exchange theirs get the same bits.
  template <int kMode>
  CAC_TF_DEVICE void Add(const Sums& b) {
    const float smaller = fminf(top, b.top);
    top = MaxNan(top, b.top);
    rest = fmaf(smaller, smaller, rest + b.rest);
    if constexpr (kMode == kScores) {
      const bool is_first = b.candidate == candidate && b.place < place;
      if (b.candidate > candidate || is_first) place = b.place;
    }
    candidate = fmaxf(candidate, b.candidate);
  }
  template <int kMode>
  CAC_TF_DEVICE Sums From(int distance) const {
    Sums other = *this;
    other.top = __shfl_xor_sync(kAllLanes, top, distance);
    other.rest = __shfl_xor_sync(kAllLanes, rest, distance);
    other.candidate = __shfl_xor_sync(kAllLanes, candidate, distance);
    if constexpr (kMode == kScores) {
      other.place = __shfl_xor_sync(kAllLanes, place, distance);
    }
    return other;
  }
};
CAC_TF_DEVICE Sums NoSums() { return {0.0f, 0.0f, -INFINITY, 0.0f}; }

// Over i != y, with s_i = e^(d_k - d_i), v_i = s_i / d_i, t_i = log2 s_i.
struct Shares {
  float s, v, tv;

  // Of one class: what its output is made of.
  template <int kMode>
  CAC_TF_DEVICE float Kept() const {
    return kMode == kScores ? s : v;
  }
  // One class more, whose tv is t.
  template <int kMode>
  CAC_TF_DEVICE void AddClass(const Shares& b, bool is_left_out) {
    if (!is_left_out) s += b.s;
    if constexpr (kMode == kGradient) {
      if (!is_left_out) v += b.v;
      if (!is_left_out) tv = fmaf(b.tv, b.v, tv);
    }
  }
  CAC_TF_DEVICE void Add(const Shares& b) {
    s += b.s;
    v += b.v;
    tv += b.tv;
  }
  template <int kMode>
  CAC_TF_DEVICE Shares From(int distance) const {
    if constexpr (kMode != kGradient) {
      return {__shfl_xor_sync(kAllLanes, s, distance), 0.0f, 0.0f};
    }
    return {__shfl_xor_sync(kAllLanes, s, distance),
            __shfl_xor_sync(kAllLanes, v, distance),
            __shfl_xor_sync(kAllLanes, tv, distance)};
  }
};

// A square root in two parts and its reciprocal; all 0 where the square is.
struct Root {
  float high, low, inverse;

  CAC_TF_DEVICE explicit Root(float square) {
    const float r = RsqrtApprox(square), d = square * r;
    const float correction = fmaf(-d, d, square) * (0.5f * r);
    high = d + correction;
    low = correction - (high - d);
    inverse = fmaf(r, fmaf(-high, r, 1.0f), r);
    if (!(square > 1e-36f)) high = low = inverse = 0.0f;
  }
};

// What all threads of a row know between the two passes.
struct Row {
  float top, rest, magnitude, own_value, value;  // value: z_k
  float factor;                                  // 2 m log2(e)
  float distance;                                // d_k, not 0
  Root own, nearest;
  bool is_valid;

  CAC_TF_DEVICE Row(const Sums& sums, float m, float z_y, bool is_label)
      : top(sums.top),
        rest(fmaxf(sums.rest, 7.5e-37f)),
        magnitude(m),
        own_value(z_y),
        value(sums.candidate),
        factor(2.88539008f * m),
        own(Square(z_y, sums.rest)),
        nearest(Square(sums.candidate, sums.rest)) {
    const float largest = 2.0f * (top + m);
    is_valid = is_label && fmaf(largest, largest, sums.rest) < 3.402823466e38f;
    distance = fmaxf(nearest.high, 1e-15f);
  }
  CAC_TF_DEVICE float Square(float z, float r) const {
    const float size = fabsf(z), offset = z - magnitude;
    // (T - |z|) (T + |z|) as a product: T^2 - z^2 would cancel.
    return fmaf(offset, offset, fmaf(top - size, top + size, r));
  }
  CAC_TF_DEVICE float DistanceOf(float z) const {
    const float square = Square(z, rest);
    return square * RsqrtApprox(square);
  }
  // s, v and t of a class other than y.
  CAC_TF_DEVICE Shares Of(float z) const {
    const float square = Square(z, rest), r = RsqrtApprox(square);
    // d_k - d_i = 2 m (z_i - z_k) / (d_i + d_k)
    const float t =
        ((z - value) * factor) * RcpApprox(fmaf(square, r, distance));
    const float s = Ex2Approx(t);
    return {s, s * r, t};
  }
};

// What all threads of a row know after the second pass.
struct Result {
  float loss, anchor, tuplet;
  // gradient_j = z_j all + v_j each, for all j but y, and but k where
  // `k_is_close`; gamma_j = d_j (1 - s_j each) + all.
  float all, each, own;
  bool k_is_close = false;
  float k_rest, k_share;  // see KGradient

  template <int kMode>
  CAC_TF_DEVICE void Set(const Row& row, const Shares& others,
                         float anchor_weight, float u_tuplet, float u_anchor) {
    if constexpr (kMode == kScores) {
      const float total = 1.0f + others.s, inverse = RcpApprox(total);
      each = fmaf(inverse, fmaf(-total, inverse, 1.0f), inverse);
      own = row.is_valid ? row.nearest.high * (others.s * each) : NAN;
      all = row.is_valid ? 0.0f : NAN;
      return;
    }
    const float m = row.magnitude, zy = row.own_value, zk = row.value;
    const Root &y = row.own, &k = row.nearest;
    // M = d_y - d_k = 2 m (z_k - z_y) / (d_y + d_k), in two parts, since an
    // error in it is one of all shares.
    const float n = zk - zy, back = n + zy;
    const float n_low = (zk - back) - (zy - (back - n));
    const float p = 2.0f * m * n;
    const float p_low = fmaf(2.0f * m, n_low, fmaf(2.0f * m, n, -p));
    const float sum = y.high + k.high;
    const float larger = fmaxf(y.high, k.high), smaller = fminf(y.high, k.high);
    const float sum_low = (smaller - (sum - larger)) + (y.low + k.low);
    const float over = RcpApprox(sum), first = p * over;
    const float second =
        (fmaf(-first, sum, p) + fmaf(-first, sum_low, p_low)) * over;
    const float margin = first + second, margin_low = second - (margin - first);
    // e^-|M|
    const bool is_far = margin > 0.0f;
    const float x = is_far ? -margin : margin,
                x_low = is_far ? -margin_low : margin_low;
    const float t = 1.44269502f * x;
    const float t_low =
        fmaf(x, 1.44269502f, -t) + fmaf(x, 1.92596299e-8f, 1.44269502f * x_low);
    float e = Ex2Approx(t);
    e = fmaf(e, 0.693147181f * t_low, e);
    if constexpr ((kMode & kLoss) != 0) {
      tuplet = fmaxf(margin, 0.0f) +
               log1pf(is_far ? (others.s - 1.0f) + e : e * others.s);
      anchor = y.high;
      loss = fmaf(anchor_weight, anchor, tuplet);
      if (!row.is_valid) loss = anchor = tuplet = NAN;
    }
    if constexpr ((kMode & kGradient) != 0) {
      const float total = is_far ? others.s + e : fmaf(e, others.s, 1.0f);
      float inverse = RcpApprox(total);
      inverse = fmaf(inverse, fmaf(-total, inverse, 1.0f), inverse);
      const float share = (is_far ? 1.0f : e) * inverse;  // p_k
      const float rest_share = share * others.s;          // 1 - p_y
      // sum over i != y of p_i (1 / d_y - 1 / d_i)
      const float tuplet_all =
          (share * k.inverse) *
          fmaf(-0.693147181f, others.tv, -(others.s * margin) * y.inverse);
      const float u_share = u_tuplet * share;
      const float push = (u_tuplet * rest_share + u_anchor) * y.inverse;
      all = fmaf(u_tuplet, tuplet_all, u_anchor * y.inverse);
      each = u_share * m;
      own = y.high < 0.5f * m
                ? fmaf(push, zy - m, -(zy * u_share) * others.v)
                : fmaf(u_tuplet,
                       fmaf(zy, tuplet_all, -(m * rest_share) * y.inverse),
                       (u_anchor * y.inverse) * (zy - m));
      k_is_close = row.is_valid && k.high < 0.5f * m;
      k_rest = zk * push - u_share * (k.inverse * (zk - m));
      k_share = zk * u_share;
      if (!row.is_valid) all = each = own = NAN;
    }
  }
  // What comes out for a class but y, by what was kept of it.
  template <int kMode>
  CAC_TF_DEVICE float Output(const Row& row, float z, float kept) const {
    if constexpr (kMode == kScores) {
      const float score = row.DistanceOf(z) * fmaf(-kept, each, 1.0f) + all;
      return MaxNan(score, own);  // The largest z has the smallest gamma.
    }
    return fmaf(kept, each, z * all);
  }
  // For the scores.
  CAC_TF_DEVICE float Distance(const Row& row, float z) const {
    return row.DistanceOf(z) + all;
  }
  CAC_TF_DEVICE float OwnDistance(const Row& row) const {
    return row.nearest.high + all;
  }
  // Of k, whose anchor is close: its weight is by far the largest, so the
  // others are summed without it (`v`, over all i but y and k).
  CAC_TF_DEVICE float KGradient(float v) const {
    return fmaf(-k_share, v, k_rest);
  }
};

struct Upstream {
  float tuplet = 0.0f, anchor = 0.0f;

  template <int kMode, typename Element>
  CAC_TF_DEVICE static Upstream Of(const Problem<Element>& p, int64_t row) {
    if constexpr (kMode != kGradient) return {};
    const float loss = p.upstream.loss[row];
    return {loss + p.upstream.tuplet[row],
            fmaf(p.anchor_weight, loss, p.upstream.anchor[row])};
  }
};

template <int kMode, typename Element>
CAC_TF_DEVICE int64_t LabelOf(const Problem<Element>& p, int64_t row) {
  if constexpr (kMode == kScores) return -1;  // See Mode.
  return p.labels_are_64 ? static_cast<const int64_t*>(p.labels)[row]
                         : static_cast<const int32_t*>(p.labels)[row];
}

// What there is of each row once; by one of its threads.
template <int kMode, typename Element>
CAC_TF_DEVICE void WriteRow(const Problem<Element>& p, int64_t row, int own,
                            const Row& known, const Result& result) {
  if constexpr (kMode == kLoss) {
    p.loss[row] = result.loss;
    p.anchor[row] = result.anchor;
    p.tuplet[row] = result.tuplet;
    // The gradient on a GPU asks nothing; that on a CPU becomes NaN.
    p.row_state[row * kRowStateSize + kTop] = NAN;
  } else if constexpr (kMode == kScores) {
    p.scores.unknown_score[row] = result.own;
    p.scores.nearest[row] = known.is_valid ? own : 0;
  }
}

}  // namespace
}  // namespace cac_tf

#endif  // CAC_TF_OPS_CORE_GPU_ROW_CUH_
