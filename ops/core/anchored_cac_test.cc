// SPDX-License-Identifier: Apache-2.0
//
// The core against the paper's equations in double precision, at every level
// of instructions that this machine has. Exit status 0: all is right. Under
// AddressSanitizer and UndefinedBehaviorSanitizer it also shows that no
// input, however wrong, makes the core read or write out of bounds.
#include "ops/core/anchored_cac.cc"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace cac_tf {
namespace {

constexpr double kMagnitude = 10.0, kAnchorWeight = 0.1;
int failures = 0;

void Expect(bool is_right, const std::string& what) {
  if (is_right) return;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  ++failures;
}

// Of exactly the size that is used, so that a sanitizer sees a step beyond.
template <typename T>
std::unique_ptr<T[]> Exactly(const std::vector<T>& values) {
  std::unique_ptr<T[]> copy(new T[values.size()]);
  for (size_t i = 0; i < values.size(); ++i) copy[i] = values[i];
  return copy;
}

struct Expected {
  double loss, anchor, tuplet, gradient_scale = 0;
  std::vector<double> gradient;
};

std::vector<std::vector<double>> Anchors(int64_t classes) {
  std::vector<std::vector<double>> anchors(classes,
                                           std::vector<double>(classes, 0.0));
  for (int64_t j = 0; j < classes; ++j) anchors[j][j] = kMagnitude;
  return anchors;
}

double Distance(const float* z, const std::vector<double>& anchor) {
  double sum = 0;
  for (size_t k = 0; k < anchor.size(); ++k) {
    sum += (z[k] - anchor[k]) * (z[k] - anchor[k]);
  }
  return std::sqrt(sum);
}

// One row, from the equations; O(classes^2).
Expected Oracle(const float* z, int64_t classes, int64_t own) {
  const std::vector<std::vector<double>> anchors = Anchors(classes);
  std::vector<double> d, softmin;
  for (const auto& anchor : anchors) d.push_back(Distance(z, anchor));
  const double shortest = *std::min_element(d.begin(), d.end());
  double total = 0;
  for (int64_t j = 0; j < classes; ++j) total += std::exp(shortest - d[j]);
  for (int64_t j = 0; j < classes; ++j) {
    softmin.push_back(std::exp(shortest - d[j]) / total);
  }
  double others = 0;
  for (int64_t j = 0; j < classes; ++j) others += j == own ? 0 : softmin[j];
  double largest = 0, sum = 0;
  for (int64_t j = 0; j < classes; ++j) {
    if (j != own) largest = std::max(largest, d[own] - d[j]);
  }
  for (int64_t j = 0; j < classes; ++j) {
    if (j != own) sum += std::exp(d[own] - d[j] - largest);
  }
  Expected out;
  out.tuplet = largest == 0 ? std::log1p(sum)
                            : largest + std::log(sum + std::exp(-largest));
  out.anchor = d[own];
  out.loss = out.tuplet + kAnchorWeight * out.anchor;
  out.gradient.assign(classes, 0);
  for (int64_t j = 0; j < classes; ++j) {
    if (d[j] == 0) continue;
    const double weight =
        (j == own ? kAnchorWeight + others : -softmin[j]) / d[j];
    for (int64_t k = 0; k < classes; ++k) {
      out.gradient[k] += weight * (z[k] - anchors[j][k]);
    }
  }
  for (double g : out.gradient) {
    out.gradient_scale = std::max(out.gradient_scale, std::fabs(g));
  }
  return out;
}

// Equation 8, one minus a share as the sum of the others.
std::vector<double> Gamma(const std::vector<double>& d) {
  const double shortest = *std::min_element(d.begin(), d.end());
  std::vector<double> shares, gamma;
  double total = 0;
  for (double x : d) shares.push_back(std::exp(shortest - x));
  for (double share : shares) total += share;
  for (size_t j = 0; j < d.size(); ++j) {
    double others = 0;
    for (size_t k = 0; k < d.size(); ++k) others += k == j ? 0 : shares[k];
    gamma.push_back(d[j] * (others / total));
  }
  return gamma;
}

double RelativeError(double actual, double expected) {
  const double error = std::fabs(actual - expected);
  if (!(error >= 0)) return INFINITY;
  return expected == 0 ? error : error / std::fabs(expected);
}

struct Row {
  RowLoss loss;
  std::vector<float> gradient;
};

Row LossAndGradient(const RowFunctions& functions, const float* z,
                    int64_t classes, int64_t own) {
  const auto row = Exactly(std::vector<float>(z, z + classes));
  const auto state = Exactly(std::vector<float>(kRowStateSize));
  const auto gradient = Exactly(std::vector<float>(classes));
  Row result;
  result.loss =
      functions.loss(row.get(), classes, own, kMagnitude, state.get());
  functions.gradient(row.get(), classes, own, kMagnitude, state.get(), 1.0f,
                     kAnchorWeight, gradient.get());
  result.gradient.assign(gradient.get(), gradient.get() + classes);
  return result;
}

void CheckScores(const RowFunctions& functions, const std::string& name,
                 const std::vector<float>& z) {
  const int64_t classes = z.size();
  const auto row = Exactly(z);
  const auto d = Exactly(std::vector<float>(classes));
  const auto gamma = Exactly(std::vector<float>(classes));
  const RowScores scores =
      functions.scores(row.get(), classes, kMagnitude, d.get(), gamma.get());
  Expect(scores.nearest == std::max_element(z.begin(), z.end()) - z.begin(),
         name + ": the nearest class");
  Expect(
      scores.unknown_score == *std::min_element(&gamma[0], &gamma[0] + classes),
      name + ": the smallest gamma");
  std::vector<double> expected_d;
  for (const auto& anchor : Anchors(classes)) {
    expected_d.push_back(Distance(z.data(), anchor));
  }
  const std::vector<double> expected = Gamma(expected_d);
  for (int64_t j = 0; j < classes; ++j) {
    // e^-13 is as exact as its exponent, and in far places the distances that
    // this oracle subtracts are inexact.
    const double tolerance = 8e-6 + 4e-16 * expected_d[j];
    if (RelativeError(d[j], expected_d[j]) <= 1e-6 &&
        RelativeError(gamma[j], expected[j]) <= tolerance) {
      continue;
    }
    Expect(false, name + ": scores " + std::to_string(j));
    break;
  }
}

void CheckRow(const RowFunctions& functions, const std::string& name,
              const std::vector<float>& z, int64_t own,
              double gradient_tolerance) {
  CheckScores(functions, name, z);
  const int64_t classes = z.size();
  const Expected expected = Oracle(z.data(), classes, own);
  const Row row = LossAndGradient(functions, z.data(), classes, own);
  const double loss = row.loss.tuplet + kAnchorWeight * row.loss.anchor;
  // A tuplet loss that stands alone is as exact as a difference of distances.
  const double loss_tolerance = expected.anchor == 0 ? 4e-6 : 1e-6;
  Expect(RelativeError(loss, expected.loss) <= loss_tolerance, name + ": loss");
  Expect(RelativeError(row.loss.anchor, expected.anchor) <= 1e-6,
         name + ": anchor");
  Expect(std::fabs(row.loss.tuplet - expected.tuplet) <=
             std::max(4e-6 * expected.tuplet, 1e-7 * expected.anchor),
         name + ": tuplet");
  for (int64_t k = 0; k < classes; ++k) {
    const double error = std::fabs(row.gradient[k] - expected.gradient[k]);
    if (error <= gradient_tolerance * expected.gradient_scale) continue;
    Expect(false, name + ": gradient " + std::to_string(k));
    break;
  }
}

void CheckLevel(const std::string& level, const RowFunctions& functions) {
  std::mt19937 random(0);
  std::normal_distribution<double> normal;
  for (int64_t classes : {2, 3, 6, 15, 16, 17, 20, 31, 63, 64, 65, 127, 200}) {
    for (double noise : {1.0, 0.1, 0.01, 0.001, 0.0}) {
      for (int64_t repetition = 0; repetition < 6; ++repetition) {
        const int64_t near = random() % classes;
        std::vector<float> z(classes);
        for (float& value : z) value = noise * normal(random);
        z[near] += kMagnitude;
        const std::string name = level + ", " + std::to_string(classes) +
                                 " classes, noise " + std::to_string(noise);
        CheckRow(functions, name, z, near, noise > 0 ? 1e-6 : 4e-6);
        // Near a wrong anchor two opposite pulls may almost cancel.
        CheckRow(functions, name + ", wrong", z, (near + 1) % classes, 4e-6);
      }
    }
    // Ties, nothing at all, and the far ends of what can be squared.
    std::vector<float> z(classes, 0.0f);
    CheckRow(functions, level + ", zeros", z, classes - 1, 1e-6);
    std::fill(z.begin(), z.end(), -3.0f);
    CheckRow(functions, level + ", ties", z, 0, 1e-6);
    for (double scale : {1e4, 1e6, 1e8}) {
      for (float& value : z) value = scale * normal(random);
      CheckRow(functions, level + ", huge", z, classes / 2, 4e-6);
    }
    // Here doubles cannot tell the shares either, but all is finite.
    for (double scale : {1e12, 1e15, 1e17}) {
      for (float& value : z) value = scale * normal(random);
      const Row row = LossAndGradient(functions, z.data(), classes, 0);
      const Expected e = Oracle(z.data(), classes, 0);
      const double loss = row.loss.tuplet + kAnchorWeight * row.loss.anchor;
      Expect(RelativeError(loss, e.loss) <= 1e-6, level + ": enormous, loss");
      for (float g : row.gradient) {
        Expect(std::fabs(g) < 3, level + ": enormous, gradient");
      }
    }
    for (float& value : z) value = 1e-4 * normal(random);
    CheckRow(functions, level + ", 1e-4", z, classes / 2, 4e-6);
  }
  // Nothing of this is right, and nothing of it may do harm.
  for (int64_t classes : {2, 16, 37, 64, 130}) {
    for (float bad : {NAN, INFINITY, -INFINITY, 1e30f, -3e38f}) {
      for (int64_t where : {int64_t{0}, classes / 2, classes - 1}) {
        std::vector<float> z(classes, 0.5f);
        z[where] = bad;
        const Row row = LossAndGradient(functions, z.data(), classes, 0);
        Expect(std::isnan(row.loss.tuplet) && std::isnan(row.loss.anchor),
               level + ": an invalid logit");
        for (float g : row.gradient) {
          Expect(std::isnan(g), level + ": the gradient of an invalid logit");
        }
        std::vector<float> d(classes), gamma(classes);
        const RowScores scores = functions.scores(z.data(), classes, kMagnitude,
                                                  d.data(), gamma.data());
        Expect(scores.nearest == 0 && std::isnan(scores.unknown_score),
               level + ": the scores of an invalid logit");
        for (int64_t j = 0; j < classes; ++j) {
          Expect(std::isnan(d[j]) && std::isnan(gamma[j]),
                 level + ": the scores of an invalid logit");
        }
      }
    }
    for (int64_t own :
         {int64_t{-1}, classes, int64_t{1} << 62, -(int64_t{1} << 62)}) {
      const std::vector<float> z(classes, 0.5f);
      const Row row = LossAndGradient(functions, z.data(), classes, own);
      Expect(std::isnan(row.loss.tuplet) && std::isnan(row.gradient[0]),
             level + ": an invalid label");
    }
  }
}

// State and labels that do not belong to the logits, or to anything.
void CheckForeignState(const RowFunctions& functions) {
  for (float foreign : {NAN, -1.0f, 5.0f, 1e9f, -INFINITY, INFINITY}) {
    for (int64_t own : {int64_t{-3}, int64_t{5}, int64_t{1} << 40}) {
      std::vector<float> state(kRowStateSize, 1.0f);
      state[kNearest] = foreign;
      const auto z = Exactly(std::vector<float>(5, 1.0f));
      const auto gradient = Exactly(std::vector<float>(5, 0.0f));
      functions.gradient(z.get(), 5, own, kMagnitude, state.data(), 1.0f, 1.0f,
                         gradient.get());
      functions.gradient(z.get(), 5, 2, kMagnitude, state.data(), 1.0f, 1.0f,
                         gradient.get());
      for (int j = 0; j < 5; ++j) {
        Expect(std::isnan(gradient[j]), "a foreign state");
      }
    }
  }
}

// The functions that callers use: rows, labels of both types, empty batches.
template <typename Label>
void CheckBatches() {
  const int64_t rows = 5, classes = 7;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> z(rows * classes);
  for (float& value : z) value = normal(random);
  z[2 * classes] = NAN;
  const std::vector<Label> labels = {0, 6, 1, 9, -1};
  std::vector<float> loss(rows), anchor(rows), tuplet(rows);
  std::vector<float> state(rows * kRowStateSize), gradient(rows * classes);
  AnchoredCacLoss(z.data(), labels.data(), rows, classes, kMagnitude,
                  kAnchorWeight, loss.data(), anchor.data(), tuplet.data(),
                  state.data());
  const std::vector<float> ups[3] = {
      {1, 2, 3, 4, 5}, {0.5, 0, 1, 1, 1}, {-1, 0.25, 1, 1, 1}};
  AnchoredCacLossGrad(z.data(), labels.data(), state.data(),
                      {ups[0].data(), ups[1].data(), ups[2].data()}, rows,
                      classes, kMagnitude, kAnchorWeight, gradient.data());
  for (int64_t i = 0; i < rows; ++i) {
    const bool is_valid = i < 2;
    Expect(std::isnan(loss[i]) != is_valid, "a batch: which rows are NaN");
    Expect(std::isnan(gradient[i * classes]) != is_valid,
           "a batch: which gradients are NaN");
    if (!is_valid) continue;
    const Expected e = Oracle(z.data() + i * classes, classes, labels[i]);
    Expect(RelativeError(loss[i], e.loss) <= 1e-6, "a batch: loss");
    // upstream.loss * (tuplet + weight * anchor) + ... by differences.
    for (int64_t k = 0; k < classes; ++k) {
      double values[2];
      for (int side = 0; side < 2; ++side) {
        std::vector<float> moved(z.begin() + i * classes,
                                 z.begin() + (i + 1) * classes);
        moved[k] += side ? 1e-2f : -1e-2f;
        const Expected m = Oracle(moved.data(), classes, labels[i]);
        values[side] =
            ups[0][i] * m.loss + ups[1][i] * m.anchor + ups[2][i] * m.tuplet;
      }
      Expect(std::fabs((values[1] - values[0]) / 2e-2 -
                       gradient[i * classes + k]) <= 2e-4,
             "a batch: gradient by finite differences");
    }
  }
  AnchoredCacLoss<float, Label>(nullptr, nullptr, 0, classes, 10, 0, nullptr,
                                nullptr, nullptr, nullptr);
  AnchoredCacLossGrad<float, Label>(nullptr, nullptr, nullptr, {}, 0, classes,
                                    10, 0, nullptr);
}

// A number of half precision by its definition: bits of fraction, then those of
// the exponent, then the sign.
double ByDefinition(int bits, int fraction_bits, int exponent_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction ? NAN : sign * INFINITY;
  }
  const int leading = exponent ? 1 << fraction_bits : 0;
  return std::ldexp(sign * (leading + fraction),
                    std::max(exponent, 1) - bias - fraction_bits);
}

