# SPDX-License-Identifier: Apache-2.0
from .cac import AnchorLoss as AnchorLoss
from .cac import CACLoss as CACLoss
from .cac import CenterLoss as CenterLoss
from .cac import TupletLoss as TupletLoss
from .cac import cac_loss_from_logits as cac_loss_from_logits
from .cross_entropy import CrossEntropyLoss as CrossEntropyLoss
from .entropic_open_set import EntropicOpenSetLoss as EntropicOpenSetLoss
from .loss import Loss as Loss
from .loss import find as find
from .loss import names as names
from .loss import register as register
from .objectosphere import ObjectosphereLoss as ObjectosphereLoss
from .one_vs_all import OneVsAllLoss as OneVsAllLoss
from .reconstruction import ReconstructionLoss as ReconstructionLoss
from .symmetry import SymmetryLoss as SymmetryLoss
from .unknown_class import UnknownClassLoss as UnknownClassLoss
