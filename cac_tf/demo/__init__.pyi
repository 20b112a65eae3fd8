# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.demo import drawing as drawing
from cac_tf.demo import inspection as inspection
from cac_tf.demo import page as page
from cac_tf.demo import photo as photo
from cac_tf.demo import score_scale as score_scale
from cac_tf.demo.drawing import image_of_drawing as image_of_drawing
from cac_tf.demo.drawing import ink_of_strokes as ink_of_strokes
from cac_tf.demo.drawing import takes_drawings as takes_drawings
from cac_tf.demo.inspection import Inspection as Inspection
from cac_tf.demo.inspection import Inspector as Inspector
from cac_tf.demo.page import build_page as build_page
from cac_tf.demo.page import serve as serve
from cac_tf.demo.photo import check_takes_photos as check_takes_photos
from cac_tf.demo.photo import image_of_photo as image_of_photo
from cac_tf.demo.score_scale import ScoreScale as ScoreScale