template <typename Element>
void CheckHalfPrecision(const std::string& name, int fraction_bits) {
  const int infinity = 0x7fff >> fraction_bits << fraction_bits;
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const Element x{static_cast<uint16_t>(bits)};
    const double expected =
        ByDefinition(bits, fraction_bits, 15 - fraction_bits);
    const float wide = Widen(x);
    if (std::isnan(expected)) {
      Expect(std::isnan(wide) && std::isnan(Widen(Round<Element>(wide))),
             name + ": NaN");
      continue;
    }
    Expect(wide == expected && std::signbit(wide) == (bits >> 15),
           name + ": widened");
    Expect(Round<Element>(wide).bits == bits, name + ": there and back");
    const int size = bits & 0x7fff;
    if (size == infinity) continue;
    // Halfway to the next larger one, and the float32 beside it; infinity
    // stands where the next number would be.
    const double next =
        size + 1 < infinity
            ? ByDefinition(bits + 1, fraction_bits, 15 - fraction_bits)
            : 2 * expected -
                  ByDefinition(bits - 1, fraction_bits, 15 - fraction_bits);
    const float middle = 0.5 * (expected + next);
    Expect(Round<Element>(middle).bits == bits + bits % 2, name + ": a tie");
    Expect(
        Round<Element>(std::nextafter(middle, 0.0f)).bits == bits &&
            Round<Element>(std::nextafter(middle, 2 * middle)).bits == bits + 1,
        name + ": beside a tie");
  }
  // Rows of them: as of the same numbers in float32.
  const int64_t rows = 9, classes = 37;
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<Element> narrow;
  std::vector<float> wide;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < rows * classes; ++i) {
    narrow.push_back(Round<Element>((i % 5 ? 1.0f : 10.0f) * normal(random)));
    wide.push_back(Widen(narrow.back()));
  }
  for (int64_t i = 0; i < rows; ++i) labels.push_back(random() % classes);
  std::vector<float> terms[2][3], state(rows * kRowStateSize);
  std::vector<float> wide_gradient(wide.size());
  std::vector<Element> gradient(wide.size());
  const auto run = [&](const auto& z, auto& by_z, std::vector<float>* to) {
    for (int i = 0; i < 3; ++i) to[i].resize(rows);
    AnchoredCacLoss(z.data(), labels.data(), rows, classes, kMagnitude,
                    kAnchorWeight, to[0].data(), to[1].data(), to[2].data(),
                    state.data());
    AnchoredCacLossGrad(z.data(), labels.data(), state.data(),
                        {to[0].data(), to[1].data(), to[2].data()}, rows,
                        classes, kMagnitude, kAnchorWeight, by_z.data());
  };
  run(narrow, gradient, terms[0]);
  run(wide, wide_gradient, terms[1]);
  for (int i = 0; i < 3; ++i) {
    Expect(terms[0][i] == terms[1][i], name + ": the same losses");
  }
  for (size_t i = 0; i < wide.size(); ++i) {
    Expect(gradient[i].bits == Round<Element>(wide_gradient[i]).bits,
           name + ": the same gradient, rounded");
  }
}

int Main() {
  CheckLevel("baseline", CAC_TF_ROW_FUNCTIONS(baseline));
#ifdef CAC_TF_HAS_LEVELS
  if (__builtin_cpu_supports("x86-64-v3")) {
    CheckLevel("x86-64-v3", CAC_TF_ROW_FUNCTIONS(x86_64_v3));
  }
  if (__builtin_cpu_supports("x86-64-v4")) {
    CheckLevel("x86-64-v4", CAC_TF_ROW_FUNCTIONS(x86_64_v4));
  }
#endif
  CheckForeignState(ForThisMachine());
  CheckForeignState(CAC_TF_ROW_FUNCTIONS(baseline));
  CheckBatches<int32_t>();
  CheckBatches<int64_t>();
  CheckHalfPrecision<BFloat16>("bfloat16", 7);
  CheckHalfPrecision<Float16>("float16", 10);
  std::printf("%d failures\n", failures);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace cac_tf

int main() { return cac_tf::Main(); }
