// SPDX-License-Identifier: Apache-2.0
//
// Which kernel takes a row of how many classes, and with how many threads.
#include <algorithm>
#include <cstdint>

#include "ops/core/anchored_cac_gpu.h"
#include "ops/core/gpu_block_kernel.cuh"
#include "ops/core/gpu_machine.cuh"
#include "ops/core/gpu_row.cuh"
#include "ops/core/gpu_thread_kernel.cuh"
#include "ops/core/gpu_tile_kernel.cuh"
#include "ops/core/gpu_warp_kernel.cuh"

namespace cac_tf {
namespace {

// How many blocks of a kernel that goes on from row to row: those that fit on
// the device beside each other, and no more than there is work for.
unsigned PersistentBlocks(int64_t wanted, int64_t on_a_processor,
                          const Device& device) {
  return static_cast<unsigned>(std::min<int64_t>(
      wanted, std::max<int64_t>(1, on_a_processor) * device.processors));
}

template <typename Element>
struct Launcher {
  const Problem<Element>& problem;
  const Device& device;
  cudaStream_t stream;

  template <typename Kernel, typename... Shape>
  cudaError_t operator()(Kernel* kernel, unsigned blocks, int threads,
                         size_t shared, const Shape&... shape) const {
    const cudaError_t error = AllowShared(kernel, shared);
    if (error != cudaSuccess) return error;
    CAC_TF_LAUNCH(kernel, blocks, threads, shared, stream, problem, shape...);
    return cudaGetLastError();
  }
};

// Numbers at once, of rows that lie behind each other.
int VectorOf(int classes, bool is_aligned) {
  if (!is_aligned) return 1;
  return classes % 4 == 0 ? 4 : classes % 2 == 0 ? 2 : 1;
}

template <int kCap, int kMode, typename Element>
auto ThreadKernelOf(int vector) {
  return vector == 4   ? &ThreadKernel<kCap, 4, kMode, Element>
         : vector == 2 ? &ThreadKernel<kCap, 2, kMode, Element>
                       : &ThreadKernel<kCap, 1, kMode, Element>;
}

template <int kMode, typename Element>
cudaError_t LaunchThreads(const Launcher<Element>& launch, bool is_aligned) {
  const int n = launch.problem.classes;
  const int vector = VectorOf(n, is_aligned);
  TileShape shape;
  shape.lanes = 1;
  shape.tile_size = 32 * n;
  shape.is_aligned = is_aligned;
  shape.swizzle = vector < 4    ? 0
                  : n % 32 == 0 ? 7
                  : n % 16 == 0 ? 3
                  : n % 8 == 0  ? 1
                                : 0;
  shape.tiles = (launch.problem.rows + 31) / 32;
  // Few rows: a block for each warp, so that they are on different processors.
  const bool is_small = shape.tiles <= 4 * launch.device.processors;
  const int warps = is_small ? 1 : kWarpsOfABlock;
  shape.buffers = is_aligned && !is_small ? 2 : 1;
  const size_t shared = sizeof(OutputOf<kMode, Element>) * shape.tile_size *
                        warps * shape.buffers;
  const int64_t fit = std::min<int64_t>(
      12, launch.device.shared_of_processor / (shared + 1024));
  const auto kernel = n <= 4    ? ThreadKernelOf<4, kMode, Element>(vector)
                      : n <= 8  ? ThreadKernelOf<8, kMode, Element>(vector)
                      : n <= 12 ? ThreadKernelOf<12, kMode, Element>(vector)
                      : n <= 20 ? ThreadKernelOf<20, kMode, Element>(vector)
                                : ThreadKernelOf<32, kMode, Element>(vector);
  return launch(
      kernel,
      PersistentBlocks((shape.tiles + warps - 1) / warps, fit, launch.device),
      32 * warps, shared, shape);
}

template <int kMode, typename Element>
cudaError_t LaunchTiles(const Launcher<Element>& launch, bool is_aligned) {
  const int n = launch.problem.classes;
  constexpr int kWarps = kTileThreads / 32;
  // Never 4: such rows are the warp kernel's.
  const int vector = std::min(2, VectorOf(n, is_aligned));
  TileShape shape;
  shape.swizzle = 0;
  shape.lanes = 1;
  while (20 * shape.lanes < n) shape.lanes *= 2;
  // Little work: more lanes a row, for a shorter way from start to end.
  while (shape.lanes < 16 && shape.lanes * vector < n &&
         launch.problem.rows * shape.lanes / 32 <
             4 * launch.device.processors) {
    shape.lanes *= 2;
  }
  // The rows of a tile begin where four numbers may be read at once.
  shape.lanes = std::min(shape.lanes, !is_aligned || n % 2 == 0 ? 16 : 8);
  const int rows_of_tile = 32 / shape.lanes;
  shape.tile_size = (rows_of_tile * n + 7) / 8 * 8;
  shape.is_aligned = is_aligned;
  shape.tiles = (launch.problem.rows + rows_of_tile - 1) / rows_of_tile;
  // Without much to do there is no next tile.
  const bool is_small = shape.tiles <= 16 * launch.device.processors;
  shape.buffers = is_aligned && !is_small ? 2 : 1;
  const size_t shared =
      shape.tile_size * kWarps *
      (sizeof(Element) * shape.buffers + sizeof(float) * (kMode != kLoss));
  const int64_t fit = std::min<int64_t>(
      12, launch.device.shared_of_processor / (shared + 1024));
  return launch(
      vector == 2 ? &TileKernel<2, kMode, Element>
                  : &TileKernel<1, kMode, Element>,
      PersistentBlocks((shape.tiles + kWarps - 1) / kWarps, fit, launch.device),
      kTileThreads, shared, shape);
}

template <int kMode, typename Element>
cudaError_t LaunchWarps(const Launcher<Element>& launch, bool is_aligned) {
  const int n = launch.problem.classes;
  const bool in_fours = is_aligned && n % 4 == 0;
  int lanes = 2;
  while (32 * lanes < n) lanes *= 2;
  if (!in_fours) lanes = 32;
  const auto kernel = !in_fours     ? &WarpKernel<1, 32, kMode, Element>
                      : lanes == 2  ? &WarpKernel<4, 2, kMode, Element>
                      : lanes == 4  ? &WarpKernel<4, 4, kMode, Element>
                      : lanes == 8  ? &WarpKernel<4, 8, kMode, Element>
                      : lanes == 16 ? &WarpKernel<4, 16, kMode, Element>
                                    : &WarpKernel<4, 32, kMode, Element>;
  const int64_t blocks = (launch.problem.rows * lanes + 127) / 128;
  return launch(kernel, static_cast<unsigned>(blocks), 128, 0);
}

template <int kMode, typename Element>
cudaError_t LaunchBlocks(const Launcher<Element>& launch, bool is_aligned) {
  const int n = launch.problem.classes;
  const Device& device = launch.device;
  const bool in_fours = is_aligned && n % 4 == 0;
  const int vector = in_fours ? 4 : 1;
  const bool is_kept = in_fours && n <= kKeptThreads * kKept;
  int threads = 1024;
  // As few idle places as possible, of 20 to 32 in a thread; the more in a
  // thread, the less the common work of its row weighs.
  for (int kept = kKept, best = INT32_MAX; kept >= 20; kept -= 4) {
    const int wanted = (n + kept * 32 - 1) / (kept * 32) * 32;
    const int width = wanted * vector;
    const int places = (n + width - 1) / width * width;
    if (wanted > kKeptThreads || places >= best) continue;
    best = places;
    threads = wanted;
  }
  const int64_t row_bytes = int64_t{n + 7} / 8 * 8 * sizeof(Element);
  const int64_t most =
      std::min(device.shared_of_block, device.shared_of_processor - 1024);
  const int buffers = 2 * row_bytes <= most ? 2 : 1;
  const bool fits = buffers * row_bytes <= most;
  const int64_t shared = fits ? buffers * row_bytes : 0;
  // By the registers: 96 a thread (672 threads), or 64 (1,024).
  const int64_t by_threads = (is_kept ? 672 : 1024) / threads;
  const int64_t by_shared =
      fits ? device.shared_of_processor / (shared + 2048) : 32;
  const auto kernel =
      in_fours && is_kept && fits ? &BlockKernel<4, kMode, true, true, Element>
      : in_fours && fits          ? &BlockKernel<4, kMode, false, true, Element>
      : fits                      ? &BlockKernel<1, kMode, false, true, Element>
      : in_fours ? &BlockKernel<4, kMode, false, false, Element>
                 : &BlockKernel<1, kMode, false, false, Element>;
  return launch(
      kernel,
      PersistentBlocks(launch.problem.rows,
                       std::min<int64_t>(by_threads, by_shared), device),
      threads, shared, buffers);
}

// Whether four numbers may be read or written at once; true for a null pointer.
template <typename Element>
bool IsForFours(const Element* numbers) {
  return reinterpret_cast<uintptr_t>(numbers) % (4 * sizeof(Element)) == 0;
}

template <int kMode, typename Element>
int Launch(void* stream, const Problem<Element>& problem) {
  if (problem.rows == 0) return cudaSuccess;
  Device device;
  if (const cudaError_t error = ReadDevice(&device); error != cudaSuccess) {
    return error;
  }
  const Launcher<Element> launch{problem, device,
                                 static_cast<cudaStream_t>(stream)};
  const bool is_aligned =
      IsForFours(problem.logits) && IsForFours(problem.gradient) &&
      IsForFours(problem.scores.gamma) && IsForFours(problem.scores.distances);
  const bool in_fours = is_aligned && problem.classes % 4 == 0;
  if (problem.classes <= 32) return LaunchThreads<kMode>(launch, is_aligned);
  if (problem.classes <= 256 && !in_fours) {
    return LaunchTiles<kMode>(launch, is_aligned);
  }
  if (problem.classes <= 1024) return LaunchWarps<kMode>(launch, is_aligned);
  return LaunchBlocks<kMode>(launch, is_aligned);
}

template <typename Element>
Problem<Element> ProblemOf(const Element* logits, int64_t rows, int64_t classes,
                           float magnitude) {
  Problem<Element> problem{};
  problem.logits = logits;
  problem.rows = rows;
  problem.classes = static_cast<int>(classes);
  problem.magnitude = magnitude;
  return problem;
}

}  // namespace

template <typename Element, typename Label>
int AnchoredCacLossOnGpu(void* stream, const Element* logits,
                         const Label* labels, int64_t rows, int64_t classes,
                         float magnitude, float anchor_weight, float* loss,
                         float* anchor, float* tuplet, float* row_state) {
  Problem<Element> problem = ProblemOf(logits, rows, classes, magnitude);
  problem.SetLabels(labels, anchor_weight);
  problem.loss = loss;
  problem.anchor = anchor;
  problem.tuplet = tuplet;
  problem.row_state = row_state;
  return Launch<kLoss>(stream, problem);
}

template <typename Element, typename Label>
int AnchoredCacLossGradOnGpu(void* stream, const Element* logits,
                             const Label* labels, const LossUpstream& upstream,
                             int64_t rows, int64_t classes, float magnitude,
                             float anchor_weight, Element* gradient) {
  Problem<Element> problem = ProblemOf(logits, rows, classes, magnitude);
  problem.SetLabels(labels, anchor_weight);
  problem.upstream = upstream;
  problem.gradient = gradient;
  return Launch<kGradient>(stream, problem);
}

template <typename Element>
int AnchoredCacScoresOnGpu(void* stream, const Element* logits, int64_t rows,
                           int64_t classes, float magnitude,
                           const ScoreOutputs& outputs) {
  Problem<Element> problem = ProblemOf(logits, rows, classes, magnitude);
  problem.scores = outputs;
  return Launch<kScores>(stream, problem);
}

const char* GpuErrorText(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

#define CAC_TF_INSTANTIATE(Element, Label)                                     \
  template int AnchoredCacLossOnGpu(void*, const Element*, const Label*,       \
                                    int64_t, int64_t, float, float, float*,    \
                                    float*, float*, float*);                   \
  template int AnchoredCacLossGradOnGpu(void*, const Element*, const Label*,   \
                                        const LossUpstream&, int64_t, int64_t, \
                                        float, float, Element*)
#define CAC_TF_INSTANTIATE_LABELS(Element)                                     \
  CAC_TF_INSTANTIATE(Element, int32_t);                                        \
  CAC_TF_INSTANTIATE(Element, int64_t);                                        \
  template int AnchoredCacScoresOnGpu(void*, const Element*, int64_t, int64_t, \
                                      float, const ScoreOutputs&)
CAC_TF_INSTANTIATE_LABELS(float);
CAC_TF_INSTANTIATE_LABELS(BFloat16);
CAC_TF_INSTANTIATE_LABELS(Float16);
#undef CAC_TF_INSTANTIATE_LABELS
#undef CAC_TF_INSTANTIATE

}  // namespace cac_tf
