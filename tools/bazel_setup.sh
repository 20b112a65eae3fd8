#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/bazel_setup.sh [PYTHON]
#
# Prepares, below build/bazel/, what Bazel needs beside this repository, so
# that it downloads nothing. PYTHON is the one whose TensorFlow the library is
# for and that runs the tests, by default that of `make`. To be run again when
# either changes.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"

if ! python="$(command -v "${1:-$root/.venv/bin/python}")"; then
    echo "There is no Python ${1:-$root/.venv/bin/python}. Either run \`make" \
        ".venv/installed-dev\` or name another one: $0 PYTHON" >&2
    exit 1
fi
# Not the place that this Python is a link to: a virtual environment is known
# by the place of the link.
bin="$(cd "$(dirname "$python")" && pwd)"
python="$bin/$(basename "$python")"
cd "$root"

folder=build/bazel
rm -rf "$folder"
mkdir -p "$folder"

# What Bazel's own rules load from the network. The rules in them are built
# into this Bazel, and coverage is not measured.
mkdir -p "$folder"/rules_cc/cc "$folder"/rules_java/java \
    "$folder"/remote_coverage_tools
touch "$folder"/rules_cc/{WORKSPACE,BUILD,cc/BUILD} \
    "$folder"/rules_java/{WORKSPACE,BUILD,java/BUILD} \
    "$folder"/remote_coverage_tools/WORKSPACE
for rule in cc_binary cc_import cc_library cc_proto_library cc_test \
    cc_toolchain cc_toolchain_suite; do
    echo "$rule = native.$rule"
done >"$folder"/rules_cc/cc/defs.bzl
for rule in java_binary java_import java_library java_package_configuration \
    java_plugin java_runtime java_test java_toolchain; do
    echo "$rule = native.$rule"
done >"$folder"/rules_java/java/defs.bzl
for name in coverage_report_generator lcov_merger; do
    echo "filegroup(name = \"$name\", visibility = [\"//visibility:public\"])"
done >"$folder"/remote_coverage_tools/BUILD

# TensorFlow as a repository. Headers and libraries are links in it, because
# Bazel takes files from repositories only.
env -u PYTHONPATH TF_CPP_MIN_LOG_LEVEL=3 "$python" - \
    "$folder/tensorflow" <<'PYTHON'
import json
import pathlib
import sys

import tensorflow as tf

folder = pathlib.Path(sys.argv[1])
folder.mkdir()
(folder / "WORKSPACE").write_text('workspace(name = "tensorflow")\n')
(folder / "include").symlink_to(tf.sysconfig.get_include())
for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
    (folder / name).symlink_to(pathlib.Path(tf.sysconfig.get_lib()) / name)
copts = [
    option
    for option in tf.sysconfig.get_compile_flags()
    if not option.startswith("-I")
]
(folder / "tensorflow.bzl").write_text(f"""\
TENSORFLOW_VERSION = {json.dumps(tf.__version__)}

TENSORFLOW_COPTS = {json.dumps(copts)}
""")
(folder / "BUILD").write_text("""\
package(default_visibility = ["//visibility:public"])

licenses(["notice"])

# With what headers of the compiler include by names of its own build.
cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = [
        "include",
        "include/external/farmhash_archive/src",
        "include/external/highwayhash",
        "include/external/llvm-project/llvm/include",
        "include/external/llvm-project/mlir/include",
    ],
)

cc_import(
    name = "framework",
    shared_library = "libtensorflow_framework.so.2",
)

cc_import(
    name = "cc",
    shared_library = "libtensorflow_cc.so.2",
)

cc_library(
    name = "libraries",
    deps = [
        ":framework",
        ":cc",
    ],
)
""")
PYTHON

{
    for name in tensorflow rules_cc rules_java remote_coverage_tools; do
        echo "common --override_repository=$name=$root/$folder/$name"
    done
    # Part of Bazel itself, in Debian not always where it looks.
    for place in /usr/share/bazel{,/tools}/platforms; do
        if [ -d "$place" ]; then
            echo "common --override_repository=platforms=$place"
            break
        fi
    done
    # Otherwise an activated environment has everything built anew.
    echo "build --incompatible_strict_action_env"
    # Debian's own bazelrc asks for a page of it with every action.
    echo "build --nosandbox_debug"
    echo "test --test_env=PATH=$bin:/usr/bin:/bin"
    echo "test --test_env=TF_CPP_MIN_LOG_LEVEL=3"
    for name in TFDS_DATA_DIR CAC_TF_IMAGES_DIR CAC_TF_OFFICIAL_DIR; do
        echo "test --test_env=$name"
    done
} >"$folder/bazelrc"
