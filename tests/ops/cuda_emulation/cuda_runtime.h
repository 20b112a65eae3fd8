// SPDX-License-Identifier: Apache-2.0
//
// As much of CUDA as the kernels in ops/core use, on a CPU: every thread of a
// block is a context of its own that runs until it has to wait for others.
// Slow and faithful to the order that barriers and shuffles enforce, so that
// the kernels can be tested where there is no GPU.
#ifndef CAC_TF_TESTS_OPS_CUDA_EMULATION_CUDA_RUNTIME_H_
#define CAC_TF_TESTS_OPS_CUDA_EMULATION_CUDA_RUNTIME_H_

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __launch_bounds__(...)
// A block runs on its own, so what its threads share can be static.
#define __shared__ static

struct Dimensions {
  unsigned x;
};
inline Dimensions threadIdx, blockIdx, gridDim, blockDim;

struct alignas(16) float4 {
  float x, y, z, w;
};

using cudaStream_t = void*;
enum cudaError_t : int { cudaSuccess };
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "none"; }

namespace emulation {

constexpr int kWarp = 32;

struct Thread {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(1 << 16);
  bool is_done = false;
  // Waits of the block and of the warp that it has come to so far.
  int64_t block_waits = 0, warp_waits = 0;
  float exchanged[2] = {};
};

inline std::vector<std::unique_ptr<Thread>> threads;
inline ucontext_t scheduler;
inline std::function<void()> kernel;
inline std::vector<float4> shared;

inline Thread& Current() { return *threads[threadIdx.x]; }

inline void Yield() {
  const unsigned self = threadIdx.x;
  swapcontext(&threads[self]->context, &scheduler);
  threadIdx.x = self;
}

// Goes on when all threads in [first, last) have come to as many waits.
inline void WaitFor(int first, int last, int64_t Thread::* waits) {
  const int64_t mine = ++(Current().*waits);
  for (;;) {
    bool all_came = true;
    for (int i = first; i < last; ++i) {
      const bool came = threads[i].get()->*waits >= mine;
      all_came &= came;
      // A GPU would wait for it for ever, or do what nobody knows.
      if (!came && threads[i]->is_done) {
        std::fprintf(stderr, "Thread %d left before a barrier.\n", i);
        std::abort();
      }
    }
    if (all_came) return;
    Yield();
  }
}

inline void WaitForWarp() {
  const int first = threadIdx.x / kWarp * kWarp;
  WaitFor(first, first + kWarp, &Thread::warp_waits);
}

inline void RunThread() {
  kernel();
  Current().is_done = true;
  Yield();
}

inline void Launch(unsigned blocks, unsigned block_threads, size_t shared_bytes,
                   const std::function<void()>& body) {
  kernel = body;
  shared.resize((shared_bytes + 15) / 16);
  shared.shrink_to_fit();
  // NaN, as numbers of whatever type.
  std::fill_n(reinterpret_cast<unsigned char*>(shared.data()),
              shared.size() * sizeof(float4), 0xff);
  gridDim.x = blocks;
  blockDim.x = block_threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    threads.clear();
    for (unsigned i = 0; i < block_threads; ++i) {
      threads.push_back(std::make_unique<Thread>());
      Thread& thread = *threads.back();
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.data();
      thread.context.uc_stack.ss_size = thread.stack.size();
      makecontext(&thread.context, RunThread, 0);
    }
    for (bool is_running = true; is_running;) {
      is_running = false;
      for (unsigned i = 0; i < block_threads; ++i) {
        if (threads[i]->is_done) continue;
        is_running = true;
        threadIdx.x = i;
        swapcontext(&scheduler, &threads[i]->context);
      }
    }
  }
}

}  // namespace emulation

inline void __syncthreads() {
  emulation::WaitFor(0, blockDim.x, &emulation::Thread::block_waits);
}

inline void __syncwarp() { emulation::WaitForWarp(); }

// The value of another lane of the warp.
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  static_assert(sizeof(T) == sizeof(float));
  emulation::Thread& self = emulation::Current();
  // Two places in turn: a thread that is quick may be one exchange ahead.
  const int place = self.warp_waits % 2;
  std::memcpy(&self.exchanged[place], &value, sizeof(T));
  emulation::WaitForWarp();
  T result;
  std::memcpy(
      &result,
      &emulation::threads[threadIdx.x / 32 * 32 + lane]->exchanged[place],
      sizeof(T));
  return result;
}
template <typename T>
T __shfl_xor_sync(unsigned lanes, T value, int distance) {
  return __shfl_sync(lanes, value, (threadIdx.x % 32) ^ distance);
}
inline int __any_sync(unsigned lanes, int is_true) {
  for (int distance = 16; distance > 0; distance /= 2) {
    is_true |= __shfl_xor_sync(lanes, is_true, distance);
  }
  return is_true;
}

#endif  // CAC_TF_TESTS_OPS_CUDA_EMULATION_CUDA_RUNTIME_H_
