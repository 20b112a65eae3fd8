# SPDX-License-Identifier: Apache-2.0
"""Progress on the terminal, figures, and the HTML page of a run."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "benchmark_table": ["print_benchmark", "write_figure"],
        "figures": ["write_png"],
        "paper": ["FIGURES", "TABLES"],
        "paper_figures": [
            "bars_figure",
            "class_count_figure",
            "distances_figure",
            "logit_spaces_figure",
            "sweep_figure",
        ],
        "paper_tables": ["print_paper_table", "write_paper_table"],
        "progress": ["TrainingProgress"],
        "report": ["write_report"],
        "terminal_table": ["print_table"],
    },
)
