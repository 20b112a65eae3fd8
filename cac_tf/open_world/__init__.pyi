# SPDX-License-Identifier: Apache-2.0
from .changes import changed_decisions as changed_decisions
from .grouping import Group as Group
from .grouping import Grouping as Grouping
from .grouping import group as group
from .monitor import Monitor as Monitor
