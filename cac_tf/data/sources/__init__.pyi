# SPDX-License-Identifier: Apache-2.0
from .source import DataSource as DataSource
from .source import LabelledParts as LabelledParts
from .source import find as find
from .source import names as names
from .source import register as register
from .source import what_is_taken as what_is_taken
