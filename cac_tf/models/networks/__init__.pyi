# SPDX-License-Identifier: Apache-2.0
from .registry import find as find
from .registry import names as names
from .registry import register as register
