# `make demo` and `make test` are all a newcomer needs; both work on a fresh
# clone. Python 3.11 or newer: `make PYTHON=python3.12 demo` to choose one.
PYTHON ?= python3
# Optional extras that tests use: `make EXTRAS=dev,torch test` has PyTorch too.
EXTRAS ?= dev
# Test files go to two processes: many tests use one core. In their order:
# by itself xdist leaves the longest, which are files of one test, to the end.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
BIN := .venv/bin
CPP := $(wildcard benchmarks/*.cc tests/serving/*.cc ops/*/*.cc ops/*/*.h ops/*/*.inc ops/*/*.cu \
    tests/ops/*/*.cc tests/ops/*/*.h)
OPS := $(filter ops/%,$(CPP)) ops/build.py ops/loader.py cac_tf/version.py
RUN := env -u PYTHONPATH TF_CPP_MIN_LOG_LEVEL=3

.PHONY: demo test ops lint format clean

demo: .venv/ops
	$(RUN) $(BIN)/cac-train --dataset=digits --output_dir=runs/digits

test: lint .venv/ops-dev
	$(RUN) $(BIN)/python -m pytest $(PARALLEL) tests \
	    --doctest-modules cac_tf ops/loader.py train
	$(RUN) KERAS_BACKEND=jax $(BIN)/python -m pytest $(PARALLEL) \
	    --doctest-modules \
	    cac_tf/layers cac_tf/losses cac_tf/metrics cac_tf/models \
	    cac_tf/scores tests/layers tests/losses tests/metrics \
	    tests/models tests/ops tests/scores

# The fused operations, which everything works without. By itself this target
# says what is missing; demo and test go on without them.
ops: .venv/installed
	$(RUN) $(BIN)/python -m cac_tf.ops.build

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

# The stamps carry the time of the last install: a second call does nothing.
.venv/installed: constraints.txt pyproject.toml setup.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@

.venv/ops: .venv/installed $(OPS)
	$(RUN) $(BIN)/python -m cac_tf.ops.build --if_possible
	test ! -e ops/anchored_cac_tensorflow.so || touch $@

# With the backends that tests use.
.venv/ops-dev: .venv/installed-dev $(OPS)
	$(RUN) $(BIN)/python -m cac_tf.ops.build --if_possible
	test ! -e ops/anchored_cac_tensorflow.so || touch $@ .venv/ops

clean:
	rm -rf .venv runs build *.egg-info ops/*.so
