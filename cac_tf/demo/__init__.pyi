# SPDX-License-Identifier: Apache-2.0
from .inspection import Inspector as Inspector
from .page import build_page as build_page
from .page import serve as serve
from .photo import check_takes_photos as check_takes_photos
