// SPDX-License-Identifier: Apache-2.0
//
// The core as custom calls of XLA, by its typed foreign-function interface.
// Built twice: for JAX, which looks the handlers up by their C names, and into
// TensorFlow's library, which registers them by the same names.
//
// Logits of float32, bfloat16 or float16 have any leading axes; all of them
// together are the rows. Errors of single rows are NaN: a custom call cannot
// stop a program because of a value.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ops/core/anchored_cac.h"
#include "xla/ffi/api/ffi.h"
#ifdef CAC_TF_CUDA
#include "ops/core/anchored_cac_gpu.h"
#endif

namespace cac_tf {
namespace {

namespace ffi = xla::ffi;
using Floats = ffi::Buffer<ffi::F32>;
using Integers = ffi::Buffer<ffi::S32>;
using FloatResult = ffi::Result<ffi::Buffer<ffi::F32>>;

// About 20 microseconds of work; less is not worth another thread.
constexpr int64_t kElementsOfAPiece = 1 << 15;

// Pieces of rows that any thread may take. The caller works too, and waits
// only for pieces that somebody has begun, so a full pool cannot block it.
class Pieces {
 public:
  Pieces(int64_t rows, int64_t row_size) : rows_(rows) {
    rows_of_a_piece_ = std::max<int64_t>(
        1, kElementsOfAPiece / std::max<int64_t>(1, row_size));
    count_ = (rows + rows_of_a_piece_ - 1) / rows_of_a_piece_;
  }
  int64_t count() const { return count_; }

  template <typename Work>
  void Run(const Work& work) {
    for (;;) {
      const int64_t piece = next_.fetch_add(1);
      if (piece >= count_) return;
      const int64_t begin = piece * rows_of_a_piece_;
      work(begin, std::min(rows_, begin + rows_of_a_piece_));
      const std::lock_guard<std::mutex> lock(mutex_);
      if (++finished_ == count_) all_finished_.notify_all();
    }
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    all_finished_.wait(lock, [this] { return finished_ == count_; });
  }

 private:
  int64_t rows_, rows_of_a_piece_, count_, finished_ = 0;
  std::atomic<int64_t> next_{0};
  std::mutex mutex_;
  std::condition_variable all_finished_;
};

// Calls work(begin, end) for pieces of the rows, on the threads of XLA.
template <typename Work>
void ForRows(ffi::ThreadPool& pool, int64_t rows, int64_t row_size,
             const Work& work) {
  // Shared with helpers that may come to it when all is long done.
  const auto pieces = std::make_shared<Pieces>(rows, row_size);
  const int64_t helpers = std::min(pool.num_threads(), pieces->count()) - 1;
  for (int64_t i = 0; i < helpers; ++i) {
    pool.Schedule([pieces, work] { pieces->Run(work); });
  }
  pieces->Run(work);
  pieces->Wait();
}

int64_t RowsOf(const ffi::AnyBuffer& logits) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < logits.dimensions().size(); ++i) {
    rows *= logits.dimensions()[i];
  }
  return rows;
}

int64_t WidthOf(const ffi::AnyBuffer& logits) {
  return logits.dimensions().back();
}

ffi::Error CheckLogits(const ffi::AnyBuffer& logits) {
  if (logits.dimensions().size() < 2 || WidthOf(logits) < 2 ||
      WidthOf(logits) > kMaxClasses) {
    return ffi::Error::InvalidArgument(
        "logits must have shape (batch, classes) with at least two classes");
  }
  const ffi::DataType type = logits.element_type();
  if (type != ffi::F32 && type != ffi::BF16 && type != ffi::F16) {
    return ffi::Error::InvalidArgument(
        "logits must be float32, bfloat16 or float16");
  }
  return ffi::Error::Success();
}

ffi::Error CheckInputs(const ffi::AnyBuffer& logits,
                       const ffi::AnyBuffer& labels) {
  if (ffi::Error error = CheckLogits(logits); error.failure()) return error;
  if (static_cast<int64_t>(labels.element_count()) != RowsOf(logits)) {
    return ffi::Error::InvalidArgument("one label for each row of logits");
  }
  if (labels.element_type() != ffi::S32 && labels.element_type() != ffi::S64) {
    return ffi::Error::InvalidArgument("labels must be int32 or int64");
  }
  return ffi::Error::Success();
}

// For what comes after the inputs: a caller may be of another release.
ffi::Error CheckSizes(
    std::initializer_list<std::pair<size_t, int64_t>> found_and_expected) {
  for (const auto& [found, expected] : found_and_expected) {
    if (static_cast<int64_t>(found) != expected) {
      return ffi::Error::InvalidArgument(
          "an input or output of " + std::to_string(found) +
          " numbers should have " + std::to_string(expected));
    }
  }
  return ffi::Error::Success();
}

