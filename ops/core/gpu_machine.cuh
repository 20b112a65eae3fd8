// SPDX-License-Identifier: Apache-2.0
//
// What the kernels need of the machine and CUDA has no portable name for. The
// tests have a file of the same name that does the same on a CPU.
#ifndef CAC_TF_OPS_CORE_GPU_MACHINE_CUH_
#define CAC_TF_OPS_CORE_GPU_MACHINE_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "ops/core/anchored_cac.h"

#define CAC_TF_DEVICE __device__ __forceinline__
// The memory of a block whose size its launch says.
#define CAC_TF_SHARED_MEMORY extern __shared__ float4 shared_memory[]
#define CAC_TF_LAUNCH(kernel, blocks, threads, shared, stream, ...) \
  kernel<<<blocks, threads, shared, stream>>>(__VA_ARGS__)

namespace cac_tf {
namespace {

// The hardware's approximations: relative errors below 1.3e-7, 1.2e-7, 1.7e-7.
// Results and arguments that are not normal numbers are 0.
CAC_TF_DEVICE float RsqrtApprox(float x) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
CAC_TF_DEVICE float RcpApprox(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
CAC_TF_DEVICE float Ex2Approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// As of half_precision.h, for which devices have instructions.
CAC_TF_DEVICE float Widen(float x) { return x; }
CAC_TF_DEVICE float Widen(BFloat16 x) {
  return __bfloat162float(__ushort_as_bfloat16(x.bits));
}
CAC_TF_DEVICE float Widen(Float16 x) {
  return __half2float(__ushort_as_half(x.bits));
}
template <typename Element>
CAC_TF_DEVICE Element Round(float x) {
  if constexpr (sizeof(Element) == sizeof(float)) {
    return x;
  } else if constexpr (std::is_same_v<Element, BFloat16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  } else {
    return {__half_as_ushort(__float2half_rn(x))};
  }
}

// The larger one, and a NaN if there is one.
CAC_TF_DEVICE float MaxNan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a != a ? a : (b > a || b != b ? b : a);
#endif
}

// kBytes (2, 4, 8 or 16) from global to shared memory. Before architecture 80,
// and for 2 bytes, a thread waits for its copies at once.
template <int kBytes>
CAC_TF_DEVICE void CopyAsync(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16) {  // Past the L1.
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address),
                 "l"(from)
                 : "memory");
    return;
  } else if constexpr (kBytes >= 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address),
                 "l"(from), "n"(kBytes)
                 : "memory");
    return;
  }
#endif
  struct alignas(kBytes) Bytes {
    char x[kBytes];
  };
  *static_cast<Bytes*>(to) = *static_cast<const Bytes*>(from);
}

// Ends a group of copies.
CAC_TF_DEVICE void CommitCopies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for this thread's groups but the last kLeft.
template <int kLeft>
CAC_TF_DEVICE void WaitForCopies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

// What a launch depends on, of the current device.
struct Device {
  int processors, shared_of_processor, shared_of_block;
};

inline cudaError_t ReadDevice(Device* device) {
  int number;
  cudaError_t error = cudaGetDevice(&number);
  const auto read = [&](int* value, cudaDeviceAttr attribute) {
    if (error == cudaSuccess) {
      error = cudaDeviceGetAttribute(value, attribute, number);
    }
  };
  read(&device->processors, cudaDevAttrMultiProcessorCount);
  read(&device->shared_of_processor,
       cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  read(&device->shared_of_block, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  // Some of it is the kernels' own.
  device->shared_of_block -= 2048;
  return error;
}

// Without it, a launch may ask for 48 KiB of shared memory.
template <typename Kernel>
cudaError_t AllowShared(Kernel* kernel, size_t bytes) {
  if (bytes <= 48 * 1024 - 2048) return cudaSuccess;
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

}  // namespace
}  // namespace cac_tf

#endif  // CAC_TF_OPS_CORE_GPU_MACHINE_CUH_
