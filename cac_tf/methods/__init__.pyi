# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.methods import method as method
from cac_tf.methods import presets as presets
from cac_tf.methods import recipe as recipe
from cac_tf.methods import supervised as supervised
from cac_tf.methods.method import Method as Method
from cac_tf.methods.method import get as get
from cac_tf.methods.method import names as names
from cac_tf.methods.method import register as register
from cac_tf.methods.presets import check_tta as check_tta
from cac_tf.methods.presets import fast as fast
from cac_tf.methods.presets import preset as preset
from cac_tf.methods.recipe import BaseRecipe as BaseRecipe
from cac_tf.methods.recipe import Recipe as Recipe
from cac_tf.methods.recipe import field as field
from cac_tf.methods.supervised import SupervisedMethod as SupervisedMethod