ffi::Error CheckLoss(const ffi::AnyBuffer& logits, const ffi::AnyBuffer& labels,
                     const Floats& loss, const Floats& anchor,
                     const Floats& tuplet, const Floats& row_state) {
  if (ffi::Error error = CheckInputs(logits, labels); error.failure()) {
    return error;
  }
  const int64_t rows = RowsOf(logits);
  return CheckSizes({{loss.element_count(), rows},
                     {anchor.element_count(), rows},
                     {tuplet.element_count(), rows},
                     {row_state.element_count(), rows * kRowStateSize}});
}

// What the loss gives and what its gradient takes have the same sizes.
ffi::Error CheckGrad(const ffi::AnyBuffer& logits, const ffi::AnyBuffer& labels,
                     const Floats& row_state, const Floats& loss,
                     const Floats& anchor, const Floats& tuplet,
                     const ffi::AnyBuffer& gradient) {
  if (ffi::Error error =
          CheckLoss(logits, labels, loss, anchor, tuplet, row_state);
      error.failure()) {
    return error;
  }
  if (gradient.element_type() != logits.element_type()) {
    return ffi::Error::InvalidArgument(
        "the gradient has the type of the logits");
  }
  return CheckSizes({{gradient.element_count(), logits.element_count()}});
}

// Calls function(logits) with a pointer of their own type.
template <typename Function>
ffi::Error WithLogits(const ffi::AnyBuffer& logits, const Function& function) {
  const void* z = logits.untyped_data();
  switch (logits.element_type()) {
    case ffi::BF16:
      return function(static_cast<const BFloat16*>(z));
    case ffi::F16:
      return function(static_cast<const Float16*>(z));
    default:
      return function(static_cast<const float*>(z));
  }
}

// Calls function(logits, labels).
template <typename Function>
ffi::Error WithTypes(const ffi::AnyBuffer& logits, const ffi::AnyBuffer& labels,
                     const Function& function) {
  return WithLogits(logits, [&](auto* z) {
    const void* y = labels.untyped_data();
    return labels.element_type() == ffi::S64
               ? function(z, static_cast<const int64_t*>(y))
               : function(z, static_cast<const int32_t*>(y));
  });
}

// The data of a buffer whose numbers are of the type of `like`.
template <typename Element>
Element* DataLike(const Element* like, const ffi::AnyBuffer& buffer) {
  static_cast<void>(like);
  return static_cast<Element*>(buffer.untyped_data());
}

ffi::Error Loss(ffi::ThreadPool pool, ffi::AnyBuffer logits,
                ffi::AnyBuffer labels, FloatResult loss, FloatResult anchor,
                FloatResult tuplet, FloatResult row_state, float magnitude,
                float anchor_weight) {
  if (ffi::Error error =
          CheckLoss(logits, labels, *loss, *anchor, *tuplet, *row_state);
      error.failure()) {
    return error;
  }
  const int64_t classes = WidthOf(logits);
  float* outputs[] = {loss->typed_data(), anchor->typed_data(),
                      tuplet->typed_data(), row_state->typed_data()};
  return WithTypes(logits, labels, [&](auto* z, auto* y) {
    ForRows(pool, RowsOf(logits), classes, [=](int64_t begin, int64_t end) {
      AnchoredCacLoss(z + begin * classes, y + begin, end - begin, classes,
                      magnitude, anchor_weight, outputs[0] + begin,
                      outputs[1] + begin, outputs[2] + begin,
                      outputs[3] + begin * kRowStateSize);
    });
    return ffi::Error::Success();
  });
}

ffi::Error LossGrad(ffi::ThreadPool pool, ffi::AnyBuffer logits,
                    ffi::AnyBuffer labels, Floats row_state, Floats loss,
                    Floats anchor, Floats tuplet,
                    ffi::Result<ffi::AnyBuffer> gradient, float magnitude,
                    float anchor_weight) {
  if (ffi::Error error =
          CheckGrad(logits, labels, row_state, loss, anchor, tuplet, *gradient);
      error.failure()) {
    return error;
  }
  const int64_t classes = WidthOf(logits);
  const float* state = row_state.typed_data();
  const LossUpstream all{loss.typed_data(), anchor.typed_data(),
                         tuplet.typed_data()};
  return WithTypes(logits, labels, [&](auto* z, auto* y) {
    auto* const result = DataLike(z, *gradient);
    ForRows(pool, RowsOf(logits), classes, [=](int64_t begin, int64_t end) {
      AnchoredCacLossGrad(z + begin * classes, y + begin,
                          state + begin * kRowStateSize, all.From(begin),
                          end - begin, classes, magnitude, anchor_weight,
                          result + begin * classes);
    });
    return ffi::Error::Success();
  });
}

