# SPDX-License-Identifier: Apache-2.0
"""Progress on the terminal, figures, and the HTML page of a run."""

import lazy_loader

__all__ = ["verdict", "write_report"]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
