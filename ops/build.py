# SPDX-License-Identifier: Apache-2.0
"""Builds the libraries of the fused operations, next to this file.

python -m cac_tf.ops.build

One for every backend that is installed (TensorFlow, JAX), with kernels for
CUDA devices where `nvcc` is found. Settings come from the environment:

* `CXX`: the C++ compiler, g++ by default.
* `NVCC`: the CUDA compiler; by default the one on the PATH. Empty: none.
* `CAC_TF_CUDA_ARCHS`: architectures to compile for, "80 90" by default; the
  last one also as PTX, for later devices.

Where the part for CUDA devices cannot be built, the rest is. With
`--if_possible` a build that fails says why and still exits with 0.
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

from cac_tf.ops import loader

_FLAGS = flags.FLAGS
flags.DEFINE_bool(
    "if_possible", False, "Exit with 0 even if nothing could be built."
)

_SOURCES = loader.FOLDER
# Sources say `#include "ops/core/..."`.
_INCLUDES = [f"-I{_SOURCES.parent}"]
_CORE_FLAGS = [
    *("-O3", "-std=c++17", "-fPIC"),
    # Without these, no square root and no comparison is vectorised.
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
    """The release of a CUDA compiler, as it tells itself."""
    return _run([nvcc, "--version"]).strip().splitlines()[-1]


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
    return result.stdout


def cuda_architectures():
    """Options of nvcc for the architectures in CAC_TF_CUDA_ARCHS."""
    text = os.environ.get("CAC_TF_CUDA_ARCHS", "80 90")
    names = text.replace(",", " ").split()
    if not names or not all(name.rstrip("af").isdigit() for name in names):
        raise BuildError(
            "CAC_TF_CUDA_ARCHS must hold architectures as numbers, such as "
            f'"80 90"; got {text!r}.'
        )
    flags_ = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in names]
    last = names[-1]
    return [*flags_, f"-gencode=arch=compute_{last},code=compute_{last}"]


def _cuda_library_folder(nvcc):
    """Where the CUDA runtime lies, as the compiler itself tells."""
    result = subprocess.run(
        [nvcc, "-dryrun", "-c", "-x", "cu", os.devnull],
        capture_output=True,
        text=True,
        check=False,
    )
    for line in result.stderr.splitlines():
        name, _, value = line.removeprefix("#$ ").partition("=")
        if name == "TOP":
            top = pathlib.Path(value)
            for folder in ("targets/x86_64-linux/lib", "lib64", "lib"):
                if (top / folder / "libcudart_static.a").exists():
                    return top / folder
    raise BuildError(f"{nvcc} does not tell where its runtime library is.")


def _tensorflow_steps(cxx, objects, text):
    """Compilations and link options of the library for TensorFlow."""
    import tensorflow as tf

    compile_flags = [
        *("-O2", "-fPIC", "-w", f'-DCAC_TF_BUILT_FOR="{text}"'),
        "-DCAC_TF_IN_TENSORFLOW",
        *(["-DCAC_TF_CUDA"] if "and CUDA" in text else []),
        *_INCLUDES,
        *tf.sysconfig.get_compile_flags(),
    ]
    external = pathlib.Path(tf.sysconfig.get_include()) / "external"
    # What headers of the compiler include by names of its own build.
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
            *(cxx, "-c", source, *compile_flags),
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


def _jax_steps(cxx, objects, text):
    """Compilations and link options of the library for JAX."""
    import jax

    source = _SOURCES / "xla" / "ffi_handlers.cc"
    step = [
        *(cxx, "-c", source, "-O2", "-std=c++17", "-fPIC"),
        f'-DCAC_TF_BUILT_FOR="{text}"',
        *(["-DCAC_TF_CUDA"] if "and CUDA" in text else []),
        *(*_INCLUDES, f"-I{jax.ffi.include_dir()}"),
    ]
    return {objects / "jax_ffi_handlers.o": step}, []


_STEPS = {"tensorflow": _tensorflow_steps, "jax": _jax_steps}


def _framework(name):
    module = importlib.import_module(f"cac_tf.ops.{name}_binding")
    return module.framework()


def build(nvcc=None, names=None):
    """Builds the libraries of the given backends.

    Args:
        nvcc: the CUDA compiler; without one there are kernels for CPUs only.
        names: of `loader.BINDINGS`; by default those that are installed.

    Returns:
        Paths of the libraries. Each takes its place when it is complete.

    Raises:
        BuildError: a compiler is missing or fails.
    """
    if names is None:
        names = [
            name
            for name in loader.BINDINGS
            if importlib.util.find_spec(name) is not None
        ]
    cxx = os.environ.get("CXX", "g++")
    if shutil.which(cxx) is None:
        raise BuildError(f"There is no C++ compiler {cxx!r} (CXX).")
    with tempfile.TemporaryDirectory() as folder:
        objects = pathlib.Path(folder)
        links = {}
        core = _SOURCES / "core" / "anchored_cac.cc"
        shared = {
            objects / "core.o": [cxx, "-c", core, *_CORE_FLAGS, *_INCLUDES]
        }
        cuda_links = []
        if nvcc:
            kernels = _SOURCES / "core" / "anchored_cac_gpu.cu"
            shared[objects / "gpu.o"] = [
                *(nvcc, "-c", kernels, "-O3", "-std=c++17"),
                *("-Xcompiler", "-fPIC", *_INCLUDES, *cuda_architectures()),
            ]
            cuda_links = [f"-L{_cuda_library_folder(nvcc)}", *_CUDA_LIBRARIES]
        steps = {}
        for name in names:
            text = loader.built_for(_framework(name), with_cuda=bool(nvcc))
            own, link_flags = _STEPS[name](cxx, objects, text)
            steps.update(own)
            # The runtime first: TensorFlow exports stubs of the same names.
            links[name] = [*own, *shared, *cuda_links, *link_flags]
        steps.update(shared)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(
                pool.map(
                    lambda item: _run([*item[1], "-o", item[0]]), steps.items()
                )
            )
        paths = []
        for name, parts in links.items():
            path = loader.library_path(name)
            temporary = path.with_suffix(f".{os.getpid()}")
            try:
                _run([cxx, "-shared", "-o", temporary, *parts])
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            paths.append(path)
    return paths


def main(argv):
    """Builds, and says what was built or why not."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    nvcc = find_nvcc()
    try:
        try:
            paths = build(nvcc)
        except BuildError as error:
            if nvcc is None:
                raise
            paths = build()
            nvcc = None
            print(f"No kernels for CUDA devices.\n{error}", file=sys.stderr)
    except (BuildError, OSError) as error:
        print(f"The fused operations were not built.\n{error}", file=sys.stderr)
        if not _FLAGS.if_possible:
            sys.exit(1)
        print("Stock operations take their place.", file=sys.stderr)
        return
    kernels = "CPU and CUDA" if nvcc else "CPU"
    names = ", ".join(path.name for path in paths)
    print(f"Built {names} ({kernels}).")


if __name__ == "__main__":
    app.run(main)
