// SPDX-License-Identifier: Apache-2.0
#include "ops/core/anchored_cac.h"

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#ifdef __x86_64__
#include <immintrin.h>
#endif

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
};

#define CAC_TF_ROW_FUNCTIONS(level) \
  RowFunctions { level::LossOfRow, level::GradientOfRow }

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

}  // namespace

template <typename Label>
void AnchoredCacLoss(const float* logits, const Label* labels, int64_t rows,
                     int64_t classes, float magnitude, float anchor_weight,
                     float* loss, float* anchor, float* tuplet,
                     float* row_state) {
  const RowFunctions& row_functions = ForThisMachine();
  for (int64_t i = 0; i < rows; ++i) {
    const RowLoss row =
        row_functions.loss(logits + i * classes, classes, labels[i], magnitude,
                           row_state + i * kRowStateSize);
    loss[i] = row.tuplet + anchor_weight * row.anchor;
    anchor[i] = row.anchor;
    tuplet[i] = row.tuplet;
  }
}

template <typename Label>
void AnchoredCacLossGrad(const float* logits, const Label* labels,
                         const float* row_state, const LossUpstream& upstream,
                         int64_t rows, int64_t classes, float magnitude,
                         float anchor_weight, float* gradient) {
  const RowFunctions& row_functions = ForThisMachine();
  for (int64_t i = 0; i < rows; ++i) {
    row_functions.gradient(
        logits + i * classes, classes, labels[i], magnitude,
        row_state + i * kRowStateSize, upstream.loss[i] + upstream.tuplet[i],
        anchor_weight * upstream.loss[i] + upstream.anchor[i],
        gradient + i * classes);
  }
}

#define CAC_TF_INSTANTIATE(Label)                                             \
  template void AnchoredCacLoss<Label>(const float*, const Label*, int64_t,   \
                                       int64_t, float, float, float*, float*, \
                                       float*, float*);                       \
  template void AnchoredCacLossGrad<Label>(                                   \
      const float*, const Label*, const float*, const LossUpstream&, int64_t, \
      int64_t, float, float, float*)
CAC_TF_INSTANTIATE(int32_t);
CAC_TF_INSTANTIATE(int64_t);
#undef CAC_TF_INSTANTIATE

}  // namespace cac_tf
