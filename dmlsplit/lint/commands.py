"""Commands that advice prints: every shell takes them as printed.

Words in capitals are left to the user: names that a shell or Python would read differently, and
what is not known.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from dmlsplit.messages import Fix
from dmlsplit.models.site import NodePath, SplitSite, Unknown

# Words that no shell changes inside double quotes.
_LITERAL = re.compile(r"(?!-)[\w' ./:+,@#()\[\]{}|<>&;*?~=-]{1,200}")
# Words that are also literal inside single quotes of Python: the same characters without '.
_PYTHON_LITERAL = re.compile(_LITERAL.pattern.replace("'", ""))
_PYTHON = 'python -c "'
_NEEDS_QUOTES = re.compile(r"[^\w./:+-]")
# The most values that one command declares, and the most paths that one names.
_MAX_DECLARED = 64
_MAX_PATHS = 8


def options(sizes: Iterable[tuple[str, int | str]]) -> str:
    """The --dim options for these sizes, or their form if shells quote a name differently."""
    by_name = dict(sizes)
    if not all(map(_LITERAL.fullmatch, by_name)):
        return "--dim NAME=N"
    return " ".join(
        f'--dim "{name}={size}"' if _NEEDS_QUOTES.search(name) else f"--dim {name}={size}"
        for name, size in by_name.items()
    )


def fixing_command(template: str, file: str, options: str) -> str:
    """A template with the command that rewrites a model into a file beside it."""
    model = shell_word(file)
    output = shell_word(f"{_stem(file)}.fixed.onnx")
    if output is None or model is None:
        model = "MODEL.onnx"
        output = "MODEL.fixed.onnx"
    left = ["MODEL"] if model == "MODEL.onnx" else []
    return template.format(
        replace=_replace(left), paths=model, options=options and f" {options}", output=output
    )


def folder_fixing_command(template: str, paths: Sequence[str], options: str) -> str:
    """A template with the command that rewrites the models of several paths into a folder."""
    words = list(filter(None, map(shell_word, paths)))
    is_named = len(words) == len(paths) <= _MAX_PATHS
    return template.format(
        replace=_replace([] if is_named else ["PATHS"]),
        paths=" ".join(words) if is_named else "PATHS",
        options=options and f" {options}",
        output=_output_folder(paths),
    )


def _output_folder(paths: Sequence[str]) -> str:
    """``fixed/``, or a folder beside one of the paths that would have it among its models."""
    here = Path.cwd()
    for path in paths:
        folder = path.partition("**")[0] or "." if "**" in path else path
        if here.is_relative_to(os.path.abspath(folder)):  # noqa: PTH100 (follows no links)
            return shell_word(os.path.normpath(f"{folder}/../fixed") + "/") or "FOLDER"
    return "fixed/"


def shell_word(text: str) -> str | None:
    """A word of a command, quoted if it has to be; None if shells quote it differently."""
    if not _LITERAL.fullmatch(text):
        return None
    return f'"{text}"' if _NEEDS_QUOTES.search(text) else text


def python_command(template: str, file: str, left: Iterable[str] = (), **words: str) -> Fix:
    """A template with `words`, and with the name of a model and its stem, for models to write.

    `left` has the words in capitals that the user has to replace.
    """
    is_named = bool(_PYTHON_LITERAL.fullmatch(file))
    model = file if is_named else "MODEL"
    replace = _replace([*([] if is_named else ["MODEL"]), *left])
    return _filled(template, model=model, stem=_stem(model), replace=replace, **words)


def _filled(template: str, **words: str) -> Fix:
    """A template that may end with a command of Python."""
    text, python, code = template.partition(_PYTHON)
    command = f"{python}{code}".format(**words)
    return Fix(text.format(**words) + command, [command] if python else [])


def declaring_command(template: str, file: str, sites: Sequence[SplitSite]) -> Fix:
    """A template with code that declares the inputs of some splits of a model."""
    left: list[str] = []
    code = ""
    for site in sites[:_MAX_DECLARED]:
        value = site.input_name if _PYTHON_LITERAL.fullmatch(site.input_name) else None
        words = {
            "GRAPH": _graph(site.input_path),
            "VALUE": value,
            "TYPE": site.element_type,
            "SHAPE": _shape(site),
        }
        left += [word for word, text in words.items() if text is None]
        texts = (text or word for word, text in words.items())
        code += "d({}, '{}', T.{}, {}); ".format(*texts)
    return python_command(template, file, left, code=code)


def freeing_command(template: str, site: SplitSite) -> Fix:
    """A template with code that makes the pieces of a split equal, whatever the axis is.

    The split is not in the body of a function.
    """
    graph = _graph(site.path[:-1])
    code = f"{graph or 'GRAPH'}.node[{site.index}]"
    if site.opset < 13:
        code += "; n.attribute.remove(*[a for a in n.attribute if a.name == 'split'])"
    else:
        code += "; del n.input[1:]"
        if site.opset >= 18:
            count = "onnx.helper.make_attribute('num_outputs', len(n.output))"
            code += f"; n.attribute.append({count})"
    return python_command(template, site.file, [] if graph else ["GRAPH"], code=code)


def _replace(left: Iterable[str]) -> str:
    """The request to replace words, after the text of a fix."""
    words = dict.fromkeys(left)
    return f" (replace {' and '.join(words)})" if words else ""


def _stem(file: str) -> str:
    """A file name without its ending."""
    return str(Path(file).with_suffix(""))


def _graph(path: NodePath) -> str | None:
    """The Python expression for the graph of a path in `m`, if it can be printed."""
    graph = "m.graph"
    bodies = iter(path)
    for index, name, body in zip(bodies, bodies, bodies, strict=True):
        if not _PYTHON_LITERAL.fullmatch(str(name)):
            return None
        named = f"for a in {graph}.node[{index}].attribute if a.name == '{name}'"
        graph = f"[[*a.graphs, a.g][{body}] {named}][0]"
    return graph


def _shape(site: SplitSite) -> str | None:
    """A shape of a split's input that would make the split known."""
    example = site.state.example_shape if isinstance(site.state, Unknown) else None
    return None if example is None else str(list(example))
