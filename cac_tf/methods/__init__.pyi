# SPDX-License-Identifier: Apache-2.0
from .method import Method as Method
from .method import get as get
from .method import names as names
from .method import register as register
from .presets import check_tta as check_tta
from .presets import preset as preset
from .recipe import BaseRecipe as BaseRecipe
from .recipe import Recipe as Recipe
from .recipe import field as field
