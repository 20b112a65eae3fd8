// SPDX-License-Identifier: Apache-2.0
//
// The core as TensorFlow operations for the CPU and, where it was built in,
// for CUDA devices.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "ops/core/anchored_cac.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/util/work_sharder.h"
#ifdef CAC_TF_CUDA
#include "ops/core/anchored_cac_gpu.h"
#include "xla/stream_executor/stream.h"
#endif

namespace cac_tf {
namespace {

namespace tf = tensorflow;
using tf::Tensor;
using tf::TensorShape;
using tf::errors::InvalidArgument;
using tf::shape_inference::DimensionHandle;
using tf::shape_inference::InferenceContext;
using tf::shape_inference::ShapeHandle;

absl::Status CheckClassCount(int64_t classes) {
  if (classes < 2 || classes > kMaxClasses) {
    return InvalidArgument("there must be 2 to ", kMaxClasses, " classes; got ",
                           classes);
  }
  return absl::OkStatus();
}

// Shape of logits (input 0).
absl::Status LogitsShape(InferenceContext* c, ShapeHandle* logits) {
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, logits));
  const DimensionHandle classes = c->Dim(*logits, 1);
  if (c->ValueKnown(classes)) {
    TF_RETURN_IF_ERROR(CheckClassCount(c->Value(classes)));
  }
  return absl::OkStatus();
}

// Shapes of logits (input 0) and labels (input 1).
absl::Status LossInputShapes(InferenceContext* c, DimensionHandle* batch,
                             ShapeHandle* logits) {
  TF_RETURN_IF_ERROR(LogitsShape(c, logits));
  ShapeHandle labels;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &labels));
  return c->Merge(c->Dim(*logits, 0), c->Dim(labels, 0), batch);
}

REGISTER_OP("CacTf>AnchoredCacLoss")
    .Input("logits: T")
    .Input("labels: Tlabels")
    .Output("loss: float")
    .Output("anchor: float")
    .Output("tuplet: float")
    .Output("row_state: float")
    .Attr("magnitude: float")
    .Attr("anchor_weight: float")
    .Attr("validate: bool = true")
    .Attr("T: {float, bfloat16, half} = DT_FLOAT")
    .Attr("Tlabels: {int32, int64}")
    .SetShapeFn([](InferenceContext* c) {
      DimensionHandle batch;
      ShapeHandle logits;
      TF_RETURN_IF_ERROR(LossInputShapes(c, &batch, &logits));
      for (int i = 0; i < 3; ++i) c->set_output(i, c->Vector(batch));
      c->set_output(3, c->Matrix(batch, kRowStateSize));
      return absl::OkStatus();
    })
    .Doc(R"doc(
The CAC loss of every row of logits while the centers are anchors.

validate: on the CPU, whether an invalid label or logit is an error; otherwise
  it makes its row NaN, as it always does on a GPU and inside XLA.
row_state: what the gradient needs on the CPU.
)doc");

REGISTER_OP("CacTf>AnchoredCacLossGrad")
    .Input("logits: T")
    .Input("labels: Tlabels")
    .Input("row_state: float")
    .Input("loss_upstream: float")
    .Input("anchor_upstream: float")
    .Input("tuplet_upstream: float")
    .Output("gradient: T")
    .Attr("magnitude: float")
    .Attr("anchor_weight: float")
    .Attr("T: {float, bfloat16, half} = DT_FLOAT")
    .Attr("Tlabels: {int32, int64}")
    .SetShapeFn([](InferenceContext* c) {
      DimensionHandle batch;
      ShapeHandle logits, row_state;
      TF_RETURN_IF_ERROR(LossInputShapes(c, &batch, &logits));
      TF_RETURN_IF_ERROR(
          c->Merge(c->input(2), c->Matrix(batch, kRowStateSize), &row_state));
      for (int i = 3; i < 6; ++i) {
        ShapeHandle upstream;
        TF_RETURN_IF_ERROR(c->Merge(c->input(i), c->Vector(batch), &upstream));
      }
      c->set_output(0, logits);
      return absl::OkStatus();
    })
    .Doc("The gradient of CacTf>AnchoredCacLoss by the logits.");

REGISTER_OP("CacTf>AnchoredCacScores")
    .Input("logits: T")
    .Output("distances: float")
    .Output("gamma: float")
    .Output("unknown_score: float")
    .Output("nearest: int32")
    .Attr("magnitude: float")
    .Attr("T: {float, bfloat16, half} = DT_FLOAT")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle logits;
      TF_RETURN_IF_ERROR(LogitsShape(c, &logits));
      for (int i = 0; i < 2; ++i) c->set_output(i, logits);
      for (int i = 2; i < 4; ++i)
        c->set_output(i, c->Vector(c->Dim(logits, 0)));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Distances, rejection scores, the smallest one and its class, of every row of
logits while the centers are anchors. An invalid row is NaN, and of class 0.
)doc");

// ---- checks at run time: shapes need not have been known before -----------

