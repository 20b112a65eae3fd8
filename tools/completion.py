# SPDX-License-Identifier: Apache-2.0
"""Writes what completes the flags of the binaries in bash and zsh.

    python tools/completion.py

`completions/cac_tf.bash` completes all of them. The files beside it are named
after the binaries, because bash-completion looks for such a file.
"""

import importlib
import pathlib
import re

from absl import flags

from cac_tf.data import sources
from cac_tf.data.sources.benchmark_sets import BENCHMARK_SETS
from cac_tf.train import help_pages

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = ROOT / "completions"
_HEAD = """# SPDX-License-Identifier: Apache-2.0
# Written by tools/completion.py.
"""
_LOAD = f"""{_HEAD}. "${{BASH_SOURCE[0]%/*}}/cac_tf.bash"
"""
_SCRIPT = """{head}
# Completes the flags of cac_tf's binaries in bash and zsh:
#     source completions/cac_tf.bash

_cac_tf_flags() {{
    case $1 in
{flags}
    esac
}}

# What a flag takes: "one" or a "list" of some words. Others take any text.
_cac_tf_values() {{
    case "$1 $2" in
{values}
    esac
}}

_cac_tf() {{
    local command=${{1##*/}} current=${{COMP_WORDS[COMP_CWORD]}}
    local before=${{COMP_WORDS[COMP_CWORD - 1]}} flag="" start="" values=""
    # Bash takes --flag=value apart into three words, zsh does not.
    if [[ $current == --*=* ]]; then
        flag=${{current%%=*}}
        start=$flag=
        current=${{current#*=}}
    elif [[ $current == = ]]; then
        flag=$before
        current=""
    elif [[ $before == = ]]; then
        flag=${{COMP_WORDS[COMP_CWORD - 2]}}
    elif [[ $before == --* && $current != -* ]]; then
        flag=$before
    fi
    if [[ -n $flag ]]; then
        values=$(_cac_tf_values "$command" "$flag")
        if [[ $values == list* && $current == *,* ]]; then
            start=$start${{current%,*}},
            current=${{current##*,}}
        fi
        values=${{values#* }}
    elif [[ $current == -* ]]; then
        values=$(_cac_tf_flags "$command")
    fi
    COMPREPLY=($(compgen -P "$start" -W "$values" -- "$current"))
    # After --flag= comes a value.
    if [[ ${{COMPREPLY[*]}} == --*= && -z ${{ZSH_VERSION-}} ]]; then
        compopt -o nospace 2>/dev/null
    fi
}}

# Where there is nothing to choose from, names of files are completed.
if [[ -n ${{ZSH_VERSION-}} ]]; then
    type compdef >/dev/null 2>&1 || {{ autoload -U compinit && compinit; }}
    autoload -U bashcompinit && bashcompinit
    complete -o nospace -o default -F _cac_tf {commands}
else
    complete -o default -F _cac_tf {commands}
fi
"""
_DATASETS = (
    *BENCHMARK_SETS,
    # Those that are asked for by the name of their source.
    *(
        name
        for name in sources.names()
        if sources.find(name).TAKES.split()[0] == name
    ),
)


def commands():
    """Dict from the name of each binary to its `absl.flags.FlagValues`."""
    text = (ROOT / "pyproject.toml").read_text()
    found = {}
    for name, module in re.findall(r'^(cac-[\w-]+) = "(.+):run"$', text, re.M):
        found[name] = flags.FlagValues()
        importlib.import_module(module).define_flags(found[name])
        help_pages.define_help(found[name])
    return found


def _choices(flag):
    """How many values a flag takes and which, or None."""
    if flag.name == "dataset":
        return f"one {' '.join(_DATASETS)}"
    if flag.name == "datasets":
        return f"list {' '.join(_DATASETS)}"
    choice = getattr(flag.parser, "choice", None)
    if choice is not None:
        return f"list {' '.join(choice.enum_values)}"
    if isinstance(flag.parser, flags.EnumParser):
        return f"one {' '.join(flag.parser.enum_values)}"
    return None


def _words(values):
    """What may stand on the command line, one word for each flag."""
    for group in help_pages.groups(values):
        for flag in values.flags_by_module_dict()[group]:
            if flag.boolean:
                yield from (f"--{flag.name}", f"--no{flag.name}")
            else:
                yield f"--{flag.name}="
    yield from ("--help", "--help=", "--verbosity=", "--version")


def _cases(lines):
    return "\n".join(
        f"    {pattern}) echo {line!r} ;;" for pattern, line in lines
    )


def files():
    """Dict from the path of each file to its text."""
    binaries = commands()
    script = _SCRIPT.format(
        head=_HEAD,
        flags=_cases(
            (command, " ".join(_words(values)))
            for command, values in binaries.items()
        ),
        values=_cases(
            (f'"{command} --{name}"', _choices(values[name]))
            for command, values in binaries.items()
            for name in values
            if name not in ("?", "helpshort")
            and _choices(values[name]) is not None
        ),
        commands=" ".join(binaries),
    )
    return {
        FOLDER / "cac_tf.bash": script,
        **{FOLDER / command: _LOAD for command in binaries},
    }


def main():
    """Brings all files up to date."""
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"updated {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
