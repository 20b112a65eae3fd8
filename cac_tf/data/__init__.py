# SPDX-License-Identifier: Apache-2.0
"""Class splits, data sources, and the open-set experiment's data."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "class_splits": [
            "ClassSplit",
            "class_split",
            "has_class_split",
            "split_families",
        ],
        "load": ["load_open_set_dataset"],
        "open_set_dataset": [
            "Examples",
            "OpenSetDataset",
            "make_open_set_dataset",
            "stratified_split",
        ],
        "options": ["DataOptions"],
        "sources": ["DataSource", "LabelledParts"],
        "sources.benchmark_sets": ["BENCHMARK_SETS", "BenchmarkImages"],
        "sources.digits": ["load_digits"],
        "sources.image_folder": ["load_image_folder"],
        "sources.npz_arrays": ["dump_arrays", "load_npz_arrays", "origin_of"],
        "sources.record_folder": ["load_record_folder"],
        "sources.tfds": ["load_tfds_images"],
        "streamed_images": ["StreamedImages"],
        "unknown_data": ["load_unknown_images"],
    },
)
