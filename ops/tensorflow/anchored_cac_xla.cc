// SPDX-License-Identifier: Apache-2.0
//
// The operations inside XLA (`jit_compile=True`): each becomes a custom call to
// the handler of the same name in ops/xla/ffi_handlers.cc.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ops/core/anchored_cac.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace cac_tf {
namespace {

namespace tf = tensorflow;

xla::Shape Floats(std::initializer_list<int64_t> dimensions) {
  return xla::ShapeUtil::MakeShape(xla::F32, dimensions);
}

// An operation whose float attributes are those of its handler.
// Shapes were checked by the shape functions, and are by the handlers.
class CustomCallOp : public tf::XlaOpKernel {
 protected:
  CustomCallOp(tf::OpKernelConstruction* context, std::string handler,
               std::initializer_list<const char*> attributes)
      : XlaOpKernel(context), handler_(std::move(handler)) {
    std::vector<std::string> texts;
    for (const char* name : attributes) {
      float value;
      OP_REQUIRES_OK(context, context->GetAttr(name, &value));
      texts.push_back(absl::StrFormat("%s = %.9e : f32", name, value));
    }
    attributes_ = absl::StrCat("{", absl::StrJoin(texts, ", "), "}");
  }

  // Calls the handler on all inputs; its results are all outputs.
  //
  // A batch may be dynamic to XLA: so many rows in use of those that there
  // are. A custom call sees them all, and its results get the same mark.
  void Call(tf::XlaOpKernelContext* context,
            const std::vector<xla::Shape>& outputs) {
    std::vector<xla::XlaOp> inputs;
    xla::XlaOp rows_in_use;
    for (int i = 0; i < context->num_inputs(); ++i) {
      xla::XlaOp input = context->Input(i);
      const absl::StatusOr<xla::Shape> shape = context->InputXlaShape(i);
      OP_REQUIRES_OK(context, shape.status());
      for (int axis = 0; axis < shape->dimensions().size(); ++axis) {
        if (!shape->is_dynamic_dimension(axis)) continue;
        OP_REQUIRES(context, axis == 0,
                    tf::errors::InvalidArgument(
                        handler_,
                        ": inside XLA only the number of rows of a "
                        "batch may be dynamic"));
        if (i == 0) rows_in_use = xla::GetDimensionSize(input, 0);
        input = xla::RemoveDynamicDimension(input, axis);
      }
      inputs.push_back(input);
    }
    const xla::XlaOp call = xla::CustomCall(
        context->builder(), handler_, inputs,
        xla::ShapeUtil::MakeTupleShape(outputs), attributes_,
        /*has_side_effect=*/false, /*output_operand_aliasing=*/{},
        /*literal=*/nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
        xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
    for (int i = 0; i < static_cast<int>(outputs.size()); ++i) {
      xla::XlaOp output = xla::GetTupleElement(call, i);
      if (rows_in_use.valid()) {
        output = xla::SetDimensionSize(output, rows_in_use, 0);
      }
      context->SetOutput(i, output);
    }
  }

 private:
  std::string handler_, attributes_;
};

class AnchoredCacLossXlaOp : public CustomCallOp {
 public:
  explicit AnchoredCacLossXlaOp(tf::OpKernelConstruction* context)
      : CustomCallOp(context, "CacTfAnchoredCacLoss",
                     {"magnitude", "anchor_weight"}) {}

  void Compile(tf::XlaOpKernelContext* context) override {
    const int64_t rows = context->InputShape(0).dim_size(0);
    Call(context, {Floats({rows}), Floats({rows}), Floats({rows}),
                   Floats({rows, kRowStateSize})});
  }
};

class AnchoredCacLossGradXlaOp : public CustomCallOp {
 public:
  explicit AnchoredCacLossGradXlaOp(tf::OpKernelConstruction* context)
      : CustomCallOp(context, "CacTfAnchoredCacLossGrad",
                     {"magnitude", "anchor_weight"}) {}

  void Compile(tf::XlaOpKernelContext* context) override {
    const tf::TensorShape logits = context->InputShape(0);
    Call(context,
         {xla::ShapeUtil::MakeShape(context->input_xla_type(0),
                                    {logits.dim_size(0), logits.dim_size(1)})});
  }
};

class AnchoredCacScoresXlaOp : public CustomCallOp {
 public:
  explicit AnchoredCacScoresXlaOp(tf::OpKernelConstruction* context)
      : CustomCallOp(context, "CacTfAnchoredCacScores", {"magnitude"}) {}

  void Compile(tf::XlaOpKernelContext* context) override {
    const tf::TensorShape logits = context->InputShape(0);
    const int64_t rows = logits.dim_size(0), classes = logits.dim_size(1);
    Call(context,
         {Floats({rows, classes}), Floats({rows, classes}), Floats({rows}),
          xla::ShapeUtil::MakeShape(xla::S32, {rows})});
  }
};

// Not by REGISTER_XLA_OP: its registry is read once, when TensorFlow makes its
// first device, and this library is loaded later than that.
#define CAC_TF_REGISTER(device)                                             \
  REGISTER_KERNEL_BUILDER(Name("CacTf>AnchoredCacLoss").Device(device),     \
                          AnchoredCacLossXlaOp);                            \
  REGISTER_KERNEL_BUILDER(Name("CacTf>AnchoredCacLossGrad").Device(device), \
                          AnchoredCacLossGradXlaOp);                        \
  REGISTER_KERNEL_BUILDER(Name("CacTf>AnchoredCacScores").Device(device),   \
                          AnchoredCacScoresXlaOp)

CAC_TF_REGISTER(tf::DEVICE_CPU_XLA_JIT);
#ifdef CAC_TF_CUDA
CAC_TF_REGISTER(tf::DEVICE_GPU_XLA_JIT);
#endif

}  // namespace
}  // namespace cac_tf
