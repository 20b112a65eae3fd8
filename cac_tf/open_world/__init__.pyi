# SPDX-License-Identifier: Apache-2.0
from .changes import changed_decisions as changed_decisions
