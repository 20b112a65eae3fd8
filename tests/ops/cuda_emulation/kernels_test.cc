// SPDX-License-Identifier: Apache-2.0
//
// The CUDA kernels, run by emulation, against the core on the CPU.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "ops/core/anchored_cac_gpu.cu"

namespace cac_tf {
namespace {

constexpr float kMagnitude = 10.0f, kAnchorWeight = 0.1f;
int failures = 0;

void Compare(const std::string& what, const std::vector<float>& actual,
             const std::vector<float>& expected, int64_t row_size,
             double tolerance) {
  for (size_t start = 0; start < expected.size(); start += row_size) {
    double scale = 0;
    for (int64_t j = 0; j < row_size; ++j) {
      scale = std::max<double>(scale, std::fabs(expected[start + j]));
    }
    for (int64_t j = 0; j < row_size; ++j) {
      const double a = actual[start + j], e = expected[start + j];
      const bool is_right =
          std::isnan(e) ? std::isnan(a) : std::fabs(a - e) <= tolerance * scale;
      if (is_right) continue;
      std::fprintf(stderr, "FAILED: %s, row %zu, %ld: %g instead of %g\n",
                   what.c_str(), start / row_size, static_cast<long>(j), a, e);
      ++failures;
      return;
    }
  }
}

// A copy in memory of exactly that size.
template <typename Element>
std::unique_ptr<Element[], decltype(&std::free)> Aligned(
    const std::vector<Element>& values, int64_t offset) {
  void* place = nullptr;
  if (posix_memalign(&place, 16, (offset + values.size()) * sizeof(Element))) {
    std::abort();
  }
  Element* const elements = static_cast<Element*>(place);
  std::copy(values.begin(), values.end(), elements + offset);
  return {elements, &std::free};
}

template <typename Element>
std::vector<float> Wide(const std::vector<Element>& values) {
  std::vector<float> wide;
  for (Element value : values) wide.push_back(Widen(value));
  return wide;
}

// `z` once more, where the kernels find it.
template <typename Element>
void CheckScores(const std::string& name, const std::vector<Element>& z,
                 const Element* on_gpu, int64_t rows, int64_t classes,
                 int64_t offset) {
  struct Outputs {
    std::vector<float> unknown_score, distances, gamma;
    std::vector<int32_t> nearest;
    Outputs(int64_t rows, int64_t numbers)
        : unknown_score(rows),
          distances(numbers),
          gamma(numbers),
          nearest(rows) {}
  } cpu(rows, rows * classes), gpu(rows, rows * classes);
  AnchoredCacScores(z.data(), rows, classes, kMagnitude,
                    {cpu.distances.data(), cpu.gamma.data(),
                     cpu.unknown_score.data(), cpu.nearest.data()});
  const auto distances = Aligned(gpu.distances, offset);
  const auto gamma = Aligned(gpu.gamma, offset);
  AnchoredCacScoresOnGpu(nullptr, on_gpu, rows, classes, kMagnitude,
                         {distances.get() + offset, gamma.get() + offset,
                          gpu.unknown_score.data(), gpu.nearest.data()});
  std::copy_n(distances.get() + offset, rows * classes, gpu.distances.data());
  std::copy_n(gamma.get() + offset, rows * classes, gpu.gamma.data());
  Compare(name + ": distances", gpu.distances, cpu.distances, 1, 1e-6);
  Compare(name + ": gamma", gpu.gamma, cpu.gamma, 1, 8e-6);
  Compare(name + ": unknown score", gpu.unknown_score, cpu.unknown_score, 1,
          8e-6);
  if (gpu.nearest == cpu.nearest) return;
  std::fprintf(stderr, "FAILED: %s: nearest\n", name.c_str());
  ++failures;
}

// `offset`: of the logits and the gradient in memory that is aligned.
template <typename Element, typename Label>
void CheckLoss(int64_t rows, int64_t classes, float noise, int64_t offset) {
  const std::string name =
      std::to_string(sizeof(Element)) + " bytes, " + std::to_string(rows) +
      "x" + std::to_string(classes) + ", noise " + std::to_string(noise) +
      ", offset " + std::to_string(offset);
  std::mt19937 random(classes);
  std::normal_distribution<float> normal;
  std::vector<float> wide(rows * classes);
  std::vector<Label> labels;
  for (float& value : wide) value = noise * normal(random);
  for (int64_t i = 0; i < rows; ++i) {
    labels.push_back(random() % classes);
    wide[i * classes + (i % 3 ? labels[i] : 0)] += kMagnitude;
  }
  if (rows > 4) {
    labels[1] = -1;
    labels[2] = classes;
    wide[3 * classes] = NAN;
    wide[4 * classes + classes - 1] = -INFINITY;
  }
  std::vector<Element> z;
  for (float value : wide) z.push_back(Round<Element>(value));
  struct Outputs {
    std::vector<float> loss, anchor, tuplet, state;
    std::vector<Element> gradient;
    Outputs(int64_t rows, int64_t classes)
        : loss(rows),
          anchor(rows),
          tuplet(rows),
          state(rows * kRowStateSize),
          gradient(rows * classes) {}
  } cpu(rows, classes), gpu(rows, classes);
  // All positive, since their sums must not cancel.
  std::vector<float> ups[3];
  for (auto& up : ups) {
    for (int64_t i = 0; i < rows; ++i) up.push_back(std::fabs(normal(random)));
  }
  const LossUpstream upstream{ups[0].data(), ups[1].data(), ups[2].data()};
  AnchoredCacLoss(z.data(), labels.data(), rows, classes, kMagnitude,
                  kAnchorWeight, cpu.loss.data(), cpu.anchor.data(),
                  cpu.tuplet.data(), cpu.state.data());
  AnchoredCacLossGrad(z.data(), labels.data(), cpu.state.data(), upstream, rows,
                      classes, kMagnitude, kAnchorWeight, cpu.gradient.data());
  const auto place = Aligned(z, offset);
  AnchoredCacLossOnGpu(nullptr, place.get() + offset, labels.data(), rows,
                       classes, kMagnitude, kAnchorWeight, gpu.loss.data(),
                       gpu.anchor.data(), gpu.tuplet.data(), gpu.state.data());
  const auto gradient = Aligned(gpu.gradient, offset);
  AnchoredCacLossGradOnGpu(nullptr, place.get() + offset, labels.data(),
                           upstream, rows, classes, kMagnitude, kAnchorWeight,
                           gradient.get() + offset);
  std::copy_n(gradient.get() + offset, rows * classes, gpu.gradient.data());
  Compare(name + ": loss", gpu.loss, cpu.loss, 1, 2e-6);
  Compare(name + ": anchor", gpu.anchor, cpu.anchor, 1, 1e-6);
  if (noise <= 1) Compare(name + ": tuplet", gpu.tuplet, cpu.tuplet, 1, 6e-6);
  CheckScores(name, z, place.get() + offset, rows, classes, offset);
  // What is almost the same may be rounded to neighbors.
  const double step = std::is_same_v<Element, float>      ? 0
                      : std::is_same_v<Element, BFloat16> ? 0x1p-7
                                                          : 0x1p-10;
  Compare(name + ": gradient", Wide(gpu.gradient), Wide(cpu.gradient), classes,
          2e-6 + step);
}

template <typename Element>
void CheckSizes(float noise) {
  for (int64_t classes : {2, 3, 6, 8, 12, 20, 32}) {
    CheckLoss<Element, int32_t>(69, classes, noise, 0);
  }
  for (int64_t classes : {33, 34, 100, 102, 200, 257}) {
    CheckLoss<Element, int64_t>(19, classes, noise, 0);
  }
  for (int64_t classes : {6, 16, 128, 259, 1028}) {
    CheckLoss<Element, int32_t>(5, classes, noise, 1);
  }
  for (int64_t classes : {400, 1000, 1100, 2304}) {
    CheckLoss<Element, int64_t>(5, classes, noise, 0);
  }
}

int Main() {
  for (float noise : {1.0f, 0.0f, 1e8f}) CheckSizes<float>(noise);
  CheckSizes<BFloat16>(1.0f);
  // Here threads go on from tile to tile, and long rows do not fit.
  device_of_the_test = {1, 9000, 9000};
  CheckSizes<float>(0.001f);
  CheckSizes<Float16>(1.0f);
  CheckLoss<float, int32_t>(1, 21000, 0.1f, 0);
  std::printf("%d failures\n", failures);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace cac_tf

int main() { return cac_tf::Main(); }
