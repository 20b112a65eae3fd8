# SPDX-License-Identifier: Apache-2.0
"""How models are trained and scored: one file or folder per method.

A file in this folder that registers a `Method` adds a method, and so does
another package that registers one (`methods.register`); no other file has to
change.

>>> names()[:4]
('anchor', 'c2ae', 'cac', 'cac_learnt')
>>> get("cross_entropy").scores
('max_softmax', 'max_logit', 'openmax', 'openmax_log_sum_exp')
"""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "method": ["Method", "get", "names", "register"],
        "presets": ["check_tta", "fast", "preset"],
        "recipe": ["BaseRecipe", "Recipe", "field"],
        "supervised": ["SupervisedMethod"],
    },
)
