// SPDX-License-Identifier: Apache-2.0
//
// Times the bare core, loss, gradient and scores, beside a memcpy of the logits
// to the gradient, in turns: benchmarks/fused_op.py builds and runs it.
//
// Arguments: rows, classes, threads, repetitions. Prints one line for every
// repetition: nanoseconds of the loss, of the gradient, of the scores, of the
// memcpy.
#include <atomic>
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

// Threads that stand ready, as those of a framework do.
class Workers {
 public:
  using Work = std::function<void(int64_t worker)>;

  explicit Workers(int64_t count) : count_(count) {
    for (int64_t i = 1; i < count; ++i) {
      threads_.emplace_back([this, i] {
        for (int64_t round = 1;; ++round) {
          while (round_.load() < round) {
          }
          if (is_over_) return;
          (*work_)(i);
          ++finished_;
        }
      });
    }
  }
  ~Workers() {
    is_over_ = true;
    ++round_;
    for (std::thread& thread : threads_) thread.join();
  }
  void Run(const Work& work) {
    work_ = &work;
    finished_ = 0;
    ++round_;
    work(0);
    while (finished_.load() < count_ - 1) {
    }
  }

 private:
  int64_t count_;
  const Work* work_ = nullptr;
  bool is_over_ = false;
  std::atomic<int64_t> round_{0}, finished_{0};
  std::vector<std::thread> threads_;
};

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
      zero(rows, 0.0f), state(rows * cac_tf::kRowStateSize),
      distances(z.size()), gamma(z.size());
  std::vector<int32_t> nearest(rows);
  const cac_tf::ScoreOutputs scores{distances.data(), gamma.data(), loss.data(),
                                    nearest.data()};
  const cac_tf::LossUpstream upstream{one.data(), zero.data(), zero.data()};
  Workers workers(num_threads);
  // work(begin, end) for an equal share of the rows in every thread.
  const auto for_rows = [&](const auto& work) {
    workers.Run([&](int64_t worker) {
      work(rows * worker / num_threads, rows * (worker + 1) / num_threads);
    });
  };
  for (int i = 0; i < repetitions; ++i) {
    const int64_t forward = Nanoseconds([&] {
      for_rows([&](int64_t begin, int64_t end) {
        cac_tf::AnchoredCacLoss(z.data() + begin * classes,
                                labels.data() + begin, end - begin, classes,
                                10.0f, 0.1f, loss.data() + begin,
                                anchor.data() + begin, tuplet.data() + begin,
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
    const int64_t inference = Nanoseconds([&] {
      for_rows([&](int64_t begin, int64_t end) {
        cac_tf::AnchoredCacScores(z.data() + begin * classes, end - begin,
                                  classes, 10.0f, scores.From(begin, classes));
      });
    });
    const int64_t copy = Nanoseconds([&] {
      std::memcpy(gradient.data(), z.data(), z.size() * sizeof(float));
    });
    std::printf("%ld %ld %ld %ld\n", static_cast<long>(forward),
                static_cast<long>(backward), static_cast<long>(inference),
                static_cast<long>(copy));
  }
  return EXIT_SUCCESS;
}
