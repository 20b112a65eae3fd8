# SPDX-License-Identifier: Apache-2.0
"""Runs, evaluations and the benchmark, as on the command line."""

import lazy_loader

__all__ = ["ExperimentConfig", "evaluate", "train"]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
