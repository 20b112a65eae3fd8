// SPDX-License-Identifier: Apache-2.0
//
// ops/core/gpu_machine.cuh on a CPU. Approximations are off by as much as the
// hardware's may be, at random; copies are made at once.
#ifndef CAC_TF_TESTS_OPS_CUDA_EMULATION_OPS_CORE_GPU_MACHINE_CUH_
#define CAC_TF_TESTS_OPS_CUDA_EMULATION_OPS_CORE_GPU_MACHINE_CUH_

#include <cuda_runtime.h>

#include <random>

#include "ops/core/half_precision.h"

#define CAC_TF_DEVICE inline
#define CAC_TF_SHARED_MEMORY float4* shared_memory = emulation::shared.data()
#define CAC_TF_LAUNCH(kernel, blocks, threads, shared, stream, ...) \
  static_cast<void>(stream);                                        \
  emulation::Launch(blocks, threads, shared, [&] { kernel(__VA_ARGS__); })

namespace cac_tf {
namespace {

inline float Perturbed(double x, double error) {
  static std::mt19937 random(0);
  const double off = std::uniform_real_distribution<double>(-1, 1)(random);
  const double result = x * (1.0 + error * off);
  return std::fabs(result) < 1.17549435e-38 ? 0.0f : static_cast<float>(result);
}
inline float RsqrtApprox(float x) {
  return Perturbed(1.0 / std::sqrt(static_cast<double>(x)), 1.27e-7);
}
inline float RcpApprox(float x) {
  return Perturbed(1.0 / static_cast<double>(x), 1.19e-7);
}
inline float Ex2Approx(float x) {
  return x == 0.0f ? 1.0f
                   : Perturbed(std::exp2(static_cast<double>(x)), 1.7e-7);
}
inline float MaxNan(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
}

template <int kBytes>
void CopyAsync(void* to, const void* from) {
  std::memcpy(to, from, kBytes);
}
inline void CommitCopies() {}
template <int kLeft>
void WaitForCopies() {}

struct Device {
  int processors = 132, shared_of_processor = 228 * 1024,
      shared_of_block = 224 * 1024;
};
inline Device device_of_the_test;

inline cudaError_t ReadDevice(Device* device) {
  *device = device_of_the_test;
  return cudaSuccess;
}
template <typename Kernel>
cudaError_t AllowShared(Kernel*, size_t) {
  return cudaSuccess;
}

}  // namespace
}  // namespace cac_tf

#endif  // CAC_TF_TESTS_OPS_CUDA_EMULATION_OPS_CORE_GPU_MACHINE_CUH_
