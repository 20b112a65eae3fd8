# SPDX-License-Identifier: Apache-2.0
from .drawing import image_of_drawing as image_of_drawing
from .drawing import ink_of_strokes as ink_of_strokes
from .drawing import takes_drawings as takes_drawings
from .inspection import Inspection as Inspection
from .inspection import Inspector as Inspector
from .page import build_page as build_page
from .page import serve as serve
from .photo import check_takes_photos as check_takes_photos
from .photo import image_of_photo as image_of_photo
from .score_scale import ScoreScale as ScoreScale