absl::Status CheckLogits(const Tensor& logits) {
  if (logits.dims() != 2) {
    return InvalidArgument("logits must have shape (batch, classes); got ",
                           logits.shape().DebugString());
  }
  return CheckClassCount(logits.dim_size(1));
}

absl::Status CheckLossInputs(const Tensor& logits, const Tensor& labels) {
  TF_RETURN_IF_ERROR(CheckLogits(logits));
  if (labels.dims() != 1 || labels.dim_size(0) != logits.dim_size(0)) {
    return InvalidArgument("labels must have shape (", logits.dim_size(0),
                           ",); got ", labels.shape().DebugString());
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const char* name, const Tensor& tensor,
                        const TensorShape& shape) {
  if (tensor.shape() == shape) return absl::OkStatus();
  return InvalidArgument(name, " must have shape ", shape.DebugString(),
                         "; got ", tensor.shape().DebugString());
}

// Which row made its loss NaN, and why.
template <typename Label>
absl::Status DescribeInvalidRow(const float* loss, const Label* labels,
                                int64_t rows, int64_t classes) {
  for (int64_t i = 0; i < rows; ++i) {
    if (!std::isnan(loss[i])) continue;
    if (labels[i] < 0 || labels[i] >= classes) {
      return InvalidArgument("The label of row ", i, " is ", labels[i],
                             "; labels must be in 0...", classes - 1, ".");
    }
    return InvalidArgument(
        "Row ", i,
        " of the logits holds NaN or infinity, or numbers that are too large "
        "to be squared in float32.");
  }
  return absl::OkStatus();
}

// About the nanoseconds that an element costs.
constexpr int64_t kLossCost = 1;

template <typename Work>
void ShardRows(tf::OpKernelContext* context, int64_t rows, int64_t row_cost,
               const Work& work) {
  const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
  tf::Shard(workers.num_threads, workers.workers, rows, row_cost, work);
}

#ifdef CAC_TF_CUDA
void* StreamOf(tf::OpKernelContext* context) {
  return context->op_device_context()
      ->stream()
      ->platform_specific_handle()
      .stream;
}

absl::Status GpuStatus(int error) {
  if (error == 0) return absl::OkStatus();
  return tf::errors::Internal(GpuErrorText(error));
}
#endif

template <typename Element, typename Label, bool kOnGpu>
class AnchoredCacLossOp : public tf::OpKernel {
 public:
  explicit AnchoredCacLossOp(tf::OpKernelConstruction* context)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("magnitude", &magnitude_));
    OP_REQUIRES_OK(context, context->GetAttr("anchor_weight", &anchor_weight_));
    OP_REQUIRES_OK(context, context->GetAttr("validate", &validate_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const Tensor& logits = context->input(0);
    const Tensor& labels = context->input(1);
    OP_REQUIRES_OK(context, CheckLossInputs(logits, labels));
    const int64_t rows = logits.dim_size(0), classes = logits.dim_size(1);
    float* outputs[4];
    for (int i = 0; i < 4; ++i) {
      Tensor* output;
      const TensorShape shape =
          i < 3 ? TensorShape({rows}) : TensorShape({rows, kRowStateSize});
      OP_REQUIRES_OK(context, context->allocate_output(i, shape, &output));
      outputs[i] = output->flat<float>().data();
    }
    if (rows == 0) return;
    const auto* z = static_cast<const Element*>(logits.data());
    const Label* y = labels.flat<Label>().data();
    if constexpr (kOnGpu) {
#ifdef CAC_TF_CUDA
      OP_REQUIRES_OK(context, GpuStatus(AnchoredCacLossOnGpu(
                                  StreamOf(context), z, y, rows, classes,
                                  magnitude_, anchor_weight_, outputs[0],
                                  outputs[1], outputs[2], outputs[3])));
#endif
    } else {
      ShardRows(context, rows, kLossCost * classes,
                [&](int64_t begin, int64_t end) {
                  AnchoredCacLoss(z + begin * classes, y + begin, end - begin,
                                  classes, magnitude_, anchor_weight_,
                                  outputs[0] + begin, outputs[1] + begin,
                                  outputs[2] + begin,
                                  outputs[3] + begin * kRowStateSize);
                });
      if (validate_) {
        OP_REQUIRES_OK(context,
                       DescribeInvalidRow(outputs[0], y, rows, classes));
      }
    }
  }

 private:
  float magnitude_, anchor_weight_;
  bool validate_;
};

template <typename Element, typename Label, bool kOnGpu>
class AnchoredCacLossGradOp : public tf::OpKernel {
 public:
  explicit AnchoredCacLossGradOp(tf::OpKernelConstruction* context)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("magnitude", &magnitude_));
    OP_REQUIRES_OK(context, context->GetAttr("anchor_weight", &anchor_weight_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const Tensor& logits = context->input(0);
    const Tensor& labels = context->input(1);
    OP_REQUIRES_OK(context, CheckLossInputs(logits, labels));
    const int64_t rows = logits.dim_size(0), classes = logits.dim_size(1);
    OP_REQUIRES_OK(context, CheckShape("row_state", context->input(2),
                                       TensorShape({rows, kRowStateSize})));
    for (int i = 3; i < 6; ++i) {
      OP_REQUIRES_OK(context, CheckShape("upstream", context->input(i),
                                         TensorShape({rows})));
    }
    Tensor* output;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, logits.shape(), &output));
    if (rows == 0) return;
    const auto* z = static_cast<const Element*>(logits.data());
    const Label* y = labels.flat<Label>().data();
    const float* state = context->input(2).flat<float>().data();
    const LossUpstream all{context->input(3).flat<float>().data(),
                           context->input(4).flat<float>().data(),
                           context->input(5).flat<float>().data()};
    auto* gradient = static_cast<Element*>(output->data());
    if constexpr (kOnGpu) {
#ifdef CAC_TF_CUDA
      OP_REQUIRES_OK(context, GpuStatus(AnchoredCacLossGradOnGpu(
                                  StreamOf(context), z, y, all, rows, classes,
                                  magnitude_, anchor_weight_, gradient)));
#endif
    } else {
      ShardRows(
          context, rows, kLossCost * classes, [&](int64_t begin, int64_t end) {
            AnchoredCacLossGrad(z + begin * classes, y + begin,
                                state + begin * kRowStateSize, all.From(begin),
                                end - begin, classes, magnitude_,
                                anchor_weight_, gradient + begin * classes);
          });
    }
  }

 private:
  float magnitude_, anchor_weight_;
};

