# SPDX-License-Identifier: Apache-2.0
from .monitor import Monitor as Monitor
