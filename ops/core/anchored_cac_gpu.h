// SPDX-License-Identifier: Apache-2.0
//
// The functions of anchored_cac.h on a CUDA device, one launch each. The
// gradient is made of logits and labels alone: to read them again costs less
// than to keep a state of every row. `row_state` is only marked as none. All
// pointers but those inside a struct's own layout are to device memory, and
// `stream` is a cudaStream_t. They return after the launch, with 0 or an error
// for `GpuErrorText`. Nothing of a row is ever read by the host: an invalid
// label or logit makes its row NaN.
#ifndef CAC_TF_OPS_CORE_ANCHORED_CAC_GPU_H_
#define CAC_TF_OPS_CORE_ANCHORED_CAC_GPU_H_

#include "ops/core/anchored_cac.h"

namespace cac_tf {

template <typename Element, typename Label>
int AnchoredCacLossOnGpu(void* stream, const Element* logits,
                         const Label* labels, int64_t rows, int64_t classes,
                         float magnitude, float anchor_weight, float* loss,
                         float* anchor, float* tuplet, float* row_state);

template <typename Element, typename Label>
int AnchoredCacLossGradOnGpu(void* stream, const Element* logits,
                             const Label* labels, const LossUpstream& upstream,
                             int64_t rows, int64_t classes, float magnitude,
                             float anchor_weight, Element* gradient);

template <typename Element>
int AnchoredCacScoresOnGpu(void* stream, const Element* logits, int64_t rows,
                           int64_t classes, float magnitude,
                           const ScoreOutputs& outputs);

const char* GpuErrorText(int error);

}  // namespace cac_tf

#endif  // CAC_TF_OPS_CORE_ANCHORED_CAC_GPU_H_
