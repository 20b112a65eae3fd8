# SPDX-License-Identifier: Apache-2.0
"""What the binaries do, from Python: runs, evaluations, the benchmark."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "benchmark": ["State", "arrays_of", "run_benchmark", "state_of"],
        "benchmark_plan": ["BenchmarkRun", "configurations", "plan"],
        "compare": ["compare_runs"],
        "config": ["ExperimentConfig", "scores_named"],
        "environment": ["environment"],
        "evaluate": [
            "SAME",
            "EvaluationConfig",
            "evaluate_saved",
            "file_sha256",
        ],
        "evaluation": ["Evaluation", "evaluate"],
        "released_weights": [
            "data_of_released_weights",
            "find_released_weights",
            "import_weights",
            "parts_with_released_weights",
        ],
        "run_folder": [
            "FORMAT",
            "RunFolder",
            "RunFolderError",
            "data_summary",
            "read_config",
            "read_metrics",
        ],
        "results_csv": ["collect_results", "read_results", "write_results"],
        "score_choice": ["choose_score"],
        "speed": ["estimated_seconds", "images_per_second"],
        "train": ["train"],
    },
)
