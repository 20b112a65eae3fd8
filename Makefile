# `make demo` and `make test` are all a newcomer needs; both work on a fresh
# clone. Python 3.11 or newer: `make PYTHON=python3.12 demo` to choose one.
PYTHON ?= python3
# Optional extras that tests use: `make EXTRAS=dev,torch test` has PyTorch too.
EXTRAS ?= dev
INSTALLED_DEV := .venv/installed-$(EXTRAS)
BIN := .venv/bin
CPP := $(wildcard benchmarks/*.cc tests/serving/*.cc ops/*/*.cc ops/*/*.h ops/*/*.inc ops/*/*.cu ops/*/*.cuh \
    tests/ops/*/*.cc tests/ops/*/*.h tests/ops/*/ops/core/*.cuh)
OPS := $(filter ops/%,$(CPP)) ops/build.py ops/loader.py cac_tf/version.py
RUN := env -u PYTHONPATH TF_CPP_MIN_LOG_LEVEL=3

# The oldest Keras that is allowed; constraints.txt has the newest one.
KERAS_LOWEST := $(shell sed -n 's/^ *"keras>=\([0-9.]*\).*/\1/p' pyproject.toml)

# Tests go to two processes: many use one core. Each takes half of them, in
# their order, and the one that is ready first takes over from the other.
TEST := $(BIN)/python -m pytest -n 2 --dist worksteal
TESTED := tests --doctest-modules --doctest-ignore-import-errors cac_tf
# Of whole programs: runs of the command line, trained methods and estimators,
# interrupted and served models, pages in a browser, packages, what a compiler
# builds.
PROGRAMS := tests/batch tests/conformance/methods_test.py \
    tests/conformance/plugin_test.py tests/demo tests/docs_test.py \
    tests/examples tests/experiments tests/export tests/methods \
    tests/ops/cpp_test.py tests/ops/loader_test.py tests/packaging \
    tests/reporting tests/results_test.py tests/robustness tests/serving \
    tests/sklearn tests/train tests/training/callbacks_test.py \
    tests/training/runtime_test.py

.PHONY: demo docs test test-programs test-slow test-jax test-all test-keras-lowest ops wheels lint format clean

demo: .venv/ops
	env -u PYTHONPATH -u TF_CPP_MIN_LOG_LEVEL $(BIN)/cac-train --dataset=digits \
	    --output_dir=runs/digits

# The mathematics, layers, losses, scores, models and data, on TensorFlow, and
# one whole program: what a change needs first.
test: lint .venv/ops-dev
	$(RUN) $(TEST) -m "not slow" $(TESTED) $(PROGRAMS:%=--ignore=%)

test-programs: .venv/ops-dev
	$(RUN) $(TEST) -m "not slow" $(PROGRAMS)

# What both leave out.
test-slow: .venv/ops-dev
	$(RUN) $(TEST) -m slow $(TESTED)

# On the JAX backend. The long tests come first.
test-jax: .venv/ops-dev
	$(RUN) KERAS_BACKEND=jax $(TEST) --doctest-modules \
	    --ignore=tests/training/loop_test.py \
	    --ignore=cac_tf/models/text_vectors.py tests/training \
	    cac_tf/decision cac_tf/layers cac_tf/losses cac_tf/metrics \
	    cac_tf/models cac_tf/open_world cac_tf/scores cac_tf/training \
	    tests/decision tests/layers tests/losses tests/metrics \
	    tests/models tests/open_world tests/ops \
	    tests/scores tests/conformance/losses_test.py \
	    tests/conformance/methods_test.py \
	    tests/conformance/networks_test.py \
	    tests/conformance/scores_test.py

test-all: test test-programs test-slow test-jax

# What depends on how Keras works inside: models, scores, layers of its own.
# The older Keras is found before the one in .venv, which stays as it is.
test-keras-lowest: $(INSTALLED_DEV) build/keras-$(KERAS_LOWEST)
	$(RUN) PYTHONPATH=$(CURDIR)/build/keras-$(KERAS_LOWEST) \
	    $(BIN)/python -c \
	    'import keras; print("Keras", keras.__version__); \
	    assert f"{keras.__version__}.".startswith("$(KERAS_LOWEST).")'
	$(RUN) PYTHONPATH=$(CURDIR)/build/keras-$(KERAS_LOWEST) \
	    $(TEST) \
	    -k "not xla and not export and not two_replicas" \
	    tests/models/from_classifier_test.py \
	    tests/models/keeping_test.py \
	    tests/models/open_set_classifier_test.py \
	    tests/scores/scores_test.py \
	    tests/layers/batch_normalization_test.py \
	    tests/decision/open_set_decision_test.py tests/keras_private_test.py \
	    tests/layers/rejection_score_test.py \
	    tests/training/callbacks_test.py tests/training/checkpoint_test.py \
	    tests/training/classifier_training_test.py

# The documentation site, into build/docs. Its tutorials are executed.
docs: .venv/installed-docs
	$(RUN) $(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet \
	    --jobs=auto docs build/docs

build/keras-$(KERAS_LOWEST): $(INSTALLED_DEV)
	rm -rf $@ $@.new
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --no-deps --target $@.new keras==$(KERAS_LOWEST)
	mv $@.new $@
	touch $@

# The fused operations, which everything works without. By itself this target
# says what is missing; demo and test go on without them.
ops: .venv/installed
	$(RUN) $(BIN)/python -m cac_tf.ops.build

# Into dist/: a wheel with the fused operations, for the TensorFlow in .venv. Its
# name says which, and the oldest Linux that the libraries run on. TensorFlow
# brings the libraries that are excluded.
wheels: .venv/ops-dev
	rm -rf build/lib build/lib.* build/bdist.* build/wheels
	$(RUN) CAC_TF_WHEEL_WITH_OPS=1 $(BIN)/python -m build --wheel \
	    --no-isolation --outdir build/wheels
	$(RUN) PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m auditwheel repair \
	    --exclude 'libtensorflow_*.so.2' --wheel-dir dist \
	    build/wheels/*.whl

lint: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(INSTALLED_DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

# The stamps carry the time of the last install: a second call does nothing.
.venv/installed: constraints.txt pyproject.toml setup.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[full]'
	touch $@

$(INSTALLED_DEV): .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[docs]'
	touch $@

.venv/ops: .venv/installed $(OPS)
	$(RUN) $(BIN)/python -m cac_tf.ops.build --if_possible
	test ! -e ops/anchored_cac_tensorflow.so || touch $@

# With the backends that tests use.
.venv/ops-dev: .venv/installed $(OPS) | $(INSTALLED_DEV)
	$(RUN) $(BIN)/python -m cac_tf.ops.build --if_possible
	test ! -e ops/anchored_cac_tensorflow.so || touch $@ .venv/ops

clean:
	rm -rf .venv runs build dist *.egg-info ops/*.so
