# SPDX-License-Identifier: Apache-2.0
"""Builds the libraries of the fused operations, next to this file.

python -m cac_tf.ops.build

One for every backend that is installed (TensorFlow, JAX), with kernels for
CUDA devices where `nvcc` is found. Settings come from the environment:

* `CXX`: the C++ compiler, `g++` by default; GCC 12 or newer.
* `NVCC`: the CUDA compiler; by default the one on the PATH. Empty: none.
* `CAC_TF_CUDA_ARCHS`: architectures to compile for, "75 80 90" by default; the
  last one also as PTX, for later devices.

If a part cannot be built, only this part is left out, and a message says so.
The exit status is then 1, or 0 with `--if_possible`.
"""

import concurrent.futures
import importlib.util
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

from absl import app
from absl import flags

from cac_tf import quiet_import
from cac_tf.ops import loader

_FLAGS = flags.FLAGS
flags.DEFINE_bool(
    "if_possible", False, "Exit with status 0 even if nothing could be built."
)

_SOURCES = loader.FOLDER
# Sources say `#include "ops/core/..."`.
_INCLUDES = [f"-I{_SOURCES.parent}"]
_CORE_FLAGS = [
    *("-O3", "-std=c++17", "-fPIC"),
    # Without these, no square root and no comparison is vectorized.
    *("-fno-math-errno", "-fno-trapping-math"),
    "-Wno-psabi",
]
_CUDA_LIBRARIES = ["-lcudart_static", "-lpthread", "-ldl", "-lrt"]


class BuildError(Exception):
    """A tool is missing or failed."""


def find_nvcc():
    """Path of the CUDA compiler, or None."""
    wanted = os.environ.get("NVCC", "nvcc")
    return shutil.which(wanted) if wanted else None


def nvcc_release(nvcc):
    """The release of a CUDA compiler, as it reports it."""
    return _run([nvcc, "--version"]).stdout.strip().splitlines()[-1]


def _run(command):
    result = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise BuildError(
            f"{shlex.join(map(str, command))}\n{result.stderr.strip()}"
        )
    return result


def cuda_architectures():
    """Options of nvcc for the architectures in CAC_TF_CUDA_ARCHS."""
    text = os.environ.get("CAC_TF_CUDA_ARCHS", "75 80 90")
    names = text.replace(",", " ").split()
    numbers = [name.rstrip("af") for name in names]
    # Before 70 the threads of a warp could not part and meet again.
    if not names or not all(n.isdigit() and int(n) >= 70 for n in numbers):
        raise BuildError(
            "CAC_TF_CUDA_ARCHS must contain architectures as numbers from "
            f'70, such as "80 90"; got {text!r}.'
        )
    flags_ = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in names]
    last = names[-1]
    return [*flags_, f"-gencode=arch=compute_{last},code=compute_{last}"]


def _cuda_library_options(nvcc):
    """Where the linker finds the CUDA runtime, as the compiler would tell it.

    Where a Linux distribution packages CUDA, it is among the linker's own
    folders, and there is nothing to tell.
    """
    result = _run([nvcc, "-dryrun", "any.o", "-o", "any"])
    _, _, linking = result.stderr.rstrip().rpartition("\n")
    return [part for part in shlex.split(linking) if part.startswith("-L")]


def _tensorflow_steps(cxx, objects, defines):
    """Compilations and link options of the library for TensorFlow."""
    import tensorflow as tf

    compile_flags = [
        *("-O2", "-fPIC", "-w", "-DCAC_TF_IN_TENSORFLOW"),
        *(*defines, *_INCLUDES),
        *tf.sysconfig.get_compile_flags(),
    ]
    external = pathlib.Path(tf.sysconfig.get_include()) / "external"
    # XLA's headers include these by the paths of their own build.
    xla_flags = [
        f"-I{external / folder}"
        for folder in (
            "highwayhash",
            "farmhash_archive/src",
            "llvm-project/mlir/include",
            "llvm-project/llvm/include",
        )
    ]
    steps = {
        objects / f"tensorflow_{source.stem}.o": [
            *(*cxx, "-c", source, *compile_flags),
            *(xla_flags if "xla" in source.stem else []),
        ]
        for source in (
            _SOURCES / "tensorflow" / "anchored_cac_xla.cc",
            _SOURCES / "tensorflow" / "anchored_cac_ops.cc",
            _SOURCES / "xla" / "ffi_handlers.cc",
        )
    }
    link_flags = [
        *tf.sysconfig.get_link_flags(),
        "-l:libtensorflow_cc.so.2",
    ]
    return steps, link_flags


def _jax_steps(cxx, objects, defines):
    """Compilations and link options of the library for JAX."""
    import jax

    source = _SOURCES / "xla" / "ffi_handlers.cc"
    step = [
        *(*cxx, "-c", source, "-O2", "-std=c++17", "-fPIC"),
        *(*defines, *_INCLUDES, f"-I{jax.ffi.include_dir()}"),
    ]
    return {objects / "jax_ffi_handlers.o": step}, []


