// SPDX-License-Identifier: Apache-2.0
//
// Times the bare core, loss and then gradient, beside a memcpy of the logits
// to the gradient, in turns: benchmarks/fused_op.py builds and runs it.
//
// Arguments: rows, classes, threads, repetitions. Prints one line for every
// repetition: nanoseconds of the loss, of the gradient, of the memcpy.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "ops/core/anchored_cac.h"

namespace {

int64_t Nanoseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return (std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return EXIT_FAILURE;
  const int64_t rows = std::atoll(arguments[1]);
  const int64_t classes = std::atoll(arguments[2]);
  const int64_t num_threads = std::atoll(arguments[3]);
  const int repetitions = std::atoi(arguments[4]);
  std::mt19937 random(0);
  std::normal_distribution<float> normal;
  std::vector<float> z(rows * classes), gradient(rows * classes);
  std::vector<int32_t> labels(rows);
  for (float& value : z) value = normal(random);
  for (int64_t i = 0; i < rows; ++i) {
    labels[i] = random() % classes;
    z[i * classes + labels[i]] += 10;
  }
  std::vector<float> loss(rows), anchor(rows), tuplet(rows), one(rows, 1.0f),
      zero(rows, 0.0f), state(rows * cac_tf::kRowStateSize);
  const cac_tf::LossUpstream upstream{one.data(), zero.data(), zero.data()};
  // work(begin, end) for an equal share of the rows in every thread.
  const auto for_rows = [&](const auto& work) {
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < num_threads; ++i) {
      threads.emplace_back(work, rows * i / num_threads,
                           rows * (i + 1) / num_threads);
    }
    work(0, rows / num_threads);
    for (std::thread& thread : threads) thread.join();
  };
  for (int i = 0; i < repetitions; ++i) {
    const int64_t forward = Nanoseconds([&] {
      for_rows([&](int64_t begin, int64_t end) {
        cac_tf::AnchoredCacLoss(
            z.data() + begin * classes, labels.data() + begin, end - begin,
            classes, 10.0f, 0.1f, loss.data() + begin, anchor.data() + begin,
            tuplet.data() + begin,
            state.data() + begin * cac_tf::kRowStateSize);
      });
    });
    const int64_t backward = Nanoseconds([&] {
      for_rows([&](int64_t begin, int64_t end) {
        cac_tf::AnchoredCacLossGrad(
            z.data() + begin * classes, labels.data() + begin,
            state.data() + begin * cac_tf::kRowStateSize, upstream.From(begin),
            end - begin, classes, 10.0f, 0.1f,
            gradient.data() + begin * classes);
      });
    });
    const int64_t copy = Nanoseconds([&] {
      std::memcpy(gradient.data(), z.data(), z.size() * sizeof(float));
    });
    std::printf("%ld %ld %ld\n", static_cast<long>(forward),
                static_cast<long>(backward), static_cast<long>(copy));
  }
  return EXIT_SUCCESS;
}
