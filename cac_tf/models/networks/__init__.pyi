# SPDX-License-Identifier: Apache-2.0
from .registry import APPLICATIONS as APPLICATIONS
from .registry import FILE as FILE
from .registry import HUB as HUB
from .registry import PRETRAINED as PRETRAINED
from .registry import check as check
from .registry import find as find
from .registry import is_pretrained as is_pretrained
from .registry import names as names
from .registry import register as register