_STEPS = {"tensorflow": _tensorflow_steps, "jax": _jax_steps}


def installed_backends():
    """Names of the backends here that have a binding."""
    return [
        name
        for name in loader.BINDINGS
        if importlib.util.find_spec(name) is not None
    ]


def _compiler():
    """The command of the C++ compiler, in parts."""
    command = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(command[0]) is None:
        raise BuildError(f"C++ compiler not found: {command[0]!r} (CXX).")
    if not os.access(loader.FOLDER, os.W_OK):
        raise BuildError(f"Cannot write to {loader.FOLDER}.")
    return command


def _run_all(steps):
    """Runs compilations in parallel; each makes its own file."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(
            pool.map(
                lambda item: _run([*item[1], "-o", item[0]]), steps.items()
            )
        )


def _compile_core(cxx, objects):
    core = _SOURCES / "core" / "anchored_cac.cc"
    target = objects / "core.o"
    _run_all({target: [*cxx, "-c", core, *_CORE_FLAGS, *_INCLUDES]})
    return [target]


def _compile_kernels(cxx, nvcc, objects):
    """The CUDA kernels, and the libraries that they are linked with."""
    kernels = _SOURCES / "core" / "anchored_cac_gpu.cu"
    target = objects / "gpu.o"
    # Perhaps after a wrapper such as ccache, perhaps before options.
    compiler = [part for part in cxx if not part.startswith("-")][-1]
    step = [
        *(nvcc, "-ccbin", compiler, "-c", kernels, "-O3", "-std=c++17"),
        # All architectures at once.
        *("--threads=0", "-Xcompiler", "-fPIC"),
        *(*_INCLUDES, *cuda_architectures()),
    ]
    _run_all({target: step})
    linked = [target, *_cuda_library_options(nvcc), *_CUDA_LIBRARIES]
    # Without the runtime, there are still the kernels for CPUs.
    _run([*cxx, "-shared", "-o", objects / "gpu.so", *linked])
    return linked


def _build_library(name, cxx, shared, with_cuda, objects):
    """Builds one backend's library, which is moved into place when complete."""
    try:
        quiet_import.load(name)
        module = importlib.import_module(f"cac_tf.ops.{name}_binding")
        text = loader.built_for(module.framework(), with_cuda)
        defines = [f'-DCAC_TF_BUILT_FOR="{text}"']
        if with_cuda:
            defines.append("-DCAC_TF_CUDA")
        steps, link_flags = _STEPS[name](cxx, objects, defines)
    except (ImportError, AttributeError) as error:
        raise BuildError(f"{name} cannot be built for: {error}") from error
    _run_all(steps)
    path = loader.library_path(name)
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        # The CUDA runtime first: TensorFlow exports stubs of the same names.
        parts = [*steps, *shared, *link_flags]
        _run([*cxx, "-shared", "-o", temporary, *parts])
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def build(names, nvcc=None, report=print):
    """Builds the libraries of the given backends.

    Args:
        names: of `loader.BINDINGS`.
        nvcc: the CUDA compiler; without one, or where it fails, there are
            kernels for CPUs only.
        report: takes a text for each part that could not be built.

    Returns:
        Paths of the libraries that were built, and whether with CUDA.

    Raises:
        BuildError: there is no compiler, or it fails on the core.
    """
    cxx = _compiler()
    with tempfile.TemporaryDirectory() as folder:
        objects = pathlib.Path(folder)
        shared = _compile_core(cxx, objects)
        with_cuda = False
        if nvcc:
            try:
                shared += _compile_kernels(cxx, nvcc, objects)
                with_cuda = True
            except BuildError as error:
                report(f"No kernels for CUDA devices.\n{error}")
        paths = []
        for name in names:
            try:
                paths.append(
                    _build_library(name, cxx, shared, with_cuda, objects)
                )
            except BuildError as error:
                report(f"No library for {name}.\n{error}")
    return paths, with_cuda


def main(argv):
    """Builds, and reports what was built, or why not."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")

    def report(text):
        print(text, file=sys.stderr)

    names, paths, with_cuda = installed_backends(), [], False
    try:
        paths, with_cuda = build(names, find_nvcc(), report)
    except (BuildError, OSError) as error:
        report(f"The fused operations were not built.\n{error}")
    if paths:
        kernels = "CPU and CUDA" if with_cuda else "CPU"
        built = ", ".join(path.name for path in paths)
        print(f"Built {built} ({kernels}).")
    if len(paths) < len(names):
        report("Stock operations are used in place of what was not built.")
        if not _FLAGS.if_possible:
            sys.exit(1)


if __name__ == "__main__":
    app.run(main)
