// SPDX-License-Identifier: Apache-2.0
#include "ops/core/anchored_cac.h"

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "ops/core/half_precision.h"

// Vectors wider than the machine's own never cross a call that is not inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

#if !defined(__GNUC__) || defined(__clang__) || __GNUC__ < 12
#error "The core needs GCC 12 or newer; the variable CXX names the compiler."
#endif

namespace cac_tf {
namespace {

struct RowLoss {
  double tuplet, anchor;
};

struct RowScores {
  float unknown_score;
  int32_t nearest;
};

namespace baseline {
#define CAC_TF_LANES 4
#include "ops/core/row_functions.inc"
#undef CAC_TF_LANES
}  // namespace baseline

// GCC's target_clones would be shorter, but it takes wide vectors apart for
// the lowest level before it makes the clones.
#if defined(__x86_64__)
#define CAC_TF_HAS_LEVELS
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
namespace x86_64_v3 {
#define CAC_TF_LANES 8
#include "ops/core/row_functions.inc"
#undef CAC_TF_LANES
}  // namespace x86_64_v3
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
namespace x86_64_v4 {
#define CAC_TF_LANES 16
#define CAC_TF_AVX512
#include "ops/core/row_functions.inc"
#undef CAC_TF_AVX512
#undef CAC_TF_LANES
}  // namespace x86_64_v4
#pragma GCC pop_options
#endif

struct RowFunctions {
  decltype(&baseline::LossOfRow) loss;
  decltype(&baseline::GradientOfRow) gradient;
  decltype(&baseline::ScoresOfRow) scores;
  void (*widen_bfloat16)(const BFloat16*, int64_t, float*);
  void (*widen_float16)(const Float16*, int64_t, float*);
  void (*round_bfloat16)(const float*, int64_t, BFloat16*);
  void (*round_float16)(const float*, int64_t, Float16*);

  void Widen(const BFloat16* from, int64_t count, float* to) const {
    widen_bfloat16(from, count, to);
  }
  void Widen(const Float16* from, int64_t count, float* to) const {
    widen_float16(from, count, to);
  }
  void Round(const float* from, int64_t count, BFloat16* to) const {
    round_bfloat16(from, count, to);
  }
  void Round(const float* from, int64_t count, Float16* to) const {
    round_float16(from, count, to);
  }
};

#define CAC_TF_ROW_FUNCTIONS(level)                                        \
  RowFunctions {                                                           \
    level::LossOfRow, level::GradientOfRow, level::ScoresOfRow,            \
        level::WidenRow, level::WidenRow, level::RoundRow, level::RoundRow \
  }

const RowFunctions& ForThisMachine() {
  static const RowFunctions functions = [] {
#ifdef CAC_TF_HAS_LEVELS
    if (__builtin_cpu_supports("x86-64-v4")) {
      return CAC_TF_ROW_FUNCTIONS(x86_64_v4);
    }
    if (__builtin_cpu_supports("x86-64-v3")) {
      return CAC_TF_ROW_FUNCTIONS(x86_64_v3);
    }
#endif
    return CAC_TF_ROW_FUNCTIONS(baseline);
  }();
  return functions;
}

// The logits of a row in float32, and its gradient after them, in one place.
template <typename Element>
class WideRow {
 public:
  explicit WideRow(int64_t classes)
      : classes_(classes), row_(new float[classes]) {}
  const float* Read(const Element* from) {
    ForThisMachine().Widen(from, classes_, row_.get());
    return row_.get();
  }
  float* PlaceOf(Element*) { return row_.get(); }
  void Write(Element* to) { ForThisMachine().Round(row_.get(), classes_, to); }

 private:
  int64_t classes_;
  std::unique_ptr<float[]> row_;
};

// Where nothing is to be converted, rows stay where they are.
template <>
class WideRow<float> {
 public:
  explicit WideRow(int64_t) {}
  const float* Read(const float* from) { return from; }
  float* PlaceOf(float* to) { return to; }
  void Write(float*) {}
};

}  // namespace

template <typename Element, typename Label>
void AnchoredCacLoss(const Element* logits, const Label* labels, int64_t rows,
                     int64_t classes, float magnitude, float anchor_weight,
                     float* loss, float* anchor, float* tuplet,
                     float* row_state) {
  const RowFunctions& row_functions = ForThisMachine();
  WideRow<Element> wide(classes);
  for (int64_t i = 0; i < rows; ++i) {
    const RowLoss row =
        row_functions.loss(wide.Read(logits + i * classes), classes, labels[i],
                           magnitude, row_state + i * kRowStateSize);
    loss[i] = row.tuplet + anchor_weight * row.anchor;
    anchor[i] = row.anchor;
    tuplet[i] = row.tuplet;
  }
}

template <typename Element, typename Label>
void AnchoredCacLossGrad(const Element* logits, const Label* labels,
                         const float* row_state, const LossUpstream& upstream,
                         int64_t rows, int64_t classes, float magnitude,
                         float anchor_weight, Element* gradient) {
  const RowFunctions& row_functions = ForThisMachine();
  WideRow<Element> wide(classes);
  for (int64_t i = 0; i < rows; ++i) {
    row_functions.gradient(
        wide.Read(logits + i * classes), classes, labels[i], magnitude,
        row_state + i * kRowStateSize, upstream.loss[i] + upstream.tuplet[i],
        anchor_weight * upstream.loss[i] + upstream.anchor[i],
        wide.PlaceOf(gradient + i * classes));
    wide.Write(gradient + i * classes);
  }
}

template <typename Element>
void AnchoredCacScores(const Element* logits, int64_t rows, int64_t classes,
                       float magnitude, const ScoreOutputs& outputs) {
  WideRow<Element> wide(classes);
  for (int64_t i = 0; i < rows; ++i) {
    const ScoreOutputs to = outputs.From(i, classes);
    const RowScores row =
        ForThisMachine().scores(wide.Read(logits + i * classes), classes,
                                magnitude, to.distances, to.gamma);
    *to.unknown_score = row.unknown_score;
    *to.nearest = row.nearest;
  }
}

#define CAC_TF_INSTANTIATE(Element, Label)                                     \
  template void AnchoredCacLoss(const Element*, const Label*, int64_t,         \
                                int64_t, float, float, float*, float*, float*, \
                                float*);                                       \
  template void AnchoredCacLossGrad(const Element*, const Label*,              \
                                    const float*, const LossUpstream&,         \
                                    int64_t, int64_t, float, float, Element*)
#define CAC_TF_INSTANTIATE_LABELS(Element)                                 \
  CAC_TF_INSTANTIATE(Element, int32_t);                                    \
  CAC_TF_INSTANTIATE(Element, int64_t);                                    \
  template void AnchoredCacScores(const Element*, int64_t, int64_t, float, \
                                  const ScoreOutputs&)
CAC_TF_INSTANTIATE_LABELS(float);
CAC_TF_INSTANTIATE_LABELS(BFloat16);
CAC_TF_INSTANTIATE_LABELS(Float16);
#undef CAC_TF_INSTANTIATE_LABELS
#undef CAC_TF_INSTANTIATE

}  // namespace cac_tf
