"""The steps of workflows (GitHub) and jobs (GitLab) as scripts, read from the files that people copy.

Only what the examples and the snippets use is understood; anything else is refused, so that a file that passes here is
one whose every line was carried out.
"""

import re
from dataclasses import dataclass, field

from bed import ROOT, Failed

ACTION = "OWNER/weft/ci/github@TAG"
CHECKOUT = re.compile(r"actions/checkout@v\d+")


@dataclass
class Step:
    """A script for bash, and the variables it is given beside those of the runner."""

    script: str
    variables: dict = field(default_factory=dict)


def read(path):
    import yaml  # a Debian package of its own: python3-yaml
    return yaml.safe_load(path.read_text())


def only(what, known, where):
    unknown = set(what) - set(known)
    if unknown:
        raise Failed(f"{where}: {sorted(unknown)} is not understood here")


def github(workflow):
    """The steps of the workflow in that file, which has one job."""
    (job,) = read(workflow)["jobs"].values()
    only(job, ("runs-on", "steps"), workflow)
    steps = []
    for step in job["steps"]:
        only(step, ("name", "uses", "run", "with"), workflow)
        if "run" in step:
            steps.append(Step(step["run"]))
        elif step["uses"] == ACTION:
            steps += action(step.get("with", {}))
        elif not CHECKOUT.fullmatch(step["uses"]):
            raise Failed(f"{workflow}: {step['uses']} is not understood here")
    return steps


def action(given):
    """The steps of Weft's own action, with these inputs."""
    described = read(ROOT / "ci/github/action.yml")
    inputs = {name: given.get(name, of.get("default", "")) for name, of in described["inputs"].items()}

    def filled(text):
        return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], text)
    steps = []
    for step in described["runs"]["steps"]:
        only(step, ("name", "shell", "env", "run"), "ci/github/action.yml")
        steps.append(Step(filled(step["run"]), {name: filled(value) for name, value in step.get("env", {}).items()}))
    return steps


def gitlab(configuration):
    """The steps of the job `test` in that file, with what it extends of Weft's snippet."""
    job = read(configuration)["test"]
    only(job, ("extends", "image", "script"), configuration)
    snippet = read(ROOT / "ci/gitlab/weft.yml")[job["extends"]]
    only(snippet, ("variables", "before_script"), "ci/gitlab/weft.yml")
    # One shell runs all lines.
    return [Step("\n".join(snippet["before_script"] + job["script"]), snippet["variables"])]
