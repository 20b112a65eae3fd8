# SPDX-License-Identifier: Apache-2.0
from .source import ClassChoice as ClassChoice
from .source import ClassIds as ClassIds
from .source import DataSource as DataSource
from .source import LabelledParts as LabelledParts
from .source import find as find
from .source import names as names
from .source import register as register
from .source import source_of as source_of
from .source import what_is_taken as what_is_taken