ffi::Error CheckScores(const ffi::AnyBuffer& logits, const Floats& distances,
                       const Floats& gamma, const Floats& unknown_score,
                       const Integers& nearest) {
  if (ffi::Error error = CheckLogits(logits); error.failure()) return error;
  const int64_t rows = RowsOf(logits);
  return CheckSizes({{distances.element_count(), logits.element_count()},
                     {gamma.element_count(), logits.element_count()},
                     {unknown_score.element_count(), rows},
                     {nearest.element_count(), rows}});
}

ffi::Error Scores(ffi::ThreadPool pool, ffi::AnyBuffer logits,
                  FloatResult distances, FloatResult gamma,
                  FloatResult unknown_score, ffi::Result<Integers> nearest,
                  float magnitude) {
  if (ffi::Error error =
          CheckScores(logits, *distances, *gamma, *unknown_score, *nearest);
      error.failure()) {
    return error;
  }
  const int64_t classes = WidthOf(logits);
  const ScoreOutputs all{distances->typed_data(), gamma->typed_data(),
                         unknown_score->typed_data(), nearest->typed_data()};
  return WithLogits(logits, [&](auto* z) {
    ForRows(pool, RowsOf(logits), classes, [=](int64_t begin, int64_t end) {
      AnchoredCacScores(z + begin * classes, end - begin, classes, magnitude,
                        all.From(begin, classes));
    });
    return ffi::Error::Success();
  });
}

#ifdef CAC_TF_CUDA
ffi::Error Check(int gpu_error) {
  return gpu_error == 0 ? ffi::Error::Success()
                        : ffi::Error::Internal(GpuErrorText(gpu_error));
}

ffi::Error LossOnGpu(void* stream, ffi::AnyBuffer logits, ffi::AnyBuffer labels,
                     FloatResult loss, FloatResult anchor, FloatResult tuplet,
                     FloatResult row_state, float magnitude,
                     float anchor_weight) {
  if (ffi::Error error =
          CheckLoss(logits, labels, *loss, *anchor, *tuplet, *row_state);
      error.failure()) {
    return error;
  }
  return WithTypes(logits, labels, [&](auto* z, auto* y) {
    return Check(AnchoredCacLossOnGpu(
        stream, z, y, RowsOf(logits), WidthOf(logits), magnitude, anchor_weight,
        loss->typed_data(), anchor->typed_data(), tuplet->typed_data(),
        row_state->typed_data()));
  });
}

ffi::Error LossGradOnGpu(void* stream, ffi::AnyBuffer logits,
                         ffi::AnyBuffer labels, Floats row_state, Floats loss,
                         Floats anchor, Floats tuplet,
                         ffi::Result<ffi::AnyBuffer> gradient, float magnitude,
                         float anchor_weight) {
  if (ffi::Error error =
          CheckGrad(logits, labels, row_state, loss, anchor, tuplet, *gradient);
      error.failure()) {
    return error;
  }
  const LossUpstream upstream{loss.typed_data(), anchor.typed_data(),
                              tuplet.typed_data()};
  return WithTypes(logits, labels, [&](auto* z, auto* y) {
    return Check(AnchoredCacLossGradOnGpu(
        stream, z, y, upstream, RowsOf(logits), WidthOf(logits), magnitude,
        anchor_weight, DataLike(z, *gradient)));
  });
}

ffi::Error ScoresOnGpu(void* stream, ffi::AnyBuffer logits,
                       FloatResult distances, FloatResult gamma,
                       FloatResult unknown_score, ffi::Result<Integers> nearest,
                       float magnitude) {
  if (ffi::Error error =
          CheckScores(logits, *distances, *gamma, *unknown_score, *nearest);
      error.failure()) {
    return error;
  }
  const ScoreOutputs all{distances->typed_data(), gamma->typed_data(),
                         unknown_score->typed_data(), nearest->typed_data()};
  return WithLogits(logits, [&](auto* z) {
    return Check(AnchoredCacScoresOnGpu(stream, z, RowsOf(logits),
                                        WidthOf(logits), magnitude, all));
  });
}
#endif  // CAC_TF_CUDA

