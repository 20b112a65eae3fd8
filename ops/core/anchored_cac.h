// SPDX-License-Identifier: Apache-2.0
//
// The CAC loss of logits and its gradient, and the rejection scores of logits,
// on the CPU: plain C++ that knows no framework. All arrays are row-major; all
// is computed in float32, which half precision logits are widened to, and the
// gradient is rounded to their type.
//
// While the centers are anchors (magnitude * I) no center is ever formed:
//     d_j^2 = sum_{k != j} z_k^2 + (z_j - m)^2
// and loss and gradient cost O(rows * classes). Let T be the largest |z| of a
// row. With R, the sum of all other squares, the sum without j is
//     R + T^2 - z_j^2 = R + (T - |z_j|)(T + |z_j|),
// which keeps full relative precision at any closeness to an anchor: nothing
// large is ever taken away from something large. (As a product, because a
// compiler would contract the difference of squares into an FMA that leaves a
// rounding remainder.)
//
// Every row stands alone, so a caller may cut the rows into any pieces, and
// the result does not depend on how.
#ifndef CAC_TF_OPS_CORE_ANCHORED_CAC_H_
#define CAC_TF_OPS_CORE_ANCHORED_CAC_H_

#include <cstdint>

namespace cac_tf {

// Logits of half precision; `Widen` and `Round` know what the bits mean.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

// What the backward pass needs to know of a row, as columns of `row_state`.
// y is the row's own class, k the nearest other class, p = softmin(d), and
// w_j = (d tuplet / d d_j) / d_j, which is -p_j / d_j but (1 - p_y) / d_y for
// y.
enum RowState : int {
  kTop,              // T, the largest |z|
  kRest,             // R, the sum of the other squares
  kNearestDistance,  // D, which is d_k rounded to float32
  kNearestShare,     // so much that p_j is this times e^(D - d_j)
  kTupletWeight,     // the sum of all w_j
  kAnchorWeight,     // 1 / d_y, or 0 at d_y = 0
  // The gradient of the tuplet loss where one weight can exceed the others by
  // orders of magnitude, and where terms that are large may cancel.
  kOwnTupletGradient,
  kNearestTupletGradient,
  kNearest,  // k; exact in float32, see kMaxClasses
  kRowStateSize,
};

// Class indices are kept in a float32 column.
inline constexpr int64_t kMaxClasses = int64_t{1} << 24;

// Loss of `rows` rows of `classes` >= 2 logits.
//
// tuplet = log(1 + sum_{j != y} e^(d_y - d_j)), anchor = d_y,
// loss = tuplet + anchor_weight * anchor (equations 2, 4 and 5 of the paper).
// Element is float, BFloat16 or Float16, Label int32_t or int64_t.
// A row whose label lies outside 0 ... classes - 1, or whose logits are not
// finite or too large to be squared, gets NaN in all of its outputs.
//
// loss, anchor, tuplet: (rows). row_state: (rows, kRowStateSize).
template <typename Element, typename Label>
void AnchoredCacLoss(const Element* logits, const Label* labels, int64_t rows,
                     int64_t classes, float magnitude, float anchor_weight,
                     float* loss, float* anchor, float* tuplet,
                     float* row_state);

// Gradients of a scalar by the three outputs, (rows) each.
struct LossUpstream {
  const float* loss;
  const float* anchor;
  const float* tuplet;

  LossUpstream From(int64_t row) const {
    return {loss + row, anchor + row, tuplet + row};
  }
};

// Gradient of that scalar by the logits. The gradient of a distance is 0 where
// the distance is 0. A row of NaN state gives a row of NaN, and so does a label
// that is no class.
//
// gradient: (rows, classes).
template <typename Element, typename Label>
void AnchoredCacLossGrad(const Element* logits, const Label* labels,
                         const float* row_state, const LossUpstream& upstream,
                         int64_t rows, int64_t classes, float magnitude,
                         float anchor_weight, Element* gradient);

// Where the scores of rows go.
struct ScoreOutputs {
  float* distances;      // (rows, classes), d
  float* gamma;          // (rows, classes), d_j (1 - softmin(d)_j)
  float* unknown_score;  // (rows), the smallest gamma
  int32_t* nearest;  // (rows), the class of the largest logit, the first one

  ScoreOutputs From(int64_t row, int64_t classes) const {
    return {distances + row * classes, gamma + row * classes,
            unknown_score + row, nearest + row};
  }
};

// Rejection scores of `rows` rows of `classes` >= 2 logits (equation 8). The
// class of the largest logit is that of the nearest anchor and of the smallest
// gamma. A row whose logits are not finite or too large to be squared gets NaN
// and class 0.
template <typename Element>
void AnchoredCacScores(const Element* logits, int64_t rows, int64_t classes,
                       float magnitude, const ScoreOutputs& outputs);

}  // namespace cac_tf

#endif  // CAC_TF_OPS_CORE_ANCHORED_CAC_H_
