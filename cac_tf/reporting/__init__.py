# SPDX-License-Identifier: Apache-2.0
"""Progress on the terminal, figures, and the HTML page of a run."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "benchmark_table": ["print_benchmark", "write_figure"],
        "comparison": ["ComparedRun", "write_comparison"],
        "figures": ["write_png"],
        "model_card": ["write_model_card"],
        "paper": ["FIGURES", "TABLES"],
        "paper_figures": [
            "bars_figure",
            "class_count_figure",
            "distances_figure",
            "logit_spaces_figure",
            "lines_figure",
            "sweep_figure",
        ],
        "paper_tables": ["print_paper_table", "write_paper_table"],
        "predictions": ["write_predictions"],
        "progress": ["TrainingProgress"],
        "report": ["write_report"],
        "terminal_table": ["print_table"],
        "verdict": ["verdict"],
    },
)