template <typename Element, bool kOnGpu>
class AnchoredCacScoresOp : public tf::OpKernel {
 public:
  explicit AnchoredCacScoresOp(tf::OpKernelConstruction* context)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("magnitude", &magnitude_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const Tensor& logits = context->input(0);
    OP_REQUIRES_OK(context, CheckLogits(logits));
    const int64_t rows = logits.dim_size(0), classes = logits.dim_size(1);
    Tensor* outputs[4];
    for (int i = 0; i < 4; ++i) {
      const TensorShape shape = i < 2 ? logits.shape() : TensorShape({rows});
      OP_REQUIRES_OK(context, context->allocate_output(i, shape, &outputs[i]));
    }
    if (rows == 0) return;
    const auto* z = static_cast<const Element*>(logits.data());
    const ScoreOutputs all{
        outputs[0]->flat<float>().data(), outputs[1]->flat<float>().data(),
        outputs[2]->flat<float>().data(), outputs[3]->flat<int32_t>().data()};
    if constexpr (kOnGpu) {
#ifdef CAC_TF_CUDA
      OP_REQUIRES_OK(
          context, GpuStatus(AnchoredCacScoresOnGpu(StreamOf(context), z, rows,
                                                    classes, magnitude_, all)));
#endif
    } else {
      ShardRows(context, rows, kLossCost * classes,
                [&](int64_t begin, int64_t end) {
                  AnchoredCacScores(z + begin * classes, end - begin, classes,
                                    magnitude_, all.From(begin, classes));
                });
    }
  }

 private:
  float magnitude_;
};

#define CAC_TF_REGISTER_ONE(Logit, Element, Label, DEVICE, on_gpu)    \
  REGISTER_KERNEL_BUILDER(Name("CacTf>AnchoredCacLoss")               \
                              .Device(tf::DEVICE)                     \
                              .TypeConstraint<Logit>("T")             \
                              .TypeConstraint<Label>("Tlabels"),      \
                          AnchoredCacLossOp<Element, Label, on_gpu>); \
  REGISTER_KERNEL_BUILDER(Name("CacTf>AnchoredCacLossGrad")           \
                              .Device(tf::DEVICE)                     \
                              .TypeConstraint<Logit>("T")             \
                              .TypeConstraint<Label>("Tlabels"),      \
                          AnchoredCacLossGradOp<Element, Label, on_gpu>)
#define CAC_TF_REGISTER_LOGITS(Logit, Element, DEVICE, on_gpu)   \
  REGISTER_KERNEL_BUILDER(Name("CacTf>AnchoredCacScores")        \
                              .Device(tf::DEVICE)                \
                              .TypeConstraint<Logit>("T"),       \
                          AnchoredCacScoresOp<Element, on_gpu>); \
  CAC_TF_REGISTER_ONE(Logit, Element, int32_t, DEVICE, on_gpu);  \
  CAC_TF_REGISTER_ONE(Logit, Element, int64_t, DEVICE, on_gpu)
#define CAC_TF_REGISTER(DEVICE, on_gpu)                           \
  CAC_TF_REGISTER_LOGITS(float, float, DEVICE, on_gpu);           \
  CAC_TF_REGISTER_LOGITS(tf::bfloat16, BFloat16, DEVICE, on_gpu); \
  CAC_TF_REGISTER_LOGITS(Eigen::half, Float16, DEVICE, on_gpu)

CAC_TF_REGISTER(DEVICE_CPU, false);
#ifdef CAC_TF_CUDA
CAC_TF_REGISTER(DEVICE_GPU, true);
#endif

}  // namespace
}  // namespace cac_tf