// What a handler takes and gives, by the kind of context that it runs in.
template <typename Context>
auto LossBinding() {
  return ffi::Ffi::Bind()
      .Ctx<Context>()
      .template Arg<ffi::AnyBuffer>()  // logits
      .template Arg<ffi::AnyBuffer>()  // labels
      .template Ret<Floats>()          // loss
      .template Ret<Floats>()          // anchor
      .template Ret<Floats>()          // tuplet
      .template Ret<Floats>()          // row_state
      .template Attr<float>("magnitude")
      .template Attr<float>("anchor_weight");
}

template <typename Context>
auto LossGradBinding() {
  return ffi::Ffi::Bind()
      .Ctx<Context>()
      .template Arg<ffi::AnyBuffer>()  // logits
      .template Arg<ffi::AnyBuffer>()  // labels
      .template Arg<Floats>()          // row_state
      .template Arg<Floats>()          // upstream of loss
      .template Arg<Floats>()          // upstream of anchor
      .template Arg<Floats>()          // upstream of tuplet
      .template Ret<ffi::AnyBuffer>()  // gradient
      .template Attr<float>("magnitude")
      .template Attr<float>("anchor_weight");
}

template <typename Context>
auto ScoresBinding() {
  return ffi::Ffi::Bind()
      .Ctx<Context>()
      .template Arg<ffi::AnyBuffer>()  // logits
      .template Ret<Floats>()          // distances
      .template Ret<Floats>()          // gamma
      .template Ret<Floats>()          // unknown_score
      .template Ret<Integers>()        // nearest
      .template Attr<float>("magnitude");
}

using OnCpu = ffi::ThreadPool;
using OnGpu = ffi::PlatformStream<void*>;

}  // namespace
}  // namespace cac_tf

XLA_FFI_DEFINE_HANDLER_SYMBOL(CacTfAnchoredCacLoss, cac_tf::Loss,
                              cac_tf::LossBinding<cac_tf::OnCpu>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(CacTfAnchoredCacLossGrad, cac_tf::LossGrad,
                              cac_tf::LossGradBinding<cac_tf::OnCpu>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(CacTfAnchoredCacScores, cac_tf::Scores,
                              cac_tf::ScoresBinding<cac_tf::OnCpu>());
#ifdef CAC_TF_CUDA
// They only launch, so they may become part of a CUDA graph.
XLA_FFI_DEFINE_HANDLER_SYMBOL(CacTfAnchoredCacLossOnGpu, cac_tf::LossOnGpu,
                              cac_tf::LossBinding<cac_tf::OnGpu>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(CacTfAnchoredCacLossGradOnGpu,
                              cac_tf::LossGradOnGpu,
                              cac_tf::LossGradBinding<cac_tf::OnGpu>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(CacTfAnchoredCacScoresOnGpu, cac_tf::ScoresOnGpu,
                              cac_tf::ScoresBinding<cac_tf::OnGpu>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
#endif

// For the Python binding, which allocates the results.
extern "C" __attribute__((used)) const int32_t CacTfRowStateSize =
    cac_tf::kRowStateSize;

// Read from the file by the Python loader, before it loads the library.
extern "C" __attribute__((used)) const char CacTfBuiltFor[] = CAC_TF_BUILT_FOR;

#ifdef CAC_TF_IN_TENSORFLOW
extern "C" const XLA_FFI_Api* XLA_FFI_GetApi();

XLA_FFI_REGISTER_HANDLER(XLA_FFI_GetApi(), "CacTfAnchoredCacLoss", "Host",
                         CacTfAnchoredCacLoss);
XLA_FFI_REGISTER_HANDLER(XLA_FFI_GetApi(), "CacTfAnchoredCacLossGrad", "Host",
                         CacTfAnchoredCacLossGrad);
XLA_FFI_REGISTER_HANDLER(XLA_FFI_GetApi(), "CacTfAnchoredCacScores", "Host",
                         CacTfAnchoredCacScores);
#ifdef CAC_TF_CUDA
XLA_FFI_REGISTER_HANDLER(XLA_FFI_GetApi(), "CacTfAnchoredCacLoss", "CUDA",
                         CacTfAnchoredCacLossOnGpu);
XLA_FFI_REGISTER_HANDLER(XLA_FFI_GetApi(), "CacTfAnchoredCacLossGrad", "CUDA",
                         CacTfAnchoredCacLossGradOnGpu);
XLA_FFI_REGISTER_HANDLER(XLA_FFI_GetApi(), "CacTfAnchoredCacScores", "CUDA",
                         CacTfAnchoredCacScoresOnGpu);
#endif
#endif  // CAC_TF_IN_TENSORFLOW
