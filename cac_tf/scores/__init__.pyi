# SPDX-License-Identifier: Apache-2.0
from .energy import Energy as Energy
from .gamma import Gamma as Gamma
from .gen import GEN as GEN
from .knn import KNN as KNN
from .latent_openmax import LatentOpenMax as LatentOpenMax
from .mahalanobis import Mahalanobis as Mahalanobis
from .min_distance import MinDistance as MinDistance
from .min_reconstruction_error import (
    MinReconstructionError as MinReconstructionError,
)
from .nnguide import NNGuide as NNGuide
from .openmax import OpenMax as OpenMax
from .openmax_log_sum_exp import OpenMaxLogSumExp as OpenMaxLogSumExp
from .registry import check as check
from .registry import common_names as common_names
from .registry import find as find
from .registry import names as names
from .registry import register as register
from .relative_mahalanobis import RelativeMahalanobis as RelativeMahalanobis
from .score import Score as Score
from .score import get as get
from .unknown_class_openmax import UnknownClassOpenMax as UnknownClassOpenMax
from .vim import ViM as ViM
